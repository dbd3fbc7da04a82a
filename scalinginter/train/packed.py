# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""Attention over packed rows: what the rows of a training micro-batch see, and how fast.

A micro-batch is one packed row [1, T]: shared prompts first, then what each row adds to its
prompt. Linear layers and norms run on it as it is, without padding. Only attention needs the rows
apart: span by span, or gathered into buckets and padded on the right there. Under a causal mask
nothing sees padding on its right, so that no mask is needed.
Shape suffixes: `_T` packed tokens, `_S` slots of all buckets.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scalinginter.train.spans import Spans, attend_in_spans, can_attend_in_spans

BUCKET_FILL = 0.9  # a row shorter than this share of its bucket's longest opens a new bucket


class PackedLayout:
    """Implements `AttentionLayout` for rows that share prompts.

    On a CPU each row attends where it lies (`spans`). Elsewhere, and with a sliding window, rows
    are gathered, prompt and continuation, into a few buckets of similar length.

    Args:
        prefix_lengths: Lengths of the shared prompts, in packed order.
        rows: Per row, in packed order: the number of its prompt (-1: none), and how many ids of
            its own follow.
        device: Where the index tensors live.
        outputs: Packed tokens whose last hidden state is looked at; None: all.
    """

    def __init__(
        self,
        prefix_lengths: Sequence[int],
        rows: Sequence[tuple[int, int]],
        device: torch.device | str = "cpu",
        outputs: Tensor | None = None,
    ) -> None:
        self.outputs = outputs
        self._prefix_lengths, self._rows, self._device = prefix_lengths, rows, device
        starts = list(accumulate([*prefix_lengths, *(n for _, n in rows)], initial=0))
        lengths = [n + (prefix_lengths[p] if p >= 0 else 0) for p, n in rows]
        self.row_lengths: list[int] = lengths
        prompts = [_span(start, n) for start, n in zip(starts, prefix_lengths, strict=False)]
        own = [_span(start, n) for (_, n), start in zip(rows, starts[len(prompts) :], strict=False)]
        self.spans = [  # per row: where its prompt and its own ids are
            (prompts[p] if p >= 0 else slice(0), at) for (p, _), at in zip(rows, own, strict=True)
        ]
        self._parts = Spans.of(prompts, [(p, at) for (p, _), at in zip(rows, own, strict=True)])
        self._buckets: _Buckets | None = None

    @property
    def num_slots(self) -> int:
        """Places that attention was computed for."""
        return self._buckets.num_slots if self._buckets else sum(self.row_lengths)

    @property
    def num_padding(self) -> int:
        """Those of them that hold nothing."""
        return self.num_slots - sum(self.row_lengths)

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scaling: float,
        sliding_window: int | None,
    ) -> Tensor:
        """Attend. query [1, H, T, D]; key, value [1, Hkv, T, D]; returns [1, T, H, D]."""
        query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
        all_seen = sliding_window is None or sliding_window >= max(self.row_lengths)
        if all_seen and can_attend_in_spans(query, value):
            return attend_in_spans(query, key, value, self._parts, scaling)[None]
        if self._buckets is None:
            self._buckets = _Buckets(self._prefix_lengths, self._rows, self._device)
        return self._buckets.attend(query, key, value, scaling, sliding_window)[None]


class _Buckets:
    """Rows of similar length, padded on the right to the longest of their bucket."""

    def __init__(
        self,
        prefix_lengths: Sequence[int],
        rows: Sequence[tuple[int, int]],
        device: torch.device | str,
    ) -> None:
        prefix_starts = np.concatenate([[0], np.cumsum(prefix_lengths)]).astype(np.int64)
        suffixes = np.array([length for _, length in rows], dtype=np.int64)
        suffix_starts = prefix_starts[-1] + np.concatenate([[0], np.cumsum(suffixes)])
        lengths = suffixes + [prefix_lengths[p] if p >= 0 else 0 for p, _ in rows]
        order = np.argsort(-lengths, kind="stable")
        self.sizes = _cut(lengths[order])
        slots = np.zeros(sum(b * length for b, length in self.sizes), dtype=np.int64)
        owner = np.zeros(int(suffix_starts[-1]), dtype=np.int64)
        copies: list[list[int]] = [[] for _ in prefix_lengths]  # slots where each prompt starts
        rank, offset = 0, 0
        for size, longest in self.sizes:
            for row in order[rank : rank + size]:
                prefix, suffix = rows[row]
                at = offset
                if prefix >= 0:
                    length = prefix_lengths[prefix]
                    slots[at : at + length] = np.arange(length) + prefix_starts[prefix]
                    copies[prefix].append(at)
                    at += length
                start = suffix_starts[row]
                slots[at : at + suffix] = np.arange(start, start + suffix)
                owner[start : start + suffix] = np.arange(at, at + suffix)
                offset += longest
            rank += size
        extras: list[tuple[int, int, Tensor]] = []
        for prefix, starts in enumerate(copies):
            span = np.arange(prefix_lengths[prefix])
            begin = int(prefix_starts[prefix])
            owner[begin : begin + len(span)] = starts[0] + span
            if len(starts) > 1:
                spare = (np.array(starts[1:])[:, None] + span).reshape(-1)
                extras.append((begin, len(span), torch.from_numpy(spare).to(device)))
        self._slots_S = torch.from_numpy(slots).to(device)
        self._owner_T = torch.from_numpy(owner).to(device)
        self._extras = extras
        self.num_slots = len(slots)

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


def _span(start: int, length: int) -> slice:
    return slice(start, start + length)


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
    """Packed tokens -> slots. A prompt goes to the slots of every row that shares it.

    The gradient is gathered, not scattered: each packed token has one slot of its own, and
    prompts add those of their copies. Padding slots hold token 0 and get no gradient.
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
    """Slots -> packed tokens; the other slots (padding, copies of prompts) get gradient 0."""

    @staticmethod
    def forward(ctx: Any, slots_S: Tensor, owner_T: Tensor) -> Tensor:
        ctx.owner_T, ctx.num_slots = owner_T, len(slots_S)
        return slots_S.index_select(0, owner_T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient_T,) = gradients
        gradient_S = gradient_T.new_zeros(ctx.num_slots, *gradient_T.shape[1:])
        return gradient_S.index_copy_(0, ctx.owner_T, gradient_T), None
