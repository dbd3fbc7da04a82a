"""Rows that attend where they lie give what gathered rows give, gradients too."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalinginter.train import packed
from scalinginter.train.packed import PackedLayout
from scalinginter.train.spans import Spans

LAYOUTS = {
    "prompts": st.lists(st.integers(1, 70), min_size=1, max_size=3),
    "rows": st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 90)), min_size=1, max_size=8),
    "seed": st.integers(0, 99),
}


def attend(layout, states, weights):
    """The output of one layer and its gradients."""
    states = [x.clone().requires_grad_() for x in states]
    out = layout.attend(0, *states, scaling=0.5, sliding_window=None)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), states)]


@settings(max_examples=40, deadline=None)
@given(**LAYOUTS)
def test_spans_give_what_buckets_give(prompts, rows, seed):
    rows = [(p if p < len(prompts) else -1, n) for p, n in rows]
    rows = [(p, n) for p, n in rows if p >= 0 or n > 0] + [(p, 1) for p in range(len(prompts))]
    total = sum(prompts) + sum(n for _, n in rows)
    torch.manual_seed(seed)
    states = [torch.randn(1, heads, total, 8, dtype=torch.float64) for heads in (4, 2, 2)]
    weights = torch.randn(1, total, 4, 8, dtype=torch.float64)
    in_spans = attend(PackedLayout(prompts, rows), states, weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "can_attend_in_spans", lambda query, value: False)
        in_buckets = attend(PackedLayout(prompts, rows), states, weights)
    for got, expected in zip(in_spans, in_buckets, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-9, rtol=1e-9)


def test_rows_of_a_prompt_that_lie_together_read_it_in_one_call():
    prompts, own = [slice(0, 4), slice(4, 6)], [slice(6, 9), slice(9, 9), slice(9, 12)]
    rows = [*zip((0, 0, 0), own, strict=True), (1, slice(12, 14)), (-1, slice(14, 15))]
    assert Spans.of(prompts, rows).crossed == [
        (slice(6, 12), slice(0, 4)),
        (slice(12, 14), slice(4, 6)),
    ]


def test_spans_have_no_padding():
    layout = PackedLayout([3], [(0, 5), (0, 2)])
    states = [torch.randn(1, heads, 10, 8) for heads in (4, 2, 2)]
    layout.attend(0, *states, scaling=1.0, sliding_window=None)
    assert (layout.num_slots, layout.num_padding) == (13, 0)
