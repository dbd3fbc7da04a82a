"""Advantages of each environment's tokens, brought to mean 0 and deviation 1."""

import numpy as np
import pytest

from scalinginter.algo.registry import make_algorithm
from scalinginter.config.algorithms import DrGRPOConfig
from scalinginter.rollout.record import without_tokens
from scalinginter.types import Group


def find(groups, sum_over_ranks=dict):
    found = make_algorithm(DrGRPOConfig(normalize_by_task=True)).advantages(groups, sum_over_ranks)
    return [[a.tolist() for a in per_group] for per_group in found]


def tokens(groups, found, *, tokens_a_turn=2):
    return np.repeat([a for group in found for turns in group for a in turns], tokens_a_turn)


def test_tokens_of_a_task_have_mean_0_and_deviation_1(group):
    groups = [group([0, 0, 1.0], [0, 0]), group([0.5], [0], [0.25])]
    groups = [groups[0], Group("g", groups[1].trajectories[:2])]
    values = tokens(groups, find(groups))
    assert (values.mean(), values.std()) == pytest.approx((0.0, 1.0), abs=1e-4)


def test_pitfall_19_groups_that_all_won_and_that_all_lost_stay_at_zero(group):
    won, lost = group([0, 1.0], [1.0]), group([0, 0], [0])
    found = find([won, lost, group([1.0], [0, 0])])
    assert found[:2] == [[[0.0, 0.0], [0.0]], [[0.0, 0.0], [0.0]]]


def test_pitfall_19_tokens_without_a_signal_do_not_move_the_others(group):
    mixed, lost = group([1.0], [0, 0]), group([0, 0], [0])
    assert find([mixed, lost])[0] == find([mixed])[0]


def test_pitfall_19_an_episode_at_its_groups_mean_stays_at_zero(group):
    found = find([group([0.1], [0.2], [0.3]), group([1.0], [0, 0], [0])])
    assert found[0][1] == [0.0]


def test_each_environment_is_normalised_by_itself(group):
    small = group([0.01], [0], family="small")
    large = group([1.0], [0], family="large")
    found = find([small, large])
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)


def test_longer_answers_weigh_more(group):
    found = find([group([1.0], [0, 0, 0])])
    assert found[0][0][0] == pytest.approx(3**0.5, abs=1e-3)


def test_tokens_that_are_not_trained_do_not_count(group):
    free = find([group([1.0], [0, 0], tokens=2)])
    forced = find([group([1.0], [0, 0], tokens=5, forced=3)])
    assert free == forced


def test_a_step_without_any_signal_stays_at_zero(group):
    assert find([group([1.0], [1.0])]) == [[[0.0], [0.0]]]


def test_two_processes_find_what_one_finds(group):
    own, other = (group(*rewards, tokens=3) for rewards in (([1.0], [0, 0]), ([0.5], [0])))
    gone = [Group("g", tuple(without_tokens(t) for t in g.trajectories)) for g in (own, other)]
    told = []
    find([gone[0], other], lambda numbers: told.append(dict(numbers)) or dict(numbers))
    here = find([own, gone[1]], lambda numbers: {k: v + told[0][k] for k, v in numbers.items()})
    np.testing.assert_allclose(np.concatenate(here[0]), np.concatenate(find([own, other])[0]))
