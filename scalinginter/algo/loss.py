# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""Losses: pure functions of per-token tensors, in torch.

Shape suffix: `_N` tokens, in any order. Every function takes a mask and a weight per token and
returns `sum(weight * value)` over the masked-in tokens: the weights alone decide the aggregation.
Masked-out positions are replaced before any arithmetic, so whatever they hold (NaN, inf) adds
exactly 0 to the value and to every gradient.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True, slots=True)
class LossBatch:
    """The tokens of one micro-batch, as an algorithm's loss sees them. Tensors of shape [N]."""

    logprobs: Tensor  # of the policy that is trained; carries the gradient
    old: Tensor  # log-probs under the policy that the ratio is measured from
    reference: Tensor | None  # log-probs of the frozen reference, where the algorithm needs it
    entropy: Tensor  # nats, of the distribution that the token was drawn from
    advantages: Tensor
    weights: Tensor  # share of the token in the optimizer step's loss
    mask: Tensor  # bool
    values: "ValueBatch | None" = None  # where the algorithm has a critic
    sequence_log_ratio: Tensor | None = None  # mean log(pi / old) of the token's whole sequence
    correction: Tensor | None = None  # weight of each surrogate, where others drew the tokens


@dataclass(frozen=True, slots=True)
class ValueBatch:
    """What a critic's loss needs of the same tokens. Tensors of shape [N]."""

    values: Tensor  # of the critic that is trained; carries the gradient
    old: Tensor  # before the first update of the step
    targets: Tensor  # NaN where no value is trained
    weights: Tensor  # share of the value in the optimizer step's loss


@dataclass(frozen=True, slots=True)
class LossTerms:
    """What an algorithm's loss returns for one micro-batch."""

    loss: Tensor  # scalar with gradient; losses of micro-batches add up
    sums: dict[str, Tensor] = field(default_factory=dict)  # terms of the loss: they add up too
    averages: dict[str, Tensor] = field(default_factory=dict)  # weighted sums: over total weight
    maxima: dict[str, Tensor] = field(default_factory=dict)


def weighted_sum(values_N: Tensor, weights_N: Tensor, mask_N: Tensor) -> Tensor:
    """Return sum(weights * values) over the mask: 0, attached to the graph, if it is empty."""
    return (torch.where(mask_N, values_N, 0.0) * torch.where(mask_N, weights_N, 0.0)).sum()


def importance_ratio(logprobs_N: Tensor, old_N: Tensor, mask_N: Tensor) -> Tensor:
    """Return pi(token) / pi_old(token), and 1 where masked out."""
    return torch.exp(torch.where(mask_N, logprobs_N, 0.0) - torch.where(mask_N, old_N, 0.0))


def sequence_ratio(logprobs_N: Tensor, mean_log_ratio_N: Tensor, mask_N: Tensor) -> Tensor:
    """Return the ratio of each token's sequence: the geometric mean over its tokens.

    GSPO (arXiv 2507.18071), equation 7: s = exp(mean of log(pi / pi_old)). With a gradient through
    the token's own log-prob, s * pi(token) / stop(pi(token)) (equation 14): summed over a sequence
    whose tokens share advantage and weight it is the gradient of equation 7, and tokens may have
    advantages of their own. `mean_log_ratio_N` carries no gradient. 1 where masked out.
    """
    logprobs_N = torch.where(mask_N, logprobs_N, 0.0)
    mean_N = torch.where(mask_N, mean_log_ratio_N.detach(), 0.0)
    return torch.exp(mean_N + logprobs_N - logprobs_N.detach())


def clipped_surrogate(
    ratio_N: Tensor,
    advantages_N: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual: float | None = None,
) -> Tensor:
    """Return the negated clipped surrogate of each token.

    PPO (arXiv 1707.06347), equation 7, with a clip of its own on each side (DAPO, arXiv
    2503.14476, equation 10): -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A).
    With `dual`, max of that minimum and dual * A where A < 0 (dual-clip PPO, arXiv 1912.09729,
    equation 5): a bad token whose ratio is huge is pushed down no harder than by `dual`.
    """
    clipped_N = ratio_N.clamp(1.0 - clip_low, 1.0 + clip_high)
    surrogate_N = torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N)
    if dual is not None:
        bounded_N = torch.maximum(surrogate_N, dual * advantages_N)
        surrogate_N = torch.where(advantages_N < 0, bounded_N, surrogate_N)
    return -surrogate_N


def clip_shares(
    ratio_N: Tensor, advantages_N: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """Return two bool [N]: tokens whose gradient the lower, and the upper clip removes."""
    low_N = (ratio_N < 1.0 - clip_low) & (advantages_N < 0)
    high_N = (ratio_N > 1.0 + clip_high) & (advantages_N > 0)
    return low_N, high_N


def dual_clip_share(ratio_N: Tensor, advantages_N: Tensor, dual: float) -> Tensor:
    """Return bool [N]: tokens whose gradient the dual clip removes."""
    return (ratio_N > dual) & (advantages_N < 0)


def value_loss(values_N: Tensor, old_N: Tensor, targets_N: Tensor, clip: float | None) -> Tensor:
    """Return half the squared error of each value, 0 where the target is NaN.

    With `clip` the larger of that error and the error of old + clamp(value - old, -clip, clip) (as
    in OpenAI Baselines' PPO2): a value that has moved by more has no gradient further away.
    """
    mask_N = targets_N.isfinite()
    values_N, old_N, targets_N = (torch.where(mask_N, x, 0.0) for x in (values_N, old_N, targets_N))
    errors_N = (values_N - targets_N).square()
    if clip is not None:
        near_N = old_N + (values_N - old_N).clamp(-clip, clip)
        errors_N = torch.maximum(errors_N, (near_N - targets_N).square())
    return 0.5 * errors_N


def kl_estimate(
    logprobs_N: Tensor, reference_N: Tensor, mask_N: Tensor, estimator: KLEstimator
) -> Tensor:
    """Estimate KL(pi || reference) per token, for tokens drawn from pi, fit to be minimised.

    With d = log pi - log reference (J. Schulman, "Approximating KL divergence", 2020):
    k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d. Masked-out tokens give 0.

    Differentiating k1 itself is wrong: E[grad log pi] = 0, so its gradient is noise around 0.
    Here k1 keeps its value and takes the gradient d * grad log pi, that of k2, whose expectation
    is the gradient of KL(pi || reference) (score function estimator). The gradient of k3 is, in
    expectation, that of KL(reference || pi), which has the same minimum.
    """
    d_N = torch.where(mask_N, logprobs_N, 0.0) - torch.where(mask_N, reference_N, 0.0)
    if estimator == "k3":
        return torch.exp(-d_N) - 1.0 + d_N
    k2_N = 0.5 * d_N.square()
    return k2_N if estimator == "k2" else k2_N + (d_N - k2_N).detach()


def adapted_coefficient(coefficient: float, kl: float, *, target: float, gain: float) -> float:
    """Return the KL coefficient of the next update (arXiv 1909.08593, section 2.2).

    e = clip(kl / target - 1, -0.2, 0.2); coefficient * (1 + gain * e). `kl` and `target` are in
    nats a token here; the paper has them for a whole answer, and a gain of 0.1. A KL that is not
    finite changes nothing.
    """
    if not math.isfinite(kl):
        return coefficient
    error = min(max(kl / target - 1.0, -0.2), 0.2)
    return coefficient * (1.0 + gain * error)


def kl_penalised_advantages(
    advantages_N: Tensor,
    old_N: Tensor,
    reference_N: Tensor,
    mask_N: Tensor,
    coefficient: float,
) -> Tensor:
    """Return advantages less coefficient * k1 of each token: the KL as a part of the reward.

    The penalty of a token is charged to that token alone (a discount of 0), after the group's
    normalisation, so that its scale is that of the coefficient whatever the rewards are. k1 is
    taken between the old policy, that sampled, and the reference, and carries no gradient.
    """
    k1_N = torch.where(mask_N, old_N, 0.0) - torch.where(mask_N, reference_N, 0.0)
    return torch.where(mask_N, advantages_N, 0.0) - coefficient * k1_N.detach()
