"""The KV cache and what a packed forward pass attends to in it.

Shape legend: S slots, C capacity, H query heads, K key/value heads, G = H / K, D head size,
T packed tokens of a round, N rows of a bucket, Q query tokens of a row (padded), L keys read.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

_FIRST_CAPACITY = 64


class SlotCache:
    """Keys and values per layer, `[S, K, C, D]`; grows by doubling, contents kept."""

    def __init__(self) -> None:
        self.keys: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}
        self.num_slots = 0
        self.capacity = 0

    def ensure(self, num_slots: int, capacity: int) -> None:
        """Make room for so many slots of so many positions."""
        if num_slots <= self.num_slots and capacity <= self.capacity:
            return
        self.num_slots = _doubled(max(self.num_slots, 1), num_slots)
        self.capacity = _doubled(max(self.capacity, _FIRST_CAPACITY), capacity)
        for store in (self.keys, self.values):
            for layer, old in store.items():
                store[layer] = self._grown(old)

    def layer(
        self, layer: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The tensors of a layer, made in the shape of what is about to be written."""
        if layer not in self.keys:
            self.keys[layer] = self._new(key)
            self.values[layer] = self._new(value)
        return self.keys[layer], self.values[layer]

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        """Copy positions [start, end) of one slot to another, in every layer."""
        for store in (self.keys, self.values):
            for tensor in store.values():
                tensor[target, :, start:end] = tensor[source, :, start:end]

    def drop(self) -> None:
        """Give the memory back; what was cached is gone."""
        self.keys.clear()
        self.values.clear()
        self.num_slots = self.capacity = 0

    def _new(self, like: torch.Tensor) -> torch.Tensor:
        # Zeros: a masked key has weight 0, and 0 times an uninitialised NaN would be NaN.
        shape = (self.num_slots, like.shape[1], self.capacity, like.shape[3])
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def _grown(self, old: torch.Tensor) -> torch.Tensor:
        new = torch.zeros(
            (self.num_slots, old.shape[1], self.capacity, old.shape[3]),
            dtype=old.dtype,
            device=old.device,
        )
        new[: old.shape[0], :, : old.shape[2]] = old
        return new


def _doubled(value: int, least: int) -> int:
    while value < least:
        value *= 2
    return value


@dataclass(slots=True)
class Round:
    """One forward pass, put together on the host. Lists, so that a round costs few allocations."""

    ids: list[int] = field(default_factory=list)  # [T]
    positions: list[int] = field(default_factory=list)  # [T]
    rows: list[tuple[int, int, int]] = field(default_factory=list)  # slot, first position, count
    write_slots: list[int] = field(default_factory=list)  # [W] where keys and values go, W >= T
    write_positions: list[int] = field(default_factory=list)  # [W]
    write_rows: list[int] = field(default_factory=list)  # [W] packed row that each comes from

    def add(self, slot: int, start: int, ids: list[int]) -> None:
        """Forward `ids` at positions `start`, `start` + 1, ... of a slot."""
        first, count = len(self.ids), len(ids)
        self.rows.append((slot, start, count))
        self.ids += ids
        self.positions += range(start, start + count)
        self.share(slot, start, first, count)

    def share(self, slot: int, start: int, row: int, count: int) -> None:
        """Write keys and values of packed rows `row`, `row` + 1, ... to a slot as well."""
        self.write_slots += [slot] * count
        self.write_positions += range(start, start + count)
        self.write_rows += range(row, row + count)


@dataclass(slots=True)
class _Bucket:
    """Rows of similar query length, padded to the longest; indices for all layers."""

    slots: torch.Tensor | slice  # [N]
    queries: torch.Tensor  # [N * Q] packed rows; padding repeats a row's last token
    positions: torch.Tensor  # [N, Q] position of each query
    length: int  # L
    width: int  # Q
    keep: torch.Tensor | None  # [number of real queries] into N * Q; None: all are real
    targets: torch.Tensor  # [number of real queries] packed rows
    masks: dict[tuple[int | None, int], torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, group: int) -> torch.Tensor:
        """Which keys each query sees, [N, 1, Q * G, L]; made once per round."""
        if (window, group) not in self.masks:
            keys = torch.arange(self.length, device=self.positions.device)
            at = self.positions[:, :, None]
            seen = keys <= at
            if window is not None:
                seen &= keys > at - window
            seen = seen.repeat_interleave(group, dim=1) if group > 1 else seen
            self.masks[window, group] = seen[:, None]
        return self.masks[window, group]


class SlotLayout:
    """`AttentionLayout` of a round: writes new keys and values, then attends slot by slot."""

    def __init__(self, cache: SlotCache, plan: Round, device: torch.device) -> None:
        self._cache = cache
        self._device = device
        self._write_rows = (
            None if len(plan.write_rows) == len(plan.ids) else self._tensor(plan.write_rows)
        )
        self._write_slots = self._tensor(plan.write_slots)
        self._write_positions = self._tensor(plan.write_positions)
        self._buckets = [self._bucket(rows) for rows in _by_length(plan.rows)]

    def _tensor(self, values: list[int] | np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.asarray(values, dtype=np.int64)).to(self._device)

    def _bucket(self, rows: list[tuple[int, int, int, int]]) -> _Bucket:
        table = np.array(rows, dtype=np.int64)  # slot, first position, count, packed row
        slots, starts, counts, firsts = table.T
        width = int(counts.max())
        steps = np.minimum(np.arange(width), counts[:, None] - 1)
        queries = (firsts[:, None] + steps).reshape(-1)
        real = (np.arange(width) < counts[:, None]).reshape(-1)
        padded = not bool(real.all())
        return _Bucket(
            slots=self._tensor(slots),
            queries=self._tensor(queries),
            positions=self._tensor(starts[:, None] + steps),
            length=int((starts + counts).max()),
            width=width,
            keep=self._tensor(np.flatnonzero(real)) if padded else None,
            targets=self._tensor(queries[real]),
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
        output = torch.empty(
            (flat.shape[0], flat.shape[1], value.shape[3]), dtype=query.dtype, device=query.device
        )
        for bucket in self._buckets:
            k, v = keys[bucket.slots], values[bucket.slots]
            attended = _attend(
                bucket,
                flat[bucket.queries],
                k[:, :, : bucket.length],
                v[:, :, : bucket.length],
                scaling,
                sliding_window,
            )
            output[bucket.targets] = attended if bucket.keep is None else attended[bucket.keep]
        return output[None]

    def _write(self, store: torch.Tensor, new: torch.Tensor) -> None:
        rows = new[0].transpose(0, 1)  # [T, K, D]
        if self._write_rows is not None:
            rows = rows[self._write_rows]
        store[self._write_slots, :, self._write_positions] = rows


def _attend(
    bucket: _Bucket,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scaling: float,
    window: int | None,
) -> torch.Tensor:
    """query [N * Q, H, D], keys and values [N, K, L, D] -> [N * Q, H, D].

    The G query heads that share a key head are folded into the query length, so that keys are
    read once and never repeated.
    """
    num, heads, length, size = keys.shape
    group = query.shape[1] // heads
    folded = query.view(num, bucket.width, heads, group, query.shape[2])
    folded = folded.transpose(1, 2).reshape(num, heads, bucket.width * group, query.shape[2])
    out = F.scaled_dot_product_attention(
        folded, keys, values, attn_mask=bucket.mask(window, group), scale=scaling
    )
    out = out.view(num, heads, bucket.width, group, values.shape[3]).transpose(1, 2)
    return out.reshape(num * bucket.width, heads * group, values.shape[3])


def _by_length(rows: list[tuple[int, int, int]]) -> list[list[tuple[int, int, int, int]]]:
    """Rows in buckets of query length 1, up to 4, 16, 64, ...: bounded padding."""
    buckets: dict[int, list[tuple[int, int, int, int]]] = {}
    first = 0
    for slot, start, count in rows:
        level = 0 if count == 1 else ((count - 1).bit_length() + 1) // 2
        buckets.setdefault(level, []).append((slot, start, count, first))
        first += count
    return [buckets[level] for level in sorted(buckets)]
