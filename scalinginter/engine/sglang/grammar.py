"""A constraint on token ids as a grammar for SGLang (its xgrammar backend).

Text-level grammars (regex, EBNF over characters, JSON schema) admit every way to cut a text into
tokens, and which ids they allow at each position is known to the server alone; the learner needs
exactly those ids to renormalise. So a constraint goes over the wire as a grammar over ids:

    state 0 allows 5, 7; 5 leads to state 1, 7 to 2        s0 ::= Token(5) s1 | Token(7) s2
    state 1 allows 6; then the answer may end              s1 ::= Token(6) s3     s3 ::= ""

The server then masks to the very ids that `Constraint.allowed` gives, and its log-probs are
renormalised over them.
"""

from collections.abc import Iterable

from scalinginter.engine.base import Constraint

MAX_STATES = 50_000


class ServerConstraint:
    """A constraint as a server enforces it: where an answer may end, each of its ends may come.

    Where `inner` allows one of `stops` (the ids with which the server ends constrained answers),
    the server allows all of them. Implements `engine.base.Constraint`.
    """

    def __init__(self, inner: Constraint, stops: frozenset[int]) -> None:
        self._inner, self._stops = inner, stops
        self.start = inner.start

    def allowed(self, state: int) -> tuple[int, ...]:
        """Return the ids that the server may draw in `state`, ascending."""
        ids = self._inner.allowed(state)
        if len(self._stops) > 1 and not self._stops.isdisjoint(ids):
            return tuple(sorted(self._stops.union(ids)))
        return ids

    def advance(self, state: int, token_id: int) -> int:
        """Return the state after `token_id`."""
        return self._inner.advance(state, token_id)


def to_ebnf(
    constraint: Constraint, state: int, stop_ids: Iterable[int], server_stops: frozenset[int]
) -> str:
    """Return the grammar of what may follow in `state`.

    `stop_ids` end the answer. Those among `server_stops` the server itself allows where the grammar
    may end; others are spelled out. Raises `ValueError` for a constraint of too many states.
    """
    stops = frozenset(stop_ids)
    rules: dict[int, str] = {}
    waiting = [state]
    while waiting:
        at = waiting.pop()
        if at in rules:
            continue
        if len(rules) == MAX_STATES:
            raise ValueError(
                f"the constraint has more than {MAX_STATES:,} states, too many for a grammar; "
                "use engine.kind: local, or fewer admissible actions"
            )
        following = _following(constraint, at, stops)
        rules[at] = " | ".join(_alternatives(following, server_stops)) or '""'
        waiting += [to for to in following if to is not None and to not in rules]
    lines = [f"root ::= s{state}"]
    return "\n".join(lines + [f"s{at} ::= {rule}" for at, rule in rules.items()])


def _following(
    constraint: Constraint, state: int, stops: frozenset[int]
) -> dict[int | None, list[int]]:
    """Ids by the state that they lead to; None: the end."""
    following: dict[int | None, list[int]] = {}
    for token in constraint.allowed(state):
        to = None if token in stops else constraint.advance(state, token)
        following.setdefault(to, []).append(token)
    return following


def _alternatives(
    following: dict[int | None, list[int]], server_stops: frozenset[int]
) -> Iterable[str]:
    for to, tokens in following.items():
        if to is not None:
            yield f"Token({', '.join(map(str, tokens))}) s{to}"
            continue
        spelled = [token for token in tokens if token not in server_stops]
        if spelled:
            yield f"Token({', '.join(map(str, spelled))})"
        if len(spelled) < len(tokens):
            yield '""'
