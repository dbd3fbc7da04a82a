"""Group advantages: closed forms and the invariances that make them group relative."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.algo.advantage import STD_EPSILON, group_advantages

rewards = st.lists(st.integers(0, 20).map(lambda n: n / 20), min_size=2, max_size=12)


def of(values, *, counted=None, normalize=True):
    values = np.array(values, dtype=np.float64)
    counted = np.ones(len(values), dtype=bool) if counted is None else np.array(counted)
    return group_advantages(values, counted, normalize=normalize)


def test_without_normalisation_the_advantage_is_reward_minus_mean():
    assert of([1, 0, 0, 1], normalize=False).tolist() == [0.5, -0.5, -0.5, 0.5]


def test_with_normalisation_it_is_divided_by_the_sample_deviation():
    expected = 0.75 / (0.5 + STD_EPSILON)  # rewards 1, 0, 0, 0: mean 1/4, sample deviation 1/2
    assert of([1, 0, 0, 0])[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1 + 0.2])
def test_pitfall_15_a_group_without_variance_gives_exactly_zero(value):
    assert of([value] * 5).tolist() == [0.0] * 5


def test_rewards_that_differ_by_rounding_only_count_as_equal():
    assert of([0.1 + 0.2, 0.3]).tolist() == [0.0, 0.0]


def test_a_group_that_counts_one_member_gives_zero():
    assert of([1, 0, 0], counted=[True, False, False]).tolist() == [0.0, 0.0, 0.0]


def test_members_that_do_not_count_change_nothing_for_the_others():
    with_failure = of([1, 0, 0.5, 1], counted=[True, True, False, True])
    assert with_failure[[0, 1, 3]].tolist() == of([1, 0, 1]).tolist()


@given(rewards, st.booleans())
def test_advantages_of_a_group_sum_to_zero(values, normalize):
    assert abs(of(values, normalize=normalize).sum()) < 1e-9


@given(rewards, st.floats(-5, 5), st.booleans())
def test_a_shift_of_all_rewards_changes_nothing(values, shift, normalize):
    shifted = of([v + shift for v in values], normalize=normalize)
    np.testing.assert_allclose(shifted, of(values, normalize=normalize), atol=1e-9)


@given(rewards, st.floats(0.1, 10))
def test_normalised_advantages_ignore_the_scale_of_the_rewards(values, scale):
    np.testing.assert_allclose(of([v * scale for v in values]), of(values), atol=1e-3)


@given(rewards, st.randoms(use_true_random=False), st.booleans())
def test_a_permutation_of_the_group_permutes_the_advantages(values, random, normalize):
    order = list(range(len(values)))
    random.shuffle(order)
    permuted = of([values[i] for i in order], normalize=normalize)
    np.testing.assert_allclose(permuted, of(values, normalize=normalize)[order], atol=1e-12)
