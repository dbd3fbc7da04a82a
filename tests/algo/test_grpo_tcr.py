"""GRPO-TCR: what length costs, and the published settings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.algo.advantage import overlong_penalty
from scalinginter.algo.registry import make_algorithm
from scalinginter.config.algorithms import GRPOTCRConfig
from scalinginter.config.load import validate
from scalinginter.errors import ConfigError
from scalinginter.rollout.record import without_tokens
from scalinginter.types import Group

SHORT = {"overlong_tokens": 10, "overlong_cache": 4}


def test_length_is_free_up_to_the_cache_and_then_costs_up_to_one():
    penalty = overlong_penalty(np.array([0, 6, 7, 8, 10, 50]), most=10, cache=4)
    assert penalty.tolist() == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]


@given(st.lists(st.integers(0, 10**6), min_size=1), st.integers(1, 10**5), st.data())
def test_longer_episodes_never_cost_less_nor_more_than_one(lengths, most, data):
    cache = data.draw(st.integers(1, most))
    penalty = overlong_penalty(np.array(sorted(lengths)), most, cache)
    assert (np.diff(penalty) <= 0).all()
    assert ((penalty >= -1) & (penalty <= 0)).all()


def test_of_two_that_succeeded_the_overlong_one_is_worth_less(group):
    algorithm = make_algorithm(GRPOTCRConfig(**SHORT, normalize_advantages=False))
    episodes = group([0, 0, 0, 1.0], [0, 1.0])  # 8 and 4 tokens
    (found,) = algorithm.advantages([episodes])
    assert [turns.tolist() for turns in found] == [[-0.25] * 4, [0.25] * 2]


def test_lengths_of_episodes_of_other_processes_count_alike(group):
    algorithm = make_algorithm(GRPOTCRConfig(**SHORT))
    episodes = group([0, 0, 0, 1.0], [0, 1.0])
    told = Group(episodes.id, tuple(map(without_tokens, episodes.trajectories)))
    found = [algorithm.advantages([g]) for g in (episodes, told)]
    assert [[a.tolist() for a in group] for group in found[0]] == [
        [a.tolist() for a in group] for group in found[1]
    ]


def test_the_settings_are_the_published_ones():
    config = GRPOTCRConfig()
    assert (config.clip_low, config.clip_high, config.kl_coefficient) == (0.2, 0.28, 0.0)
    assert (config.overlong_tokens, config.overlong_cache) == (20_480, 4096)
    assert (config.loss_aggregation, config.dual_clip) == ("token", 3.0)


def test_a_cache_beyond_the_limit_is_refused(toy_recipe):
    block = {"kind": "grpo_tcr", "overlong_tokens": 100, "overlong_cache": 200}
    with pytest.raises(ConfigError, match="overlong_cache"):
        validate(toy_recipe(algorithm=block), "a recipe")
