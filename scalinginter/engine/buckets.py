"""Which rows of a round attend together, and how they read the cache (shape legend: `slots`)."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from scalinginter.engine.slots import Round

# Costs that choose how a bucket reads the cache, measured on a CPU at 100 to 1000 keys.
_BYTES_PER_US = 16e3  # reading keys and values once; copying them together costs as much again
_QUERY = 0.15  # a query token, over reading a slot's keys and values once
_CALL_US = 40.0  # a bucket of its own for one row
_COMMON_US = 80.0  # computing what rows have in common apart, and putting the parts together
_SCORES = 1 << 17  # scores of one head in one call: they should stay in the CPU's cache

Groups = list[tuple[list[int], int]]  # slots that start with the same tokens, and how many
ToDevice = Callable[[NDArray[np.int64]], torch.Tensor]


@dataclass(slots=True)
class Common:
    """Rows of a bucket that start with the same keys, by group: those keys are read once."""

    length: int  # keys that every row shares with the other rows of its group
    slots: torch.Tensor | slice  # [M] one slot of each group
    rows: torch.Tensor | None  # [M * R] rows of each group; padding repeats one. None: in order
    places: torch.Tensor | None  # [N] where in `rows` each row is


@dataclass(slots=True)
class Bucket:
    """Rows of similar query length, padded to the longest; indices for all layers."""

    slots: torch.Tensor | slice  # [N]; a slice reads the cache in place, a tensor copies it
    queries: torch.Tensor  # [N * Q] packed rows; padding repeats some token
    positions: torch.Tensor  # [N, Q] position of each query
    seen: int  # keys that every query sees, if no window hides them
    length: int  # L
    width: int  # Q
    keep: torch.Tensor | None  # [number of real queries] into N * Q; None: all are real
    targets: torch.Tensor  # [number of real queries] packed rows
    common: Common | None
    masks: dict[tuple[int | None, int, int], torch.Tensor] = field(default_factory=dict)

    def read(self, store: torch.Tensor, first: int = 0) -> torch.Tensor:
        """[S, K, C, D] -> [N, K, L - first, D]."""
        return take(store[:, :, first : self.length], self.slots)

    def mask(self, first: int, window: int | None, group: int, dtype: torch.dtype) -> torch.Tensor:
        """0 for the keys from `first` on that a query sees, else minus infinity.

        [N, 1, Q * G, L - first], made once per round. Floats, because a boolean mask is turned
        into them layer by layer.
        """
        if (window, group, first) not in self.masks:
            mask = make_mask(self.positions, first, self.length, window, dtype)
            mask = mask.repeat_interleave(group, dim=1) if group > 1 else mask
            self.masks[window, group, first] = mask[:, None]
        return self.masks[window, group, first]


def take(store: torch.Tensor, slots: torch.Tensor | slice) -> torch.Tensor:
    """Some slots of the cache: a view of it, or a copy."""
    return store[slots] if isinstance(slots, slice) else store.index_select(0, slots)


def make_mask(
    positions: torch.Tensor, first: int, length: int, window: int | None, dtype: torch.dtype
) -> torch.Tensor:
    """positions [N, Q] -> [N, Q, length - first]: 0 for keys up to the position (in the window)."""
    keys = torch.arange(first, length, device=positions.device)
    at = positions[:, :, None]
    hidden = keys > at
    if window is not None:
        hidden |= keys <= at - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return mask.masked_fill_(hidden, -torch.inf)


def make_bucket(
    rows: NDArray[np.int64],
    in_place: bool,
    common: Groups,
    bytes_per_position: int,
    to_device: ToDevice,
) -> Bucket:
    """`rows` [N, 4]: slot, first position, count, packed row; a count of 0 is left out."""
    slots, starts, counts, firsts = rows.T[:, :, None]
    width = int(counts.max())
    steps = np.minimum(np.arange(width), np.maximum(counts - 1, 0))
    queries = (firsts + steps).reshape(-1)
    real = (np.arange(width) < counts).reshape(-1)
    return Bucket(
        slots=slice(rows[0, 0], rows[-1, 0] + 1) if in_place else to_device(slots[:, 0]),
        queries=to_device(queries),
        positions=to_device(starts + steps),
        seen=int(starts[counts > 0].min()) + 1,
        length=int((starts + counts).max()),
        width=width,
        keep=None if real.all() else to_device(np.flatnonzero(real)),
        targets=to_device(queries[real]),
        common=_common(rows, common, bytes_per_position, to_device)
        if common and len(rows) > 1
        else None,
    )


def _common(
    rows: NDArray[np.int64], common: Groups, bytes_per_position: int, to_device: ToDevice
) -> Common | None:
    """What the rows of a bucket share, if every row shares and it is worth a call."""
    row_of = {slot: row for row, (slot, _, count, _) in enumerate(rows.tolist()) if count}
    groups = [([row_of[s] for s in slots if s in row_of], size) for slots, size in common]
    groups = [(members, size) for members, size in groups if members]
    if not groups or sum(len(members) for members, _ in groups) < len(row_of):
        return None
    length = min(size for _, size in groups)
    length = min(length, int(rows[list(row_of.values()), 1].min()))  # one key of its own left
    position_us = bytes_per_position / _BYTES_PER_US
    if (len(row_of) - len(groups)) * length * position_us <= _COMMON_US:
        return None
    widest = max(len(members) for members, _ in groups)
    table = np.array([m + m[-1:] * (widest - len(m)) for m, _ in groups], dtype=np.int64)
    places = np.zeros(len(rows), dtype=np.int64)
    places[table.reshape(-1)] = np.arange(table.size)
    in_order = np.array_equal(table.reshape(-1), np.arange(len(rows)))
    slots = rows[table[:, 0], 0]
    steps = np.unique(np.diff(slots))
    even = len(steps) == 1 and steps[0] > 0
    return Common(
        length=length,
        slots=slice(slots[0], slots[-1] + 1, steps[0]) if even else to_device(slots),
        rows=None if in_order else to_device(table.reshape(-1)),
        places=None if in_order else to_device(places),
    )


def rows_of(plan: Round) -> NDArray[np.int64]:
    """[N, 4] by slot: slot, first position, count, packed row."""
    rows = np.array(plan.rows, dtype=np.int64)
    firsts = np.cumsum(rows[:, 2]) - rows[:, 2]
    rows = np.concatenate((rows, firsts[:, None]), axis=1)
    return rows[np.argsort(rows[:, 0], kind="stable")]


def cut(
    rows: NDArray[np.int64], bytes_per_position: int, *, may_split: bool
) -> list[tuple[NDArray[np.int64], bool]]:
    """Cut rows into buckets of query length 1, up to 4, up to 16, up to 64, widest first.

    Each bucket is read in the cheapest of three ways. In place: every slot from its first to its
    last is computed, so narrower rows in between join it for nothing. Copied together. Or row by
    row (`may_split`), for rows whose keys and values are large.

    Args:
        rows: [N, 4] by slot: slot, first position, count, packed row.
        bytes_per_position: keys and values of one position of one slot, in one layer.

    Returns:
        the buckets, and whether each is read in place.
    """
    position_us = bytes_per_position / _BYTES_PER_US
    parts = []
    for least in (17, 5, 2, 1):
        wide = rows[:, 2] >= least
        if not wide.any():
            continue
        taken = rows[wide]
        first, last = taken[[0, -1], 0]
        inside = (rows[:, 0] >= first) & (rows[:, 0] <= last)
        ends, counts = taken[:, 1] + taken[:, 2], taken[:, 2]
        read = int(ends.max()) * position_us
        query = _QUERY * int(counts.max())
        joining = int(inside.sum()) - len(taken)
        in_place = read * ((last - first + 1) * (1 + query) - joining * (1 + _QUERY))
        copied = read * len(taken) * (2 + query)
        alone = (ends * (1 + _QUERY * counts)).sum() * position_us + _CALL_US * len(taken)
        if in_place <= copied and (in_place <= alone or not may_split):
            span = np.zeros((last - first + 1, 4), dtype=np.int64)
            span[:, 0] = np.arange(first, last + 1)
            span[rows[inside, 0] - first] = rows[inside]
            parts.append((span, True))
            wide = inside
        elif alone < copied and may_split:
            parts += [(row[None], True) for row in taken]
        else:
            parts.append((taken, False))
        rows = rows[~wide]
    if not may_split:
        return parts
    return [(piece, in_place) for part, in_place in parts for piece in _pieces(part)]


def _pieces(rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Cut a bucket so that the scores of a piece stay in the cache of a CPU."""
    width, length = int(rows[:, 2].max()), int((rows[:, 1] + rows[:, 2]).max())
    step = max(1, _SCORES // (width * length))
    return [rows[start : start + step] for start in range(0, len(rows), step)]
