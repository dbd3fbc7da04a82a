"""The coefficient that follows a target: the published rule, its bounds, what it takes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.algo.grpo import GRPO
from scalinginter.algo.loss import adapted_coefficient
from scalinginter.config.algorithms import GRPOConfig
from scalinginter.config.load import validate
from scalinginter.errors import ConfigError


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        (0.01, 0.5),  # on target
        (0.011, 0.5 * 1.01),  # a tenth too far: a hundredth more
        (0.009, 0.5 * 0.99),
        (5.0, 0.5 * 1.02),  # the error is clipped at a fifth
        (0.0, 0.5 * 0.98),
        (float("nan"), 0.5),
    ],
)
def test_the_coefficient_follows_the_published_rule(kl, expected):
    found = adapted_coefficient(0.5, kl, target=0.01, gain=0.1)
    assert found == pytest.approx(expected)


@given(st.lists(st.floats(-10, 10)), st.floats(1e-6, 10), st.floats(0.01, 1))
def test_it_stays_positive_and_moves_by_a_fifth_of_its_gain_at_most(kls, target, gain):
    coefficient = 0.1
    for kl in kls:
        before, coefficient = (
            coefficient,
            adapted_coefficient(coefficient, kl, target=target, gain=gain),
        )
        assert abs(coefficient / before - 1) <= 0.2 * gain + 1e-9


def test_without_a_target_it_stays_what_the_recipe_says():
    algorithm = GRPO(GRPOConfig(kl_coefficient=0.1))
    assert algorithm.adapt({"kl/mean": 9.0}) == {"kl/coefficient": 0.1}
    assert algorithm.kl_coefficient == 0.1


def test_without_a_kl_there_is_nothing_to_log():
    assert GRPO(GRPOConfig()).adapt({}) == {}


@pytest.mark.parametrize("block", [{"kl_target": 0.01}, {"reference_every": 10}])
def test_a_target_without_a_kl_is_refused(toy_recipe, block):
    with pytest.raises(ConfigError, match="set kl_coefficient above 0"):
        validate(toy_recipe(algorithm=block), "a recipe")
