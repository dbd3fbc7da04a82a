# ruff: noqa: N802, N803, N806, N815 (names end in the shape of the tensor)
"""From episodes to what one forward pass takes: trajectory -> rows -> packed micro-batches.

Shape suffixes: `_T` packed tokens of a micro-batch, `_D` its draws, `_C` those of them under a
constraint, `_N` its trained tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scalinginter.train.packed import PackedLayout
from scalinginter.train.trie import PrefixTree, sort_rows
from scalinginter.types import TrainingSample, Trajectory, Turn


def to_samples(
    trajectory: Trajectory, turn_advantages: NDArray[np.float32], episode: int
) -> list[TrainingSample]:
    """Return the training rows of one episode: one, and one more for every forked turn.

    A row is the ids exactly as they passed through the engine. Its mask is True where an id was
    drawn: context, environment text, forced ids and another policy's are not trained. Rows that
    train nothing are left out, and so are all rows if `turn_advantages` is empty (the episode does
    not count) or if another process has the episode's tokens.

    Args:
        trajectory: The episode.
        turn_advantages: [num_turns], or empty.
        episode: Position of the episode in the batch.

    Raises:
        ValueError: `turn_advantages` has another length than the turns.
    """
    if len(turn_advantages) == 0 or trajectory.stop.is_failure or trajectory.elsewhere:
        return []
    if len(turn_advantages) != len(trajectory.turns):
        raise ValueError(
            f"{len(turn_advantages)} advantages for {len(trajectory.turns)} turns "
            f"of episode {episode} ({trajectory.task.id})"
        )
    rows: list[_Row] = []
    for index, turn in enumerate(trajectory.turns):
        if not rows or turn.forked:
            rows.append(_Row())
        rows[-1].append(turn, index, float(turn_advantages[index]))
    first_prompt = len(trajectory.turns[0].context_ids)
    return [
        row.sample(trajectory.group_id, episode, first_prompt if number == 0 else 0)
        for number, row in enumerate(rows)
        if any(row.mask)
    ]


@dataclass
class _Row:
    """A training row while its turns are written to it."""

    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    turn_index: list[int] = field(default_factory=list)
    allowed: list[tuple[int, ...] | None] = field(default_factory=list)

    def append(self, turn: Turn, index: int, advantage: float) -> None:
        context, completion = len(turn.context_ids), turn.completion
        total = context + len(completion.token_ids)
        self.ids += turn.context_ids + completion.token_ids
        self.mask += [False] * context
        self.mask += [completion.trained and not forced for forced in completion.forced]
        self.logprobs += [0.0] * context + list(completion.logprobs)
        self.advantages += [advantage] * total
        self.turn_index += [index] * total
        self.allowed += [None] * context + list(completion.allowed)

    def sample(self, group_id: str, episode: int, prefix_length: int) -> TrainingSample:
        return TrainingSample(
            ids=np.array(self.ids, dtype=np.int64),
            mask=np.array(self.mask, dtype=np.bool_),
            logprobs=np.array(self.logprobs, dtype=np.float32),
            advantages=np.array(self.advantages, dtype=np.float32),
            turn_index=np.array(self.turn_index, dtype=np.int32),
            allowed=tuple(self.allowed),
            group_id=group_id,
            episode=episode,
            prefix_length=prefix_length,
        )


@dataclass(frozen=True, slots=True)
class Constraints:
    """What the first C draws of a micro-batch could have been.

    Draws that shared a set of allowed ids share a line of `table`.
    """

    table: Tensor  # int64 [U, A]: the different sets of allowed ids, padded with -1
    line_C: Tensor  # int64: the line of each draw
    target_C: Tensor  # int64: where in its line the drawn id stands


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One forward and backward pass: the prefix tree of some rows.

    A draw is a context, an id that was drawn in it, and what else could have been drawn. Rows that
    have a draw in common have it scored once; each has its own trained token, with its own
    advantage and weight. Draws are ordered by context, trained tokens by draw.
    """

    ids_T: Tensor  # int64
    positions_T: Tensor  # int64: position of each id in its own row
    layout: PackedLayout
    context_D: Tensor  # int64: the packed position whose logits give the draw, its t-1
    targets_D: Tensor  # int64
    row_D: Tensor  # int64: one of the rows that have the draw, as in `rows`
    constraints: Constraints | None  # of the first C draws; the others are unconstrained
    draw_N: Tensor  # int64: the draw of each trained token
    behaviour_N: Tensor  # float32
    advantages_N: Tensor  # float32
    row_N: Tensor  # int64: the row's place in the list that was packed
    rows: list[int]  # the rows, by their ids
    num_new: int  # ids that no earlier micro-batch of the same `pack` has in the same place

    @property
    def logit_index_N(self) -> Tensor:
        """The packed position whose logits give each trained token."""
        return self.context_D[self.draw_N]

    @property
    def targets_N(self) -> Tensor:
        """The id of each trained token."""
        return self.targets_D[self.draw_N]

    def num_forwarded(self, packed: bool) -> int:
        """Positions that one forward pass takes; without packing a row brings its prefix along."""
        return len(self.ids_T) if packed else sum(self.layout.row_lengths)


@dataclass(frozen=True, slots=True)
class _Item:
    """A row without what follows its last trained id: nothing trained depends on it."""

    row: int
    sample: TrainingSample
    trained: NDArray[np.int64]  # positions of the trained ids

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids to forward: the last trained id itself is a target only."""
        return self.sample.ids[: self.trained[-1]]


def pack(
    samples: Sequence[TrainingSample], max_tokens: int, device: torch.device | str = "cpu"
) -> list[MicroBatch]:
    """Lay the rows out in micro-batches of at most `max_tokens` ids, without padding.

    Rows are sorted by their ids, so that rows with a common prefix (prompt, or prompt and turns)
    lie together, and cut where the fewest ids have to be repeated. A micro-batch holds every
    common prefix once. A row longer than `max_tokens` gets a micro-batch of its own. Rows that
    train nothing are left out. Deterministic, and the same for every order of `samples`.
    """
    items = [
        _Item(row, sample, np.flatnonzero(sample.mask))
        for row, sample in enumerate(samples)
        if sample.mask.any()
    ]
    order, common = sort_rows([item.ids for item in items])
    items = [items[at] for at in order]
    cuts = _cuts([len(item.ids) for item in items], common, max_tokens)
    return [
        _micro_batch(items[start:stop], common[start], torch.device(device))
        for start, stop in pairwise(cuts)
    ]


def _cuts(lengths: Sequence[int], common: Sequence[int], max_tokens: int) -> list[int]:
    """Cut sorted rows into parts within the budget: the fewest repeated ids, then fewest parts.

    A part that starts with row i repeats the `common[i]` ids that it shares with the row before.
    """
    best: list[tuple[int, int, int]] = [(0, 0, 0)]  # repeated ids, parts, start of the last part
    for stop in range(1, len(lengths) + 1):
        tokens, options = 0, []
        for start in reversed(range(stop)):
            if tokens + lengths[start] > max_tokens and start < stop - 1:
                break
            repeated, parts, _ = best[start]
            options.append((repeated + common[start], parts + 1, start))
            tokens += lengths[start] - common[start]
        best.append(min(options))
    cuts = [len(lengths)]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][2])
    return cuts[::-1]


def _micro_batch(items: list[_Item], repeated: int, device: torch.device) -> MicroBatch:
    tree = PrefixTree([item.ids for item in items])
    trained = {
        "context": np.concatenate([tree.index(i)[x.trained - 1] for i, x in enumerate(items)]),
        "target": np.concatenate([item.sample.ids[item.trained] for item in items]),
        "behaviour": np.concatenate([item.sample.logprobs[item.trained] for item in items]),
        "advantages": np.concatenate([item.sample.advantages[item.trained] for item in items]),
        "row": np.concatenate([np.full(len(item.trained), item.row) for item in items]),
    }
    sets, line = _allowed_sets(items)
    first, draw = _draws(trained["context"], trained["target"], line)
    order = np.argsort(draw, kind="stable")

    def put(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    contexts, targets = trained["context"][first], trained["target"][first]
    return MicroBatch(
        ids_T=put(tree.ids),
        positions_T=put(tree.positions),
        layout=PackedLayout(tree, device, put(np.unique(contexts))),
        context_D=put(contexts),
        targets_D=put(targets),
        row_D=put(trained["row"][first]),
        constraints=_constraints(sets, line[first], targets, put),
        draw_N=put(draw[order]),
        behaviour_N=put(trained["behaviour"][order]),
        advantages_N=put(trained["advantages"][order]),
        row_N=put(trained["row"][order]),
        rows=[item.row for item in items],
        num_new=len(tree) - repeated,
    )


def _allowed_sets(items: list[_Item]) -> tuple[list[tuple[int, ...]], NDArray[np.int64]]:
    """Return the different sets of allowed ids, and for each trained token its set (-1: none)."""
    sets: dict[tuple[int, ...], int] = {}
    lines = [
        -1 if allowed is None else sets.setdefault(allowed, len(sets))
        for item in items
        for allowed in map(item.sample.allowed.__getitem__, item.trained.tolist())
    ]
    return list(sets), np.array(lines, dtype=np.int64)


def _draws(
    context: NDArray[np.int64], target: NDArray[np.int64], line: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each different draw one of its tokens, and for each token its draw.

    Draws under a constraint come first, then by context, id and constraint.
    """
    key = (line < 0) * (context.max() + 1) + context
    key = (key * (target.max() + 1) + target) * (line.max() + 2) + line + 1
    _, first, draw = np.unique(key, return_index=True, return_inverse=True)
    return first, draw


def _constraints(
    sets: list[tuple[int, ...]],
    line_D: NDArray[np.int64],
    targets_D: NDArray[np.int64],
    put: Callable[[NDArray[np.generic]], Tensor],
) -> Constraints | None:
    if not sets:
        return None
    widest = max(map(len, sets))
    table = np.array([[*ids] + [-1] * (widest - len(ids)) for ids in sets], dtype=np.int64)
    line_C = line_D[line_D >= 0]
    hits = table[line_C] == targets_D[: len(line_C), None]
    if not hits.any(axis=1).all():
        raise ValueError("a drawn id is not among the ids that its constraint allowed")
    return Constraints(put(table), put(line_C), put(hits.argmax(1)))
