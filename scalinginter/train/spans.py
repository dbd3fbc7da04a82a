"""Attention of packed rows span by span, without padding, copies or repeated prompts (CPU).

    prompt  a a a a            a prompt attends to itself, once for all rows that share it
    row 1   . . . . b b b      a row attends to itself, causally, and to all of its prompt;
    row 2   . . . . c c c      rows of one prompt that lie together do the latter in one call

The two parts of a row are computed apart and put together by their normalisers, as in ring
attention (Liu et al., arXiv 2310.01889, section 3): with o1, o2 the outputs and l1, l2 the log-sums
of the scores, o = o2 + sigmoid(l1 - l2) (o1 - o2) and l = log(e^l1 + e^l2). The gradient needs no
such merging: given o and l of the whole, each part's gradients are exact and add up.

Shapes: query [T, H, D], key and value [T, K, D] with H a multiple of K.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_FORWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_BACKWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


@dataclass(frozen=True, slots=True)
class Spans:
    """Which packed tokens attend to which."""

    own: list[slice]  # prompts and rows: each attends to itself causally
    crossed: list[tuple[slice, slice]]  # runs of rows, and the prompt that all of each run see

    @classmethod
    def of(cls, prompts: Sequence[slice], rows: Sequence[tuple[int, slice]]) -> "Spans":
        """`rows`: per row the number of its prompt (-1: none) and its own tokens, in order."""
        runs: list[tuple[int, slice]] = []
        for prompt, own in rows:
            if runs and runs[-1][0] == prompt and runs[-1][1].stop == own.start:
                runs[-1] = prompt, slice(runs[-1][1].start, own.stop)
            else:
                runs.append((prompt, own))
        return cls(
            own=[s for s in (*prompts, *(own for _, own in rows)) if s.stop > s.start],
            crossed=[(run, prompts[p]) for p, run in runs if p >= 0 and run.stop > run.start],
        )


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
        for run, prompt in spans.crossed:
            attended, normaliser = part(run, prompt, False)
            out[run].lerp_(attended, torch.sigmoid(normaliser - total[run])[..., None])
            torch.logaddexp(total[run], normaliser, out=total[run])
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
        for run, prompt in ctx.spans.crossed:
            from_query, from_key, from_value = part(run, prompt, False)
            dquery[run] += from_query
            dkey[prompt] += from_key
            dvalue[prompt] += from_value
        return dquery, dkey, dvalue, None, None
