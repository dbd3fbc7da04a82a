"""Constrained generation: the answer must be one of a list of token sequences."""

from collections.abc import Iterable, Sequence


class TokenTrie:
    """A prefix tree over answers; implements `engine.base.Constraint`.

    States are node numbers. Every sequence ends with a stop id, so where one answer is the
    beginning of another ("get log", "get log 2") the stop id is offered beside the longer one's
    next token.
    """

    __slots__ = ("_allowed", "_children", "start")

    def __init__(self) -> None:
        self.start = 0
        self._children: list[dict[int, int]] = [{}]
        self._allowed: dict[int, tuple[int, ...]] = {}

    @classmethod
    def from_sequences(cls, sequences: Iterable[Sequence[int]]) -> "TokenTrie":
        """Build the tree. Raises `ValueError` if there is no sequence, or an empty one."""
        trie = cls()
        children = trie._children
        for sequence in sequences:
            node = 0
            for token in sequence:
                following = children[node].get(token)
                if following is None:
                    following = len(children)
                    children[node][token] = following
                    children.append({})
                node = following
            if not node:
                raise ValueError("an answer needs at least its stop id")
        if not children[0]:
            raise ValueError("a constraint needs at least one answer")
        return trie

    def allowed(self, state: int) -> tuple[int, ...]:
        """Return the ids that may follow, ascending; none after a whole answer."""
        ids = self._allowed.get(state)
        if ids is None:
            ids = self._allowed[state] = tuple(sorted(self._children[state]))
        return ids

    def advance(self, state: int, token_id: int) -> int:
        """Return the node after `token_id`. Raises `KeyError` for an id that is not allowed."""
        return self._children[state][token_id]
