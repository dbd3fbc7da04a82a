"""Importance weights: what they are, that they are bounded, and that they carry no gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.algo.correction import correction_weights
from scalinginter.algo.grpo import GRPO
from scalinginter.algo.loss import LossBatch
from scalinginter.config.algorithms import GRPOConfig
from scalinginter.config.load import validate
from scalinginter.errors import ConfigError

BAND = {"correction": "geometric_mask", "correction_band": [0.8, 1.25]}
any_log = st.one_of(st.floats(-1e4, 1e4), st.sampled_from([math.inf, -math.inf]))


def weigh(logs, **config):
    return correction_weights(torch.tensor(logs), GRPOConfig(**config)).tolist()


@pytest.mark.parametrize("kind", ["token", "sequence"])
def test_weights_are_ratios_up_to_their_bound(kind):
    found = weigh([math.log(0.5), 0.0, math.log(1.5), math.log(9.0)], correction=kind)
    assert found == pytest.approx([0.5, 1.0, 1.5, 2.0])


def test_a_mask_keeps_what_lies_in_its_band_at_full_weight():
    logs = [math.log(x) for x in (0.79, 0.81, 1.0, 1.24, 1.26)]
    assert weigh(logs, **BAND) == [0.0, 1.0, 1.0, 1.0, 0.0]


@given(st.lists(any_log, min_size=1), st.sampled_from(["token", "sequence", "geometric_mask"]))
def test_pitfall_32_weights_stay_within_their_bounds_however_stale_a_token_is(logs, kind):
    found = weigh(logs, correction=kind, correction_max=3.0)
    assert all(0 <= weight <= 3.0 for weight in found)


def batch(logprobs, **changes):
    count = len(logprobs)
    fields = {
        "logprobs": logprobs,
        "old": torch.full((count,), -1.0),
        "reference": None,
        "entropy": torch.zeros(count),
        "advantages": torch.ones(count),
        "weights": torch.full((count,), 1 / count),
        "mask": torch.ones(count, dtype=torch.bool),
    }
    return LossBatch(**(fields | changes))


def test_at_ratio_one_the_gradient_is_the_weighted_policy_gradient():
    logprobs = torch.full((3,), -1.0, requires_grad=True)
    weights = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    GRPO(GRPOConfig()).loss(batch(logprobs, correction=weights)).loss.backward()
    assert logprobs.grad.tolist() == pytest.approx([-0.5 / 3, -1.0 / 3, -2.0 / 3])
    assert weights.grad is None


def test_a_weight_does_not_touch_the_kl():
    config = GRPOConfig(kl_coefficient=0.5, kl_estimator="k2")
    fields = {"reference": torch.full((2,), -1.2), "advantages": torch.zeros(2)}
    nothing = torch.zeros(2)
    terms = GRPO(config).loss(batch(torch.full((2,), -1.0), correction=nothing, **fields))
    assert terms.loss.item() == pytest.approx(0.5 * 0.5 * 0.2**2, abs=1e-6)


def test_pitfall_16_a_weight_of_nan_under_the_mask_adds_nothing():
    logprobs = torch.full((2,), -1.0, requires_grad=True)
    poisoned = torch.tensor([1.0, float("nan")])
    mask = torch.tensor([True, False])
    GRPO(GRPOConfig()).loss(batch(logprobs, correction=poisoned, mask=mask)).loss.backward()
    assert logprobs.grad.tolist() == [-0.5, 0.0]


def test_a_correction_of_what_the_engine_says_is_refused(toy_recipe):
    block = {"correction": "token", "old_logprobs": "engine"}
    with pytest.raises(ConfigError, match="old_logprobs: auto or recompute"):
        validate(toy_recipe(algorithm=block), "a recipe")


def test_a_band_that_is_upside_down_is_refused(toy_recipe):
    block = {"correction": "geometric_mask", "correction_band": [2.0, 0.5]}
    with pytest.raises(ConfigError, match="lowest, highest"):
        validate(toy_recipe(algorithm=block), "a recipe")
