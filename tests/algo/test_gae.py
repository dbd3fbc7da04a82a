"""Generalised advantage estimation: closed forms, hand-worked episodes, properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.algo.gae import (
    adaptive_lambda,
    estimate,
    explained_variance,
    gae,
    moments,
    place_rewards,
)

TURNS = np.array([0, 0, 0, 1, 1, 3])  # trained tokens of turns 0, 1 and 3; turn 2 was forced
REWARDS = np.array([0.25, 0.0, 0.5, 1.0])
VALUES = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])

numbers = st.floats(-2, 2)
factors = st.floats(0, 1)
episodes = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12)


def on_tokens(level="token", final=0.0, gamma=1.0, lam=1.0, **options):
    return estimate(REWARDS, TURNS, VALUES, final, level=level, gamma=gamma, lam=lam, **options)


def test_a_hand_worked_episode_of_two_decisions():
    advantages = gae(np.array([0.0, 1.0]), np.array([0.5, 0.8]), 0.0, 0.9, 0.5)
    last = 1.0 - 0.8
    np.testing.assert_allclose(advantages, [0.9 * 0.8 - 0.5 + 0.45 * last, last])


def test_a_hand_worked_episode_that_was_cut_bootstraps_the_value_after_it():
    advantages = gae(np.array([0.0, 0.0]), np.array([0.5, 0.8]), 0.7, 0.9, 0.5)
    last = 0.9 * 0.7 - 0.8
    np.testing.assert_allclose(advantages, [0.9 * 0.8 - 0.5 + 0.45 * last, last])


@given(episodes, numbers)
def test_without_discount_and_decay_it_is_the_return_minus_the_value(episode, final):
    rewards, values = np.array(episode).T
    returns = rewards[::-1].cumsum()[::-1] + final
    np.testing.assert_allclose(gae(rewards, values, final, 1.0, 1.0), returns - values, atol=1e-9)


@given(episodes, numbers, factors)
def test_with_lambda_zero_it_is_the_temporal_difference(episode, final, gamma):
    rewards, values = np.array(episode).T
    after = np.append(values[1:], final)
    np.testing.assert_allclose(
        gae(rewards, values, final, gamma, 0.0), rewards + gamma * after - values, atol=1e-9
    )


@given(episodes, numbers, factors, factors)
def test_it_is_the_sum_of_equation_16(episode, final, gamma, lam):
    rewards, values = np.array(episode).T
    deltas = rewards + gamma * np.append(values[1:], final) - values
    sums = [
        sum((gamma * lam) ** i * delta for i, delta in enumerate(deltas[start:]))
        for start in range(len(deltas))
    ]
    np.testing.assert_allclose(gae(rewards, values, final, gamma, lam), sums, atol=1e-9)


@given(episodes, factors, factors)
def test_the_values_of_the_policy_itself_leave_no_advantage(episode, gamma, lam):
    rewards = np.array(episode)[:, 0]
    values = np.zeros(len(rewards))
    for at in range(len(rewards) - 1, -1, -1):
        values[at] = rewards[at] + gamma * (values[at + 1] if at + 1 < len(rewards) else 0.0)
    np.testing.assert_allclose(gae(rewards, values, 0.0, gamma, lam), 0.0, atol=1e-9)


def test_pitfall_09_a_reward_lies_on_the_last_sampled_token_of_its_turn():
    np.testing.assert_array_equal(place_rewards(REWARDS, TURNS), [0, 0, 0.25, 0, 0.5, 1.0])


def test_a_reward_before_anything_was_decided_is_nobodys():
    np.testing.assert_array_equal(place_rewards(np.array([5.0, 1.0]), np.array([1, 1])), [0.0, 1.0])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.integers(6, 8))
def test_pitfall_20_rewards_after_the_first_decision_all_survive(turns, num_turns):
    turns = np.array(sorted(turns))
    rewards = np.arange(1.0, num_turns + 1)
    assert place_rewards(rewards, turns).sum() == rewards[turns[0] :].sum()


def test_tokens_of_an_episode_without_discount_share_the_return():
    advantages, targets = on_tokens()
    returns = np.array([1.75, 1.75, 1.75, 1.5, 1.5, 1.0])
    np.testing.assert_allclose(advantages, returns - VALUES)
    np.testing.assert_allclose(targets, returns)


def test_turns_are_one_decision_each_and_their_tokens_share_it():
    advantages, targets = on_tokens("turn", gamma=0.5, lam=0.5)
    third = 1.0 - 0.6
    second = 0.5 + 0.5 * 0.6 - 0.4 + 0.25 * third
    first = 0.25 + 0.5 * 0.4 - 0.1 + 0.25 * second
    np.testing.assert_allclose(advantages, [first] * 3 + [second] * 2 + [third])
    np.testing.assert_allclose(
        targets, [first + 0.1, np.nan, np.nan, second + 0.4, np.nan, third + 0.6]
    )


def test_at_token_level_the_discount_is_from_turn_to_turn():
    advantages, _ = estimate(
        np.array([0.0, 1.0]), np.array([0, 0, 1, 1]), np.zeros(4), 0.8,
        level="token", gamma=0.5, lam=1.0,
    )  # fmt: skip
    np.testing.assert_allclose(advantages, [0.7, 0.7, 1.4, 1.4])


def test_at_turn_level_the_length_of_an_answer_does_not_discount():
    short, _ = estimate(
        np.array([0.0, 1.0]), np.array([0, 1]), np.zeros(2), 0.0, level="turn", gamma=0.5, lam=1.0
    )
    long, _ = estimate(
        np.array([0.0, 1.0]), np.array([0] * 9 + [1] * 5), np.zeros(14), 0.0,
        level="turn", gamma=0.5, lam=1.0,
    )  # fmt: skip
    assert (short[0], short[1]) == (long[0], long[-1]) == (0.5, 1.0)


@pytest.mark.parametrize("level", ["token", "turn"])
def test_pitfall_12_the_value_after_a_cut_reaches_every_decision(level):
    ended, cut = on_tokens(level)[0], on_tokens(level, final=0.3)[0]
    np.testing.assert_allclose(cut - ended, 0.3)


@pytest.mark.parametrize("level", ["token", "turn"])
def test_pitfall_09_the_last_action_of_a_success_has_an_advantage(level):
    advantages, _ = estimate(
        np.array([0.0, 1.0]), np.array([0, 0, 1, 1]), np.zeros(4), 0.0,
        level=level, gamma=0.99, lam=0.95,
    )  # fmt: skip
    assert (advantages > 0).all()
    assert advantages[-1] == 1.0


@pytest.mark.parametrize("level", ["token", "turn"])
def test_targets_may_have_a_lambda_of_their_own(level):
    _, targets = on_tokens(level, lam=0.3, value_lam=1.0)
    np.testing.assert_array_equal(targets, on_tokens(level)[1])


def test_the_adaptive_lambda_grows_with_the_length():
    assert [adaptive_lambda(n, 0.05) for n in (10, 40, 400)] == pytest.approx([0.0, 0.5, 0.95])
    adapted, _ = on_tokens(lam=0.1, adaptive_alpha=0.5)
    np.testing.assert_allclose(adapted, on_tokens(lam=1 - 1 / 3)[0])


@given(st.lists(numbers, min_size=2, max_size=30), st.integers(1, 29))
def test_moments_come_from_sums_that_add_up_over_ranks(values, cut):
    parts = [np.array(values[:cut]), np.array(values[cut:])]
    sums = [sum(f(p) for p in parts) for f in (np.sum, lambda p: (p**2).sum(), len)]
    mean, deviation = moments(*sums)
    assert mean == pytest.approx(np.mean(values), abs=1e-9)
    assert deviation == pytest.approx(np.std(values, ddof=1), abs=1e-6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 2, 3], 1.0), ([5, 5, 5], 0.0), ([2, 3, 4], 1.0), ([3, 2, 1], -3.0)],
)
def test_the_explained_variance_is_one_for_perfect_values_and_zero_for_a_constant(values, expected):
    targets = np.array([1.0, 2.0, 3.0])
    errors = targets - np.array(values)
    sums = (3, targets.sum(), (targets**2).sum(), errors.sum(), (errors**2).sum())
    assert explained_variance(sums) == pytest.approx(expected)
