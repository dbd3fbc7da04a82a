"""Is a task solved? The answer that `stop` gave, and what became of the database.

Answers are judged as in WebArena (arXiv 2307.13854, section 3.2): exact match after normalising, or
every required piece included. Changes are judged row by row: the right rows changed in the right
way, and nothing else changed.
"""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from environments.web.site.database import Difference, differences

MOST_SURPLUS = 40  # characters beside the pieces of an answer: pages are not to be dumped

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_EDGES = " .,;:!?'\"()[]"


@dataclass(frozen=True, slots=True)
class Change:
    """A change that has to happen.

    `insert`: a row with these values. `update`: row `id` gets these values and keeps the others.
    `delete`: row `id` goes.
    """

    kind: Literal["insert", "update", "delete"]
    table: str
    values: Mapping[str, Any] = field(default_factory=dict)
    id: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What solves a task: an answer, changes, or both."""

    answers: tuple[str, ...] = ()  # any of them will do; none: the answer does not matter
    pieces: tuple[str, ...] = ()  # all of them have to be in the answer
    changes: tuple[Change, ...] = ()


def normalise(text: str) -> str:
    """Lower case, white space collapsed, articles and punctuation at the ends dropped, `1,200`
    as `1200`."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.lower())
    text = _ARTICLES.sub(" ", text)
    return " ".join(word for raw in text.split() if (word := raw.strip(_EDGES)))


def answers_right(answer: str, wanted: Wanted) -> bool:
    """Is this the answer?"""
    given = normalise(answer)
    if wanted.pieces:
        padded = f" {given} "
        pieces = [normalise(piece) for piece in wanted.pieces]
        short = len(given) <= sum(map(len, pieces)) + MOST_SURPLUS
        return short and all(f" {piece} " in padded for piece in pieces)
    return not wanted.answers or any(
        given in (normalise(right), normalise(right).lstrip("$")) for right in wanted.answers
    )


def _same(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return " ".join(str(got).split()).lower() == " ".join(wanted.split()).lower()
    return got == wanted


def _fits(found: Difference, wanted: Change) -> bool:
    if found.table != wanted.table:
        return False
    if wanted.kind == "insert":
        new = found.new
        return (
            found.old is None
            and new is not None
            and all(_same(new[name], value) for name, value in wanted.values.items())
        )
    if found.id != wanted.id or found.old is None:
        return False
    if wanted.kind == "delete" or found.new is None:
        return wanted.kind == "delete" and found.new is None
    expected = {**found.old, **wanted.values}
    return all(_same(found.new[name], value) for name, value in expected.items())


def changes_right(found: Sequence[Difference], wanted: Sequence[Change]) -> bool:
    """Are these exactly the changes that were wanted, in any order?

    Wanted inserts of one table must not be special cases of each other: the first that fits is
    taken.
    """
    left = list(found)
    for change in wanted:
        fitting = next((difference for difference in left if _fits(difference, change)), None)
        if fitting is None:
            return False
        left.remove(fitting)
    return not left


def solved(answer: str, db: sqlite3.Connection, seed: int, wanted: Wanted) -> bool:
    """Is the task solved by this answer and this state of the world's database?"""
    return answers_right(answer, wanted) and changes_right(differences(db, seed), wanted.changes)
