"""Losses: closed forms, gradients, and what masked positions may hold."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.algo.loss import (
    clip_shares,
    clipped_surrogate,
    importance_ratio,
    kl_estimate,
    kl_penalised_advantages,
    weighted_sum,
)

logits_lists = st.lists(st.floats(-2, 2), min_size=3, max_size=6)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def everything(values):
    return torch.ones(len(values), dtype=torch.bool)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, -2.0),
        (1.5, 2.0, -1.3 * 2.0),  # a good token that rose far: clipped above
        (0.5, 2.0, -0.5 * 2.0),  # a good token that fell: not clipped, so that it can recover
        (0.5, -2.0, 0.9 * 2.0),  # a bad token that fell far: clipped below
        (1.5, -2.0, 1.5 * 2.0),  # a bad token that rose: not clipped
    ],
)
def test_the_surrogate_is_clipped_on_the_optimistic_side_only(ratio, advantage, expected):
    loss = clipped_surrogate(tensor(ratio), tensor(advantage), clip_low=0.1, clip_high=0.3)
    assert loss.item() == pytest.approx(expected)


def test_clip_shares_mark_the_tokens_whose_gradient_is_gone():
    ratio = tensor(0.5, 0.5, 1.5, 1.5, 1.0).requires_grad_()
    advantages = tensor(-1, 1, -1, 1, 1)
    clipped_surrogate(ratio, advantages, clip_low=0.2, clip_high=0.2).sum().backward()
    low, high = clip_shares(ratio.detach(), advantages, clip_low=0.2, clip_high=0.2)
    assert (low | high).tolist() == (ratio.grad == 0).tolist()


def test_the_ratio_is_that_of_the_probabilities():
    ratio = importance_ratio(tensor(0.3).log(), tensor(0.2).log(), everything([0]))
    assert ratio.item() == pytest.approx(1.5)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_pitfall_16_poison_at_masked_positions_adds_exactly_nothing(poison, estimator):
    def losses(values):
        logprobs = tensor(*values).requires_grad_()
        mask = torch.tensor([True, False])
        old = tensor(-1.0, poison)
        ratio = importance_ratio(logprobs, old, mask)
        surrogate = clipped_surrogate(ratio, tensor(1.0, 1.0), clip_low=0.2, clip_high=0.2)
        total = weighted_sum(surrogate, tensor(1.0, poison), mask)
        total = total + weighted_sum(kl_estimate(logprobs, old, mask, estimator), old, mask)
        total.backward()
        return total.item(), logprobs.grad.tolist()

    assert losses([-0.9, poison]) == losses([-0.9, 0.0])


def test_pitfall_16_an_empty_mask_gives_a_loss_of_zero_with_a_gradient_of_zero():
    logprobs = tensor(-1.0, -2.0).requires_grad_()
    nothing = torch.zeros(2, dtype=torch.bool)
    total = weighted_sum(logprobs, tensor(1.0, 1.0), nothing)
    total.backward()
    assert (total.item(), logprobs.grad.tolist()) == (0.0, [0.0, 0.0])


@pytest.mark.parametrize(
    ("estimator", "expected"), [("k1", 0.5), ("k2", 0.125), ("k3", 2.718281828**-0.5 - 0.5)]
)
def test_kl_estimators_have_their_published_values(estimator, expected):
    value = kl_estimate(tensor(-1.0), tensor(-1.5), everything([0]), estimator)
    assert value.item() == pytest.approx(expected)


def expected_gradient(logits, reference, estimator):
    """Gradient of the estimator, averaged exactly over the tokens that the policy draws."""
    logits = logits.clone().requires_grad_()
    logprobs = logits.log_softmax(0)
    estimate = kl_estimate(logprobs, reference, everything(logprobs), estimator)
    (logprobs.detach().exp() * estimate).sum().backward()
    return logits.grad


@given(logits_lists, st.randoms(use_true_random=False))
def test_k1_and_k2_in_the_loss_have_the_gradient_of_the_kl(values, random):
    logits = tensor(*values)
    reference = tensor(*[random.uniform(-2, 2) for _ in values]).log_softmax(0)
    exact = logits.clone().requires_grad_()
    logprobs = exact.log_softmax(0)
    (logprobs.exp() * (logprobs - reference)).sum().backward()
    for estimator in ("k1", "k2"):
        got = expected_gradient(logits, reference, estimator)
        torch.testing.assert_close(got, exact.grad, atol=1e-9, rtol=1e-7)


@given(logits_lists, st.randoms(use_true_random=False))
def test_k3_in_the_loss_has_the_gradient_of_the_reverse_kl(values, random):
    logits = tensor(*values)
    reference = tensor(*[random.uniform(-2, 2) for _ in values]).log_softmax(0)
    expected = logits.softmax(0) - reference.exp()  # d KL(reference || pi) / d logits
    got = expected_gradient(logits, reference, "k3")
    torch.testing.assert_close(got, expected, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_a_gradient_step_on_the_kl_term_alone_lowers_the_kl(estimator):
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        logits = torch.randn(5, generator=generator, dtype=torch.float64)
        reference = torch.randn(5, generator=generator, dtype=torch.float64).log_softmax(0)
        after = logits - 0.01 * expected_gradient(logits, reference, estimator)
        before_kl, after_kl = (
            (x.log_softmax(0).exp() * (x.log_softmax(0) - reference)).sum() for x in (logits, after)
        )
        assert after_kl < before_kl


def test_a_kl_in_the_reward_charges_each_token_its_own_k1():
    advantages = kl_penalised_advantages(
        tensor(1.0, 1.0), tensor(-1.0, -2.0), tensor(-1.5, -1.0), everything([0, 0]), 0.1
    )
    assert advantages.tolist() == pytest.approx([1.0 - 0.05, 1.0 + 0.1])


def test_a_kl_in_the_reward_has_the_gradient_of_the_kl_on_policy():
    logits = tensor(0.3, -0.2, 1.0).requires_grad_()
    reference = tensor(0.5, 0.2, 0.3).log()
    logprobs = logits.log_softmax(0)
    behaviour = logprobs.detach()
    advantages = kl_penalised_advantages(
        torch.zeros(3, dtype=torch.float64), behaviour, reference, everything(reference), 1.0
    )
    ratio = importance_ratio(logprobs, behaviour, everything(reference))
    loss = clipped_surrogate(ratio, advantages, clip_low=0.2, clip_high=0.2)
    (behaviour.exp() * loss).sum().backward()
    exact = logits.detach().requires_grad_()
    exact_logprobs = exact.log_softmax(0)
    (exact_logprobs.exp() * (exact_logprobs - reference)).sum().backward()
    torch.testing.assert_close(logits.grad, exact.grad)


def test_a_weighted_sum_does_not_depend_on_the_order_of_the_tokens():
    values, weights = tensor(1.0, 2.0, 4.0), tensor(0.5, 0.25, 0.125)
    sums = {
        weighted_sum(values[list(order)], weights[list(order)], everything(values)).item()
        for order in itertools.permutations(range(3))
    }
    assert sums == {1.5}
