"""The ratio of a sequence, and what dual clip bounds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.algo.grpo import GRPO
from scalinginter.algo.loss import (
    LossBatch,
    clipped_surrogate,
    dual_clip_share,
    importance_ratio,
    sequence_ratio,
    weighted_sum,
)
from scalinginter.config.algorithms import GRPOConfig, GSPOConfig
from scalinginter.config.load import validate
from scalinginter.errors import ConfigError

CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def everything(values):
    return torch.ones(len(values), dtype=torch.bool)


def means_of(log_ratio, sequences):
    return torch.stack([log_ratio[sequences == s].mean() for s in sequences])


def test_the_ratio_of_a_sequence_is_the_geometric_mean_of_its_tokens():
    old = tensor(0.5, 0.5, 0.5).log()
    logprobs = tensor(1.0, 0.25, 0.5).log()
    mean = (logprobs - old).mean().expand(3)
    ratio = sequence_ratio(logprobs, mean, everything(mean))
    assert ratio.tolist() == pytest.approx([(2 * 0.5 * 1) ** (1 / 3)] * 3)


@given(
    st.lists(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=5), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_the_gradient_is_that_of_the_published_equation_whatever_the_lengths(shifts, random):
    sequences = torch.tensor([s for s, own in enumerate(shifts) for _ in own])
    advantages = tensor(*[random.uniform(-1, 1) for _ in shifts])[sequences]
    old = torch.full((len(sequences),), -1.0, dtype=torch.float64)
    weights = tensor(*[1 / (len(shifts) * len(own)) for own in shifts for _ in own])
    gradients = []
    for exact in (True, False):
        logprobs = (old + tensor(*[d for own in shifts for d in own])).requires_grad_()
        mean = means_of(logprobs - old, sequences)
        mask = everything(old)
        ratio = mean.exp() if exact else sequence_ratio(logprobs, mean, mask)
        weighted_sum(clipped_surrogate(ratio, advantages, **CLIP), weights, mask).backward()
        gradients.append(logprobs.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_pitfall_16_poison_under_the_mask_adds_nothing_to_a_sequence_ratio(poison):
    logprobs = tensor(-1.0, poison).requires_grad_()
    mask = torch.tensor([True, False])
    ratio = sequence_ratio(logprobs, tensor(0.1, poison), mask)
    weighted_sum(ratio, tensor(1.0, 1.0), mask).backward()
    assert logprobs.grad.tolist() == pytest.approx([torch.tensor(0.1).exp().item(), 0.0])


def batch(logprobs, **changes):
    count = len(logprobs)
    fields = {
        "logprobs": logprobs,
        "old": torch.full((count,), -1.0),
        "reference": None,
        "entropy": torch.zeros(count),
        "advantages": torch.linspace(-1, 1, count),
        "weights": torch.full((count,), 1 / count),
        "mask": torch.ones(count, dtype=torch.bool),
    }
    return LossBatch(**(fields | changes))


def test_at_ratio_one_gspo_has_the_gradient_of_the_policy_gradient():
    logprobs = torch.full((4,), -1.0, requires_grad=True)
    tokens = batch(logprobs, sequence_log_ratio=torch.zeros(4))
    GRPO(GSPOConfig()).loss(tokens).loss.backward()
    torch.testing.assert_close(logprobs.grad, -tokens.advantages / 4)


def test_a_sequence_that_is_clipped_is_clipped_as_a_whole():
    logprobs = torch.tensor([-0.5, -1.5, -1.0, -1.0], requires_grad=True)
    log_ratio = torch.tensor([5e-4, 5e-4, 3e-4, 3e-4])  # above and below the published 4e-4
    tokens = batch(logprobs, advantages=torch.ones(4), sequence_log_ratio=log_ratio)
    GRPO(GSPOConfig()).loss(tokens).loss.backward()
    assert (logprobs.grad == 0).tolist() == [True, True, False, False]


def test_a_sequence_ratio_without_sequences_is_an_error():
    with pytest.raises(ValueError, match="mean log-ratio"):
        GRPO(GSPOConfig()).loss(batch(torch.zeros(2)))


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (5.0, -1.0, 3.0),  # a bad token that rose far: bounded
        (2.0, -1.0, 2.0),  # not as far
        (0.5, -1.0, 0.8),  # the ordinary clip is as it was
        (5.0, 1.0, -1.28),  # a good token is not touched by the dual clip
    ],
)
def test_dual_clip_bounds_what_a_bad_token_can_cost(ratio, advantage, expected):
    loss = clipped_surrogate(tensor(ratio), tensor(advantage), **CLIP, dual=3.0)
    assert loss.item() == pytest.approx(expected)


@given(st.floats(-10, 10), st.floats(-5, 5), st.floats(1.3, 10))
def test_with_dual_clip_no_token_costs_more_than_its_bound(log_ratio, advantage, dual):
    ratio = tensor(log_ratio).exp()
    loss = clipped_surrogate(ratio, tensor(advantage), **CLIP, dual=dual)
    assert loss.abs().item() <= dual * abs(advantage) + 1e-9


def test_the_dual_clip_share_marks_the_tokens_whose_gradient_it_removes():
    ratio = tensor(5, 5, 2, 2).requires_grad_()
    advantages = tensor(-1, 1, -1, 1)
    loose = {"clip_low": 0.9, "clip_high": 100.0}
    clipped_surrogate(ratio, advantages, **loose, dual=3.0).sum().backward()
    share = dual_clip_share(ratio.detach(), advantages, 3.0)
    assert share.tolist() == (ratio.grad == 0).tolist()


def test_the_share_that_dual_clip_bounds_is_a_metric_of_every_step():
    logprobs = torch.tensor([1.0, -1.0])
    tokens = batch(logprobs, advantages=torch.tensor([-1.0, -1.0]))
    averages = GRPO(GRPOConfig(dual_clip=3.0)).loss(tokens).averages
    assert averages["loss/dual_clip_share"].item() == 0.5


def test_the_two_ratios_agree_on_sequences_of_one_token():
    logprobs, old = tensor(-0.7, -2.0), tensor(-1.0, -1.5)
    ratio = sequence_ratio(logprobs, logprobs - old, everything(old))
    torch.testing.assert_close(ratio, importance_ratio(logprobs, old, everything(old)))


def test_a_dual_clip_of_one_is_refused_by_name(toy_recipe):
    with pytest.raises(ConfigError, match="dual_clip"):
        validate(toy_recipe(algorithm__dual_clip=1.0), "a recipe")


def test_gspo_has_its_published_clip_range_unless_told_otherwise():
    config = GSPOConfig()
    assert (config.clip_low, config.clip_high) == (3e-4, 4e-4)
