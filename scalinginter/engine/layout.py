"""Attention of a packed forward pass over the slots of the KV cache (shape legend: `slots`)."""

import numpy as np
import torch
from numpy.typing import NDArray

from scalinginter.engine.buckets import cut, make_bucket, rows_of
from scalinginter.engine.slot_attention import attend_bucket, attend_long
from scalinginter.engine.slots import Round, SlotCache

_LONG = 64  # query tokens above which a row has a call of its own


class SlotLayout:
    """`AttentionLayout` of a round: writes new keys and values, then attends slot by slot."""

    def __init__(
        self,
        cache: SlotCache,
        plan: Round,
        device: torch.device,
        outputs: torch.Tensor | None = None,
    ) -> None:
        self.outputs = outputs
        self._cache = cache
        self._device = device
        shared = len(plan.write_rows) > len(plan.ids)
        self._sources = self._tensor(plan.write_rows) if shared else None
        self._write_at = self._places(plan)
        rows = rows_of(plan)
        long = rows[:, 2] > _LONG
        self._long = rows[long].tolist()
        on_cpu = device.type == "cpu"  # elsewhere a call costs more than a copy
        size = cache.bytes_per_position
        self._buckets = [
            make_bucket(*part, plan.common if on_cpu else [], size, self._tensor)
            for part in cut(rows[~long], size, may_split=on_cpu)
        ]
        in_order = len(self._buckets) == 1 and not self._long and self._buckets[0].keep is None
        self._in_order = in_order and bool((np.diff(rows[:, 3]) > 0).all())

    def _tensor(self, values: list[int] | NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(self._device)

    def _places(self, plan: Round) -> tuple[slice, int] | tuple[torch.Tensor, torch.Tensor]:
        """Slots and positions that are written: neighbours at one position, or any."""
        slots, positions = plan.write_slots, plan.write_positions
        first, last = slots[0], slots[-1] + 1
        if slots == list(range(first, last)) and positions.count(positions[0]) == len(positions):
            return slice(first, last), positions[0]
        return self._tensor(slots), self._tensor(positions)

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
        if self._in_order:
            only = self._buckets[0]
            return attend_bucket(only, flat, keys, values, scaling, sliding_window)[None]
        output = query.new_empty((flat.shape[0], flat.shape[1], value.shape[3]))
        for bucket in self._buckets:
            queries = flat.index_select(0, bucket.queries)
            attended = attend_bucket(bucket, queries, keys, values, scaling, sliding_window)
            if bucket.keep is not None:
                attended = attended.index_select(0, bucket.keep)
            output.index_copy_(0, bucket.targets, attended)
        for slot, start, count, first in self._long:
            output[first : first + count] = attend_long(
                query[:, :, first : first + count],
                keys[slot : slot + 1, :, : start + count],
                values[slot : slot + 1, :, : start + count],
                scaling,
                sliding_window,
            )
        return output[None]

    def _write(self, store: torch.Tensor, new: torch.Tensor) -> None:
        """store [S, K, C, D], new [1, K, T, D]."""
        rows = new[0].transpose(0, 1)  # [T, K, D]
        if self._sources is not None:
            rows = rows.index_select(0, self._sources)
        slots, positions = self._write_at
        store[slots, :, positions] = rows
