"""A radix tree over the token ids of all live sequences: which cache rows are whose."""

from dataclasses import dataclass


class Node:
    """A run of tokens. A slot that holds a node holds all of its tokens and all above it."""

    __slots__ = (
        "children",
        "fresh_from",
        "fresh_round",
        "fresh_row",
        "holders",
        "parent",
        "start",
        "tokens",
    )

    def __init__(
        self, tokens: list[int], start: int, holders: set[int], parent: "Node | None"
    ) -> None:
        self.tokens = tokens
        self.start = start  # position of the first token in its sequence
        self.holders = holders  # slots whose cache has these tokens
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.fresh_round = -1  # the forward pass that computes the tokens from `fresh_from` on
        self.fresh_from = 0
        self.fresh_row = 0  # where `fresh_from` lies in that pass' packed row

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass(slots=True)
class Match:
    """Positions [start, end) of a sequence that the tree already knows."""

    start: int
    end: int
    source: int  # fresh: packed row of `start`; else a slot whose cache has the positions
    fresh: bool  # computed in the forward pass that is being put together


class PrefixTree:
    """Every live sequence is the path from the root to its last node.

    A node is cut in two where a sequence leaves it. The lower part stays the same object, so the
    last node of a sequence always ends exactly where the sequence ends.
    """

    def __init__(self) -> None:
        self.root = Node([], 0, set(), None)

    def match(
        self, node: Node, slot: int, ids: list[int], round_index: int
    ) -> tuple[Node, list[Match]]:
        """Walk from `node` along `ids` as far as the tree goes and take hold of what is there.

        Returns the last node reached and what was found, in order.
        """
        found: list[Match] = []
        done = 0
        while done < len(ids):
            child = node.children.get(ids[done])
            if child is None:
                break
            common = common_length(child.tokens, ids[done:])
            if common < len(child.tokens):
                child = _split(child, common)
            found += _describe(child, round_index)
            child.holders.add(slot)
            node = child
            done += common
        return node, found

    def append(self, node: Node, slot: int, ids: list[int], round_index: int, row: int) -> Node:
        """Add tokens that nobody has; this round computes them from packed row `row` on."""
        if node.children or len(node.holders) != 1:
            child = Node(ids, node.end, {slot}, node)
            node.children[ids[0]] = child
            node, first = child, child.start
        else:
            first = node.end
            node.tokens.extend(ids)
        node.fresh_round, node.fresh_from, node.fresh_row = round_index, first, row
        return node

    def truncate(self, node: Node, slot: int, length: int) -> Node:
        """Let go of everything from position `length` on; return the new last node."""
        while node.parent is not None and node.start >= length:
            parent = node.parent
            _let_go(node, slot)
            node = parent
        if length < node.end:
            upper = _split(node, length - node.start)
            _let_go(node, slot)
            node = upper
        return node


def _let_go(node: Node, slot: int) -> None:
    node.holders.discard(slot)
    if not node.holders and node.parent is not None:
        del node.parent.children[node.tokens[0]]


def _split(node: Node, length: int) -> Node:
    """Cut `node` after `length` tokens; return the new upper part."""
    parent = node.parent
    assert parent is not None  # the root has no tokens
    upper = Node(node.tokens[:length], node.start, set(node.holders), parent)
    upper.fresh_round, upper.fresh_from = node.fresh_round, node.fresh_from
    upper.fresh_row = node.fresh_row
    parent.children[upper.tokens[0]] = upper
    node.tokens = node.tokens[length:]
    node.start += length
    node.parent = upper
    upper.children[node.tokens[0]] = node
    return upper


def _describe(node: Node, round_index: int) -> list[Match]:
    """What a node offers to a sequence that comes upon it: cached rows, then fresh ones."""
    slot = next(iter(node.holders))
    if node.fresh_round != round_index or node.fresh_from >= node.end:
        return [Match(node.start, node.end, slot, False)]
    first = max(node.fresh_from, node.start)
    fresh = Match(first, node.end, node.fresh_row + first - node.fresh_from, True)
    return [Match(node.start, first, slot, False), fresh] if first > node.start else [fresh]


def common_length(left: list[int], right: list[int]) -> int:
    """Number of leading ids that the two have in common."""
    length = min(len(left), len(right))
    if left[:length] == right[:length]:
        return length
    return next(i for i in range(length) if left[i] != right[i])
