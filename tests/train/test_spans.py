"""Rows that attend where they lie give what gathered rows give, gradients too."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalinginter.train import packed, spans
from scalinginter.train.packed import PackedLayout
from scalinginter.train.spans import Spans
from scalinginter.train.trie import PrefixTree


def attend(layout, states, weights):
    """The output of one layer and its gradients."""
    states = [x.clone().requires_grad_() for x in states]
    out = layout.attend(0, *states, scaling=0.5, sliding_window=None)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), states)]


@st.composite
def forked_rows(draw):
    """Rows of up to 200 ids, each leaving an earlier one at some place, or at once."""
    rows = [np.arange(draw(st.integers(1, 99)))]
    for number in range(draw(st.integers(0, 8))):
        row = rows[draw(st.integers(0, number))]
        own = np.full(draw(st.integers(0, 99)), 1000 + number)
        rows.append(np.concatenate([row[: draw(st.integers(1, len(row)))], own]))
    return rows


@settings(max_examples=40, deadline=None)
@given(rows=forked_rows(), seed=st.integers(0, 99), longest=st.sampled_from([7, 60, 384]))
def test_spans_give_what_buckets_give(rows, seed, longest):
    tree = PrefixTree(rows)
    torch.manual_seed(seed)
    states = [torch.randn(1, heads, len(tree), 8, dtype=torch.float64) for heads in (4, 2, 2)]
    weights = torch.randn(1, len(tree), 4, 8, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "_LONGEST", longest)
        in_spans = attend(PackedLayout(tree), states, weights)
        patch.setattr(packed, "can_attend_in_spans", lambda query, value: False)
        in_buckets = attend(PackedLayout(tree), states, weights)
    for got, expected in zip(in_spans, in_buckets, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-9, rtol=1e-9)


def test_a_chain_is_one_call_and_so_is_all_that_hangs_from_one_of_its_segments():
    rows = [[0, 1, 2, 3, 4, 5], [0, 1, 2, 7, 8], [0, 1, 2, 7, 9], [0, 6]]
    tree = PrefixTree([np.array(row) for row in rows])
    assert tree.ids.tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9, 6]
    assert Spans.of(tree.segments) == Spans(
        own=[slice(0, 6), slice(6, 8), slice(8, 9), slice(9, 10)],
        crossed=[
            (slice(9, 10), slice(0, 1)),
            (slice(6, 9), slice(0, 3)),
            (slice(8, 9), slice(6, 7)),
        ],
    )


def test_a_long_chain_is_halved_and_its_second_half_sees_the_first():
    tree = PrefixTree([np.arange(1000)])
    own = [slice(0, 250), slice(250, 500), slice(500, 750), slice(750, 1000)]
    crossed = [(own[1], own[0]), (own[3], own[2]), (slice(500, 1000), slice(0, 500))]
    assert Spans.of(tree.segments) == Spans(own, crossed)


def test_spans_have_no_padding():
    layout = PackedLayout(PrefixTree([np.array([0, 1, 2, 3]), np.array([0, 1, 5])]))
    states = [torch.randn(1, heads, 5, 8) for heads in (4, 2, 2)]
    layout.attend(0, *states, scaling=1.0, sliding_window=None)
    assert (layout.num_slots, layout.num_padding) == (5, 0)
