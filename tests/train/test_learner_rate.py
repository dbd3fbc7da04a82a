"""The learning rate over a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.train.optimizer import learning_rate_scale


def rates(count, **options):
    defaults = {"warmup_steps": 0, "decay": "constant", "total_steps": None}
    return [learning_rate_scale(n, **(defaults | options)) for n in range(count)]


def test_warm_up_rises_by_equal_steps_to_the_full_rate():
    assert rates(6, warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_linear_decay_ends_at_zero():
    assert rates(6, decay="linear", total_steps=5) == pytest.approx([1, 0.8, 0.6, 0.4, 0.2, 0])


def test_cosine_decay_is_half_way_down_in_the_middle():
    assert rates(9, decay="cosine", total_steps=8)[::4] == pytest.approx([1, 0.5, 0])


@given(
    st.integers(0, 30),
    st.integers(0, 10),
    st.sampled_from(["constant", "linear", "cosine"]),
    st.integers(1, 20),
)
def test_the_rate_never_leaves_the_unit_interval(update, warmup, decay, total):
    scale = learning_rate_scale(update, warmup_steps=warmup, decay=decay, total_steps=total)
    assert 0.0 <= scale <= 1.0


def test_a_decay_without_an_end_is_an_error():
    with pytest.raises(ValueError, match="number of steps"):
        rates(1, decay="linear")
