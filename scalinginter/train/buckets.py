# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""Attention of packed rows gathered into padded buckets: for devices and windows without better.

Rows of similar length are padded on the right to the longest of their bucket. Under a causal mask
nothing sees padding on its right, so that no mask is needed.
Shape suffixes: `_T` packed tokens, `_S` slots of all buckets.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scalinginter.train.trie import PrefixTree

BUCKET_FILL = 0.95  # a row shorter than this share of its bucket's longest opens a new bucket


class Buckets:
    """Rows of similar length, padded on the right to the longest of their bucket."""

    def __init__(self, tree: PrefixTree, device: torch.device | str) -> None:
        lengths = np.array(tree.lengths, dtype=np.int64)
        order = np.argsort(-lengths, kind="stable")
        self.sizes = _cut(lengths[order])
        slots = np.zeros(sum(b * length for b, length in self.sizes), dtype=np.int64)
        owner = np.full(len(tree), -1, dtype=np.int64)
        copies: dict[tuple[int, int], list[int]] = {}  # span of packed ids -> further slots
        rank, offset = 0, 0
        for size, longest in self.sizes:
            for row in order[rank : rank + size].tolist():
                at = offset
                for span in tree.path(row):
                    length = span.stop - span.start
                    slots[at : at + length] = np.arange(span.start, span.stop)
                    if owner[span.start] < 0:  # rows come longest first: the first has all of it
                        owner[span] = np.arange(at, at + length)
                    else:
                        copies.setdefault((span.start, length), []).append(at)
                    at += length
                offset += longest
            rank += size
        self._extras = [
            (start, length, torch.from_numpy(_spread(at, length)).to(device))
            for (start, length), at in copies.items()
        ]
        self._slots_S = torch.from_numpy(slots).to(device)
        self._owner_T = torch.from_numpy(owner).to(device)
        self.num_slots = len(slots)
        self.num_padding = len(slots) - int(lengths.sum())

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int | None
    ) -> Tensor:
        """query [T, H, D]; key, value [T, Hkv, D]; returns [T, H, D]."""
        spread = [self._spread(states) for states in (query, key, value)]
        sizes = [size * length for size, length in self.sizes]
        attended = []
        for (size, length), *flat in zip(
            self.sizes, *(x.split(sizes) for x in spread), strict=True
        ):
            q, k, v = (x.view(size, length, *x.shape[1:]).transpose(1, 2) for x in flat)
            out = _causal(q, k, v, scaling, window)
            attended.append(out.transpose(1, 2).reshape(size * length, *q.shape[1::2]))
        return _Collect.apply(torch.cat(attended), self._owner_T)  # type: ignore[return-value]

    def _spread(self, rows_T: Tensor) -> Tensor:
        """[T, H, D] -> [S, H, D]."""
        return _Spread.apply(rows_T.contiguous(), self._slots_S, self._owner_T, self._extras)  # type: ignore


def _spread(starts: list[int], length: int) -> np.ndarray:
    return (np.array(starts)[:, None] + np.arange(length)).reshape(-1)


def _cut(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Cut descending lengths into buckets: (rows, longest) each."""
    buckets: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or lengths[end] < BUCKET_FILL * lengths[start]:
            buckets.append((end - start, int(lengths[start])))
            start = end
    return buckets


def _causal(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, sliding_window: int | None
) -> Tensor:
    """Causal attention, [B, H, L, D] each; query i sees keys i - sliding_window + 1 to i."""
    length = query.shape[2]
    if key.shape[1] != query.shape[1]:
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    if sliding_window is None or sliding_window >= length:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    position = torch.arange(length, device=query.device)
    distance = position[:, None] - position[None, :]
    seen = (distance >= 0) & (distance < sliding_window)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scaling)


class _Spread(torch.autograd.Function):
    """Packed tokens -> slots. A prefix goes to the slots of every row that shares it.

    The gradient is gathered, not scattered: each packed token has one slot of its own, and
    prefixes add those of their copies. Padding slots hold token 0 and get no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows_T: Tensor,
        slots_S: Tensor,
        owner_T: Tensor,
        extras: list[tuple[int, int, Tensor]],
    ) -> Tensor:
        ctx.owner_T, ctx.extras = owner_T, extras
        return rows_T.index_select(0, slots_S)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient_S,) = gradients
        gradient_T = gradient_S.index_select(0, ctx.owner_T)
        for start, length, spare in ctx.extras:
            copies = gradient_S.index_select(0, spare)
            gradient_T[start : start + length] += copies.view(-1, length, *copies.shape[1:]).sum(0)
        return gradient_T, None, None, None


class _Collect(torch.autograd.Function):
    """Slots -> packed tokens; the other slots (padding, copies of prefixes) get gradient 0."""

    @staticmethod
    def forward(ctx: Any, slots_S: Tensor, owner_T: Tensor) -> Tensor:
        ctx.owner_T, ctx.num_slots = owner_T, len(slots_S)
        return slots_S.index_select(0, owner_T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient_T,) = gradients
        gradient_S = gradient_T.new_zeros(ctx.num_slots, *gradient_T.shape[1:])
        return gradient_S.index_copy_(0, ctx.owner_T, gradient_T), None
