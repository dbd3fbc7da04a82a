"""Attention of a packed forward pass over the slots of the KV cache (shape legend: `slots`)."""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from scalinginter.engine.slots import Round, SlotCache

_LONG = 64  # query tokens above which a row has a call of its own
# Costs that choose how a bucket reads the cache, measured on a CPU at 100 to 1000 keys.
_BYTES_PER_US = 16e3  # reading keys and values once; copying them together costs as much again
_QUERY = 0.15  # a query token, over reading a slot's keys and values once
_CALL_US = 40.0  # a bucket of its own for one row
_COMMON_US = 80.0  # computing what rows have in common apart, and putting the parts together

# Attention with the log-sum of its scores as a second result, which torch has for CPUs.
_WITH_NORMALISER = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)


@dataclass(slots=True)
class _Common:
    """Rows of a bucket that start with the same keys, by group: those keys are read once."""

    length: int  # keys that every row shares with the other rows of its group
    slots: torch.Tensor | slice  # [M] one slot of each group
    rows: torch.Tensor  # [M * R] rows of each group; padding repeats one
    places: torch.Tensor  # [N] where in `rows` each row is


@dataclass(slots=True)
class _Bucket:
    """Rows of similar query length, padded to the longest; indices for all layers."""

    slots: torch.Tensor | slice  # [N]; a slice reads the cache in place, a tensor copies it
    queries: torch.Tensor  # [N * Q] packed rows; padding repeats some token
    positions: torch.Tensor  # [N, Q] position of each query
    length: int  # L
    width: int  # Q
    keep: torch.Tensor | None  # [number of real queries] into N * Q; None: all are real
    targets: torch.Tensor  # [number of real queries] packed rows
    common: _Common | None
    masks: dict[tuple[int | None, int], torch.Tensor] = field(default_factory=dict)

    def keys(self, store: torch.Tensor, first: int) -> torch.Tensor:
        """[S, K, C, D] -> [N, K, L - first, D]."""
        return _take(store[:, :, first : self.length], self.slots)

    def mask(self, window: int | None, group: int, dtype: torch.dtype) -> torch.Tensor:
        """0 for the keys that a query sees, else minus infinity: [N, 1, Q * G, L].

        Made once per round. Floats, because a boolean mask is turned into them layer by layer.
        """
        if (window, group) not in self.masks:
            mask = _mask(self.positions, self.length, window, dtype)
            mask = mask.repeat_interleave(group, dim=1) if group > 1 else mask
            self.masks[window, group] = mask[:, None]
        return self.masks[window, group]


class SlotLayout:
    """`AttentionLayout` of a round: writes new keys and values, then attends slot by slot."""

    def __init__(self, cache: SlotCache, plan: Round, device: torch.device) -> None:
        self._cache = cache
        self._device = device
        shared = len(plan.write_rows) > len(plan.ids)
        self._sources = self._tensor(plan.write_rows) if shared else None
        self._write_slots = np.array(plan.write_slots, dtype=np.int64)
        self._write_positions = np.array(plan.write_positions, dtype=np.int64)
        self._targets: dict[int, torch.Tensor] = {}
        rows = _rows(plan)
        long = rows[:, 2] > _LONG
        self._long = rows[long].tolist()
        parts = _parts(
            rows[~long],
            cache.bytes_per_position / _BYTES_PER_US,
            may_split=device.type == "cpu",  # elsewhere a call costs more than a copy
        )
        may_share = device.type == "cpu" and _WITH_NORMALISER is not None
        common = plan.common if may_share else []
        self._buckets = [self._bucket(*part, common) for part in parts]

    def _tensor(self, values: list[int] | NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(self._device)

    def _bucket(
        self, rows: NDArray[np.int64], in_place: bool, common: list[tuple[list[int], int]]
    ) -> _Bucket:
        """`rows` [N, 4]: slot, first position, count, packed row; a count of 0 is left out."""
        slots, starts, counts, firsts = rows.T[:, :, None]
        width = int(counts.max())
        steps = np.minimum(np.arange(width), np.maximum(counts - 1, 0))
        queries = (firsts + steps).reshape(-1)
        real = (np.arange(width) < counts).reshape(-1)
        return _Bucket(
            slots=slice(rows[0, 0], rows[-1, 0] + 1) if in_place else self._tensor(slots[:, 0]),
            queries=self._tensor(queries),
            positions=self._tensor(starts + steps),
            length=int((starts + counts).max()),
            width=width,
            keep=None if real.all() else self._tensor(np.flatnonzero(real)),
            targets=self._tensor(queries[real]),
            common=self._common(rows, common) if common and len(rows) > 1 else None,
        )

    def _common(
        self, rows: NDArray[np.int64], common: list[tuple[list[int], int]]
    ) -> _Common | None:
        """What the rows of a bucket share, if every row shares and it is worth a call."""
        row_of = {slot: row for row, (slot, _, count, _) in enumerate(rows.tolist()) if count}
        groups = [([row_of[s] for s in slots if s in row_of], size) for slots, size in common]
        groups = [(members, size) for members, size in groups if members]
        if not groups or sum(len(members) for members, _ in groups) < len(row_of):
            return None
        length = min(size for _, size in groups)
        length = min(length, int(rows[list(row_of.values()), 1].min()))  # one key of its own left
        position_us = self._cache.bytes_per_position / _BYTES_PER_US
        if (len(row_of) - len(groups)) * length * position_us <= _COMMON_US:
            return None
        widest = max(len(members) for members, _ in groups)
        table = np.array([m + m[-1:] * (widest - len(m)) for m, _ in groups], dtype=np.int64)
        places = np.zeros(len(rows), dtype=np.int64)
        places[table.reshape(-1)] = np.arange(table.size)
        slots = rows[table[:, 0], 0]
        steps = np.unique(np.diff(slots))
        even = len(steps) == 1 and steps[0] > 0
        return _Common(
            length=length,
            slots=slice(slots[0], slots[-1] + 1, steps[0]) if even else self._tensor(slots),
            rows=self._tensor(table.reshape(-1)),
            places=self._tensor(places),
        )

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        sliding_window: int | None,
    ) -> torch.Tensor:
        """See `AttentionLayout`: query [1, H, T, D], key and value [1, K, T, D] -> [1, T, H, D]."""
        keys, values = self._cache.layer(layer, key, value)
        self._write(keys, key)
        self._write(values, value)
        flat = query[0].transpose(0, 1)  # [T, H, D]
        output = query.new_empty((flat.shape[0], flat.shape[1], value.shape[3]))
        for bucket in self._buckets:
            queries = flat.index_select(0, bucket.queries)
            attended = _attend(bucket, queries, keys, values, scaling, sliding_window)
            if bucket.keep is not None:
                attended = attended.index_select(0, bucket.keep)
            output.index_copy_(0, bucket.targets, attended)
        for slot, start, count, first in self._long:
            output[first : first + count] = _attend_long(
                query[:, :, first : first + count],
                keys[slot : slot + 1, :, : start + count],
                values[slot : slot + 1, :, : start + count],
                scaling,
                sliding_window,
            )
        return output[None]

    def _write(self, store: torch.Tensor, new: torch.Tensor) -> None:
        """store [S, K, C, D], new [1, K, T, D]."""
        _, heads, capacity, size = store.shape
        if heads not in self._targets:
            first = self._write_slots[:, None] * heads + np.arange(heads)
            at = first * capacity + self._write_positions[:, None]
            self._targets[heads] = self._tensor(at.reshape(-1))
        rows = new[0].transpose(0, 1)  # [T, K, D]
        if self._sources is not None:
            rows = rows.index_select(0, self._sources)
        store.view(-1, size).index_copy_(0, self._targets[heads], rows.reshape(-1, size))


def _attend(
    bucket: _Bucket,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scaling: float,
    window: int | None,
) -> torch.Tensor:
    """query [N * Q, H, D], keys and values [S, K, C, D] -> [N * Q, H, D].

    The G query heads that share a key head are folded into the query length, so that keys are
    read once and never repeated.
    """
    num, heads = len(bucket.positions), keys.shape[1]
    group = query.shape[1] // heads
    folded = query.view(num, bucket.width, heads, group, query.shape[2])
    folded = folded.transpose(1, 2).reshape(num, heads, bucket.width * group, query.shape[2])
    mask = bucket.mask(window, group, query.dtype)
    all_seen = window is None or window >= bucket.length
    if bucket.common and all_seen and _has_normaliser(query, values):
        out = _attend_common(bucket, bucket.common, folded, keys, values, mask, scaling)
    else:
        own = bucket.keys(keys, 0), bucket.keys(values, 0)
        out = F.scaled_dot_product_attention(folded, *own, attn_mask=mask, scale=scaling)
    out = out.view(num, heads, bucket.width, group, values.shape[3]).transpose(1, 2)
    return out.reshape(num * bucket.width, heads * group, values.shape[3])


def _attend_common(
    bucket: _Bucket,
    common: _Common,
    folded: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    """folded [N, K, QG, D] -> the same shape; what rows share is read once for all of them.

    The two parts are put together by their log-sums (Juravsky et al., Hydragen, arXiv 2402.05099,
    section 3.1).
    """
    first, (_, heads, width, size) = common.length, folded.shape
    own = bucket.keys(keys, first), bucket.keys(values, first)
    out, total = _with_normaliser(folded, *own, scaling, mask[..., first:])
    stacked = folded.index_select(0, common.rows)
    shared_keys = _take(keys[:, :, :first], common.slots)
    stacked = stacked.view(len(shared_keys), -1, heads, width, size).transpose(1, 2)
    shared = _with_normaliser(
        stacked.reshape(len(shared_keys), heads, -1, size),
        shared_keys,
        _take(values[:, :, :first], common.slots),
        scaling,
    )
    # [M, K, R * QG, ...] -> [N, K, QG, ...]
    other, its_total = (
        part.unflatten(2, (-1, width)).transpose(1, 2).flatten(0, 1).index_select(0, common.places)
        for part in shared
    )
    return out.lerp(other, torch.sigmoid(its_total - total)[..., None])


def _has_normaliser(query: torch.Tensor, values: torch.Tensor) -> bool:
    return query.dtype in (torch.float32, torch.float64) and query.shape[-1] == values.shape[-1]


def _with_normaliser(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scaling: float,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """[N, K, Q, D] each -> the attended values and the log-sum of the scores [N, K, Q]."""
    return _WITH_NORMALISER(query, keys, values, 0.0, False, attn_mask=mask, scale=scaling)  # type: ignore[misc]


def _take(store: torch.Tensor, slots: torch.Tensor | slice) -> torch.Tensor:
    return store[slots] if isinstance(slots, slice) else store.index_select(0, slots)


def _attend_long(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scaling: float,
    window: int | None,
) -> torch.Tensor:
    """One row: query [1, H, Q, D], keys and values [1, K, L, D] -> [Q, H, D]."""
    count, length = query.shape[2], keys.shape[2]
    causal = count == length and (window is None or window >= length)
    positions = torch.arange(length - count, length, device=query.device)[None]
    out = F.scaled_dot_product_attention(
        query,
        keys,
        values,
        attn_mask=None if causal else _mask(positions, length, window, query.dtype)[:, None],
        is_causal=causal,
        scale=scaling,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return out[0].transpose(0, 1)


def _mask(
    positions: torch.Tensor, length: int, window: int | None, dtype: torch.dtype
) -> torch.Tensor:
    """positions [N, Q] -> [N, Q, L]: 0 for keys up to the position (and in the window)."""
    keys = torch.arange(length, device=positions.device)
    at = positions[:, :, None]
    hidden = keys > at
    if window is not None:
        hidden |= keys <= at - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return mask.masked_fill_(hidden, -torch.inf)


def _rows(plan: Round) -> NDArray[np.int64]:
    """[N, 4] by slot: slot, first position, count, packed row."""
    rows = np.array(plan.rows, dtype=np.int64)
    firsts = np.cumsum(rows[:, 2]) - rows[:, 2]
    rows = np.concatenate((rows, firsts[:, None]), axis=1)
    return rows[np.argsort(rows[:, 0], kind="stable")]


def _parts(
    rows: NDArray[np.int64], position_us: float, *, may_split: bool
) -> list[tuple[NDArray[np.int64], bool]]:
    """Cut rows into buckets of query length 1, up to 4, up to 16, up to 64, widest first.

    Each bucket is read in the cheapest of three ways. In place: every slot from its first to its
    last is computed, so narrower rows in between join it for nothing. Copied together. Or row by
    row (`may_split`), for rows whose keys and values are large.

    Args:
        rows: [N, 4] by slot: slot, first position, count, packed row.
        position_us: time to read keys and values of one position.

    Returns:
        the buckets, and whether each is read in place.
    """
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
    return parts
