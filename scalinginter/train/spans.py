"""Attention over a prefix tree span by span, without padding, copies or repeated prefixes (CPU).

    chain 1   a a a a b b b c c    a segment, its first child, that one's first child and so on lie
    hanging   . . . . . . . d d    end to end: the chain attends to itself, causally, in one call;
    hanging   . . . . e e          what hangs from a segment of it by other children is one span,
                                   which attends to the chain up to that segment in one call

A segment's largest child comes first, so that an id is in at most log2(rows) + 1 chains. A long
chain is halved: each half attends to itself, and the second to the first. The kernel takes keys in
blocks of 512 and computes all of a block of which a query sees one key, so that a causal call costs
up to twice what it needs.
The parts are put together by their normalisers, as in ring attention (Liu et al.,
arXiv 2310.01889, section 3): with o1, o2 the outputs and l1, l2 the log-sums of the scores,
o = o2 + sigmoid(l1 - l2) (o1 - o2) and l = log(e^l1 + e^l2). The gradient needs no such merging:
given o and l of the whole, each part's gradients are exact and add up.

Shapes: query [T, H, D], key and value [T, K, D] with H a multiple of K.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scalinginter.train.trie import Segment

_FORWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_BACKWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)
# Ids that attend to themselves in one call. Of a chain of 688 with 8 heads of 32 it saves a fifth
# of the time; with 4 heads, over a whole update, no difference was measured.
_LONGEST = 384


@dataclass(frozen=True, slots=True)
class Spans:
    """Which packed tokens attend to which."""

    own: list[slice]  # chains, or parts of them: each attends to itself causally
    crossed: list[tuple[slice, slice]]  # ids, and earlier ones that all of them see as well

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> "Spans":
        """Find the chains of a tree; `segments` in packed order."""
        own: list[slice] = []
        crossed: list[tuple[slice, slice]] = []
        heads: list[int] = []  # per segment the packed id that its chain starts with
        for at, segment in enumerate(segments):
            is_first = at > 0 and segment.parent == at - 1
            heads.append(heads[-1] if is_first else segment.start)
            first_child = segments[at + 1] if segment.stop < segment.end else None
            if first_child is None:
                _halve(slice(heads[-1], segment.stop), own, crossed)
            elif first_child.end < segment.end:
                hanging = slice(first_child.end, segment.end)
                crossed.append((hanging, slice(heads[-1], segment.stop)))
        return cls(own, crossed)


def _halve(chain: slice, own: list[slice], crossed: list[tuple[slice, slice]]) -> None:
    """Add a chain in parts of at most `_LONGEST` ids."""
    length = chain.stop - chain.start
    if length <= _LONGEST:
        own.append(chain)
        return
    middle = chain.start + length // 2
    first, second = slice(chain.start, middle), slice(middle, chain.stop)
    _halve(first, own, crossed)
    _halve(second, own, crossed)
    crossed.append((second, first))


def can_attend_in_spans(query: Tensor, value: Tensor) -> bool:
    """Whether torch has the kernels for these tensors, with the normaliser as a result."""
    return (
        query.device.type == "cpu"
        and query.dtype in (torch.float32, torch.float64)
        and query.shape[-1] == value.shape[-1]
        and None not in (_FORWARD, _BACKWARD)
    )


def attend_in_spans(
    query: Tensor, key: Tensor, value: Tensor, spans: Spans, scaling: float
) -> Tensor:
    """Attend; returns [T, H, D]."""
    return _SpanAttention.apply(query, key, value, spans, scaling)  # type: ignore[return-value]


def _heads(states: Tensor, at: slice) -> Tensor:
    """[T, H, D] -> [1, H, tokens, D], not copied."""
    return states[at].transpose(0, 1)[None]


class _SpanAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, spans: Spans, scaling: float
    ) -> Tensor:
        out = torch.empty_like(query)
        total = query.new_empty(query.shape[:2])  # [T, H] log-sum of the scores

        def part(seen_by: slice, seen: slice, causal: bool) -> tuple[Tensor, Tensor]:
            states = _heads(query, seen_by), _heads(key, seen), _heads(value, seen)
            attended, normaliser = _FORWARD(*states, 0.0, causal, scale=scaling)  # type: ignore[misc]
            return attended[0].transpose(0, 1), normaliser[0].t()

        for own in spans.own:
            out[own], total[own] = part(own, own, True)
        for hanging, chain in spans.crossed:
            attended, normaliser = part(hanging, chain, False)
            out[hanging].lerp_(attended, torch.sigmoid(normaliser - total[hanging])[..., None])
            torch.logaddexp(total[hanging], normaliser, out=total[hanging])
        ctx.save_for_backward(query, key, value, out, total)
        ctx.spans, ctx.scaling = spans, scaling
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, out, total = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        dquery, dkey, dvalue = (torch.empty_like(states) for states in (query, key, value))

        def part(seen_by: slice, seen: slice, causal: bool) -> list[Tensor]:
            found = _BACKWARD(  # type: ignore[misc]
                _heads(gradient, seen_by),
                _heads(query, seen_by),
                _heads(key, seen),
                _heads(value, seen),
                _heads(out, seen_by),
                total[seen_by].t()[None],
                0.0,
                causal,
                scale=ctx.scaling,
            )
            return [states[0].transpose(0, 1) for states in found]

        for own in ctx.spans.own:
            dquery[own], dkey[own], dvalue[own] = part(own, own, True)
        for hanging, chain in ctx.spans.crossed:
            from_query, from_key, from_value = part(hanging, chain, False)
            dquery[hanging] += from_query
            dkey[chain] += from_key
            dvalue[chain] += from_value
        return dquery, dkey, dvalue, None, None
