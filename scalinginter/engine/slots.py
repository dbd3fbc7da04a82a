"""The KV cache, and what one forward pass writes to it.

Shape legend: S slots, C capacity, H query heads, K key/value heads, G = H / K, D head size,
T packed tokens of a round, N rows of a bucket, Q query tokens of a row (padded), L keys read.
"""

from dataclasses import dataclass, field

import torch

_FIRST_CAPACITY = 64


def by_products(states: torch.Tensor) -> bool:
    """Whether these states attend by plain matrix products: fp32 and fp64 on a CPU."""
    return states.device.type == "cpu" and states.dtype in (torch.float32, torch.float64)


class SlotCache:
    """Keys and values per layer, `[S, K, C, D]`; grows by doubling, contents kept.

    Where attention is matrix products, keys lie in memory as `[S, K, D, C]`: the product with a
    few queries reads them faster.
    """

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
            self.keys[layer] = self._new(key, by_position=not by_products(key))
            self.values[layer] = self._new(value, by_position=True)
        return self.keys[layer], self.values[layer]

    @property
    def bytes_per_position(self) -> int:
        """Keys and values of one position of one slot in one layer; 0 before the first pass."""
        return sum(
            tensor.shape[1] * tensor.shape[3] * tensor.element_size()
            for store in (self.keys, self.values)
            for tensor in list(store.values())[:1]
        )

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

    def _new(self, like: torch.Tensor, by_position: bool) -> torch.Tensor:
        """Zeros: a masked key has weight 0, and 0 times an uninitialised NaN would be NaN."""
        heads, size = like.shape[1], like.shape[3]
        if by_position:
            return like.new_zeros(self.num_slots, heads, self.capacity, size)
        return like.new_zeros(self.num_slots, heads, size, self.capacity).transpose(2, 3)

    def _grown(self, old: torch.Tensor) -> torch.Tensor:
        new = self._new(old, by_position=old.stride(3) == 1)
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
    # Slots whose first positions hold the same, and how many these are. A slot is in one at most.
    common: list[tuple[list[int], int]] = field(default_factory=list)

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
