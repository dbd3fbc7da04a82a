# ruff: noqa: N806, N815 (names end in the shape of the tensor)
"""From episodes to what one forward pass takes: trajectory -> rows -> packed micro-batches.

Shape suffixes: `_T` packed tokens of a micro-batch, `_N` its trained tokens, `_C` those of them
that were drawn under a constraint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scalinginter.train.packed import PackedLayout
from scalinginter.types import TrainingSample, Trajectory, Turn


def to_samples(
    trajectory: Trajectory, turn_advantages: NDArray[np.float32], episode: int
) -> list[TrainingSample]:
    """Return the training rows of one episode: one, and one more for every forked turn.

    A row is the ids exactly as they passed through the engine. Its mask is True where an id was
    drawn: context, environment text and forced ids are not trained. Rows that train nothing are
    left out, and so are all rows if `turn_advantages` is empty (the episode does not count).

    Args:
        trajectory: The episode.
        turn_advantages: [num_turns], or empty.
        episode: Position of the episode in the batch.

    Raises:
        ValueError: `turn_advantages` has another length than the turns.
    """
    if len(turn_advantages) == 0 or trajectory.stop.is_failure:
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
        self.mask += [False] * context + [not forced for forced in completion.forced]
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
    """What the first C trained tokens of a micro-batch could have been.

    Tokens that shared a set of allowed ids share a line of `table`.
    """

    table: Tensor  # int64 [U, A]: the different sets of allowed ids, padded with -1
    line_C: Tensor  # int64: the line of each token
    target_C: Tensor  # int64: where in its line the drawn id stands


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One forward and backward pass: rows laid end to end, shared prompts first and once."""

    ids_T: Tensor  # int64
    positions_T: Tensor  # int64: position of each id in its own row
    layout: PackedLayout
    logit_index_N: Tensor  # int64: the packed position whose logits give the token, its t-1
    targets_N: Tensor  # int64
    behaviour_N: Tensor  # float32
    advantages_N: Tensor  # float32
    row_N: Tensor  # int64: the row's place in the list that was packed
    rows: list[int]  # the rows in packed order
    constraints: Constraints | None  # of the first C tokens; the others are unconstrained

    def num_forwarded(self, packed: bool) -> int:
        """Positions that one forward pass takes; without packing a row brings its prompt along."""
        return len(self.ids_T) if packed else sum(self.layout.row_lengths)


@dataclass(frozen=True, slots=True)
class _Item:
    """A row without what follows its last trained id: nothing trained depends on it."""

    row: int
    sample: TrainingSample
    trained: NDArray[np.int64]  # positions of the trained ids
    length: int  # ids to forward: the last trained id itself is a target only
    prefix: bytes  # the shared prompt, empty if there is none

    @property
    def prefix_length(self) -> int:
        return self.sample.prefix_length


def pack(
    samples: Sequence[TrainingSample], max_tokens: int, device: torch.device | str = "cpu"
) -> list[MicroBatch]:
    """Lay the rows out in micro-batches of at most `max_tokens` ids, without padding.

    Rows with the same prompt (`prefix_length` leading ids) come together, in the order of their
    first one, and store the prompt once per micro-batch. A row longer than `max_tokens` gets a
    micro-batch of its own. Rows that train nothing are left out. Deterministic.
    """
    items = [_item(row, sample) for row, sample in enumerate(samples) if sample.mask.any()]
    first: dict[bytes, int] = {}
    for item in items:
        first.setdefault(item.prefix or item.row.to_bytes(8), item.row)
    items.sort(key=lambda item: (first[item.prefix or item.row.to_bytes(8)], item.row))
    batches: list[list[_Item]] = []
    prefixes: set[bytes] = set()
    tokens = 0
    for item in items:
        cost = item.length - (item.prefix_length if item.prefix in prefixes else 0)
        if not batches or tokens + cost > max_tokens:
            batches.append([])
            prefixes, tokens, cost = set(), 0, item.length
        batches[-1].append(item)
        tokens += cost
        if item.prefix:
            prefixes.add(item.prefix)
    return [_micro_batch(batch, torch.device(device)) for batch in batches]


def _item(row: int, sample: TrainingSample) -> _Item:
    trained = np.flatnonzero(sample.mask)
    prefix = sample.ids[: sample.prefix_length].tobytes()
    return _Item(row, sample, trained, int(trained[-1]), prefix)


def _micro_batch(items: list[_Item], device: torch.device) -> MicroBatch:
    prefixes: dict[bytes, int] = {}  # -> number of the prefix
    ids, positions, prefix_lengths = [], [], []
    for item in items:
        if item.prefix and item.prefix not in prefixes:
            prefixes[item.prefix] = len(prefixes)
            prefix_lengths.append(item.prefix_length)
            ids.append(item.sample.ids[: item.prefix_length])
            positions.append(np.arange(item.prefix_length))
    prefix_starts = np.concatenate([[0], np.cumsum(prefix_lengths)]).astype(np.int64)
    offset = int(prefix_starts[-1])
    rows, logit_index = [], []
    for item in items:
        shared = item.prefix_length
        number = prefixes.get(item.prefix, -1)
        ids.append(item.sample.ids[shared : item.length])
        positions.append(np.arange(shared, item.length))
        rows.append((number, item.length - shared))
        before = item.trained - 1
        in_prefix = before < shared
        start = int(prefix_starts[number]) if number >= 0 else 0
        logit_index.append(np.where(in_prefix, start + before, offset + before - shared))
        offset += item.length - shared
    tokens = _trained_tokens(items, np.concatenate(logit_index))
    constraints, order = _constraints(items, tokens["targets_N"])
    outputs = torch.from_numpy(np.unique(tokens["logit_index_N"]).astype(np.int64)).to(device)
    return MicroBatch(
        ids_T=torch.from_numpy(np.concatenate(ids)).to(device),
        positions_T=torch.from_numpy(np.concatenate(positions)).to(device),
        layout=PackedLayout(prefix_lengths, rows, device, outputs),
        rows=[item.row for item in items],
        constraints=constraints and constraints_to(constraints, device),
        **{name: torch.from_numpy(array[order]).to(device) for name, array in tokens.items()},
    )


def _trained_tokens(
    items: list[_Item], logit_index: NDArray[np.int64]
) -> dict[str, NDArray[np.generic]]:
    return {
        "logit_index_N": logit_index,
        "targets_N": np.concatenate([item.sample.ids[item.trained] for item in items]),
        "behaviour_N": np.concatenate([item.sample.logprobs[item.trained] for item in items]),
        "advantages_N": np.concatenate([item.sample.advantages[item.trained] for item in items]),
        "row_N": np.concatenate([np.full(len(item.trained), item.row) for item in items]),
    }


def constraints_to(constraints: Constraints, device: torch.device) -> Constraints:
    return Constraints(
        constraints.table.to(device), constraints.line_C.to(device), constraints.target_C.to(device)
    )


def _constraints(
    items: list[_Item], targets: NDArray[np.generic]
) -> tuple[Constraints | None, NDArray[np.int64]]:
    """Return the allowed sets, and the order of the tokens that puts constrained ones first."""
    sets: dict[tuple[int, ...], int] = {}
    lines = np.array(
        [
            -1 if allowed is None else sets.setdefault(allowed, len(sets))
            for item in items
            for allowed in map(item.sample.allowed.__getitem__, item.trained.tolist())
        ],
        dtype=np.int64,
    )
    order = np.argsort(lines < 0, kind="stable")
    if not sets:
        return None, order
    widest = max(map(len, sets))
    table = np.array([[*ids] + [-1] * (widest - len(ids)) for ids in sets], dtype=np.int64)
    lines_C = lines[order][lines[order] >= 0]
    hits = table[lines_C] == targets[order][: len(lines_C), None]
    if not hits.any(axis=1).all():
        raise ValueError("a drawn id is not among the ids that its constraint allowed")
    return (
        Constraints(
            torch.from_numpy(table), torch.from_numpy(lines_C), torch.from_numpy(hits.argmax(1))
        ),
        order,
    )
