"""The prefix tree of a micro-batch's rows: what they have in common is laid out once.

    row 0   a a a a b b b c c        segments   a a a a | b b b | c c
    row 1   a a a a b b b d                                     | d
    row 2   a a a a e e                                 | e e

Segments lie in the order of a walk through the tree, each node before what hangs from it and the
child with the most ids first. Then a subtree is one span of packed ids, and a packed id is seen by
exactly the ids from itself to the end of its segment's subtree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of packed ids that the same rows share: [start, stop), its subtree [start, end)."""

    start: int
    stop: int
    end: int
    parent: int  # number of the segment before it in its rows; -1: none
    depth: int  # ids before it in its rows


@dataclass(slots=True)
class _Node:
    """Ids [begin, end) of row `row`, while the tree grows."""

    begin: int
    end: int
    row: int
    children: list["_Node"] = field(default_factory=list)
    total: int = 0  # ids of the subtree

    def measure(self) -> None:
        """Sum up a node whose children are complete, and put the largest child first."""
        self.children.sort(key=lambda child: -child.total)  # stable: equals by their first id
        self.total = self.end - self.begin + sum(child.total for child in self.children)


class PrefixTree:
    """Lays rows out by their common prefixes.

    Args:
        rows: Ids of each row, int64 [length].

    Attributes:
        segments: In packed order.
        ids: int64 [T], packed.
        positions: int64 [T], position of each packed id in its rows.
        lengths: Per row the number of its ids.
    """

    def __init__(self, rows: Sequence[Ids]) -> None:
        self.lengths = [len(row) for row in rows]
        self.segments: list[Segment] = []
        self._last = [-1] * len(rows)  # the segment that each row ends in
        root, order, common = _grow(rows)
        owners = self._lay_out(root)
        self._find_ends(order, common, owners)
        spans = zip(self.segments, owners, strict=True)
        pieces = [rows[row][s.depth : s.depth + s.stop - s.start] for s, row in spans]
        self.ids: Ids = np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)
        steps = [np.arange(s.depth, s.depth + s.stop - s.start) for s in self.segments]
        self.positions: Ids = np.concatenate(steps) if steps else np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.ids)

    def path(self, row: int) -> list[slice]:
        """Return where the ids of a row lie, from its first to its last."""
        spans, at, length = [], self._last[row], self.lengths[row]
        while at >= 0:
            segment = self.segments[at]
            stop = min(segment.stop, segment.start + length - segment.depth)
            spans.append(slice(segment.start, stop))
            at = segment.parent
        return spans[::-1]

    def index(self, row: int) -> Ids:
        """Return the packed position of each id of a row, int64 [length]."""
        spans = [np.arange(span.start, span.stop) for span in self.path(row)]
        return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)

    def ends(self) -> Ids:
        """Return per packed id the end of its segment's subtree: the first id not to see it."""
        counts = [segment.stop - segment.start for segment in self.segments]
        return np.repeat(np.array([s.end for s in self.segments], dtype=np.int64), counts)

    def _lay_out(self, root: _Node) -> list[int]:
        """Number the segments; return for each a row that has it."""
        owners: list[int] = []
        offset = 0
        stack = [(child, -1) for child in reversed(root.children)]
        while stack:
            node, parent = stack.pop()
            stop = offset + node.end - node.begin
            stack += [(child, len(owners)) for child in reversed(node.children)]
            self.segments.append(Segment(offset, stop, offset + node.total, parent, node.begin))
            owners.append(node.row)
            offset = stop
        return owners

    def _find_ends(self, order: list[int], common: list[int], owners: list[int]) -> None:
        """Find the segment of every row's last id."""
        own = {row: at for at, row in enumerate(owners)}  # the last that a row owns is its deepest
        at = -1
        for row, shared in zip(reversed(order), [0, *reversed(common)], strict=False):
            length = self.lengths[row]
            if length > shared or not length:  # no prefix of the row after it
                at = own.get(row, -1)
            else:
                while self.segments[at].depth >= length:
                    at = self.segments[at].parent
            self._last[row] = at


def sort_rows(rows: Sequence[Ids]) -> tuple[list[int], list[int]]:
    """Sort rows by their ids.

    Returns:
        the order, equal rows by number, and for each row in that order the number of leading ids
        that it shares with the row before it.
    """
    keys = [row.astype(">i8").tobytes() for row in rows]  # compares as the ids do, if none is < 0
    order = sorted(range(len(rows)), key=lambda row: (keys[row], row))
    pairs = pairwise(order)
    return order, [0, *(common_length(rows[a], rows[b]) for a, b in pairs)][: len(order)]


def common_length(left: Ids, right: Ids) -> int:
    """Return the number of leading ids that two rows share."""
    length = min(len(left), len(right))
    differ = left[:length] != right[:length]
    return int(differ.argmax()) if differ.any() else length


def _grow(rows: Sequence[Ids]) -> tuple[_Node, list[int], list[int]]:
    """Add sorted rows to the tree one by one: each leaves the last one's path where they part."""
    order, common = sort_rows(rows)
    root = _Node(0, 0, -1)
    path = [root]
    for row, shared in zip(order, common, strict=True):
        while path[-1].begin >= shared and path[-1] is not root:
            path.pop().measure()
        top, length = path[-1], len(rows[row])
        if top.end > shared:
            rest = _Node(shared, top.end, top.row, top.children)
            rest.measure()
            top.end, top.children = shared, [rest]
        if not (top.children or top is root):  # the row before is a prefix of this one
            top.end, top.row = length, row
        elif length > shared:
            top.children.append(_Node(shared, length, row))
            path.append(top.children[-1])
    while path:
        path.pop().measure()
    return root, order, common
