"""Tokens that the policy of now did not draw: what the loss takes as the old policy, and weights.

    parity     pi_old is what the engine recorded; the ratio of the loss starts at 1
    no parity  pi_old is scored by the learner before its first optimizer step; the surrogate is
               weighed by pi_old / pi_drew (decoupled PPO, arXiv 2110.00641 and 2505.24298)

Shape suffix: `_N` trained tokens of a micro-batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from scalinginter.algo.correction import correction_weights, importance
from scalinginter.config.algorithms import PolicyGradientConfig
from scalinginter.train.across import AcrossRanks
from scalinginter.train.sequences import Sequences


def recomputes(config: PolicyGradientConfig, probe: Callable[[], float]) -> bool:
    """Return whether the learner scores the tokens of an update itself before it begins.

    `probe` measures the largest difference between log-probs of learner and engine in a part of
    them. It costs a forward pass, and is asked only where the answer depends on it.
    """
    if config.old_logprobs == "auto":
        return config.correction != "none" and not probe() <= config.parity_gap  # NaN: no parity
    return config.old_logprobs == "recompute"


@dataclass(frozen=True, slots=True)
class OldPolicy:
    """What the learner says of one optimizer step's tokens. Lists: per micro-batch."""

    logprobs: list[Tensor]  # [N]
    weights: list[Tensor]  # [N], of the surrogates; none without a correction
    sums: dict[str, float] = field(default_factory=dict)  # over all ranks, by share in the loss
    largest: float = 1.0  # weight before truncation, on all ranks

    @property
    def masks_everything(self) -> bool:
        """Whether no token is left that the correction lets through."""
        return bool(self.sums) and self.sums["masked"] >= self.sums["all"]


def score_old_policy(
    logprobs: list[Tensor],
    behaviour: Sequence[Tensor],
    shares: Sequence[Tensor],
    total: float,
    sequences: Sequences | None,
    config: PolicyGradientConfig,
    across: AcrossRanks,
) -> OldPolicy:
    """Weigh the tokens of an optimizer step by what the learner says of them. All ranks call it.

    Tokens that are masked leave the loss's normaliser: the others are scaled up by as much.

    Args:
        logprobs: The learner's, per micro-batch [N].
        behaviour: The engine's.
        shares: Of the tokens in the loss; 0 in idle micro-batches.
        total: The shares of all tokens on all ranks, those that are not forwarded included.
        sequences: Which tokens belong together, unless they are weighed one by one.
        config: The recipe's `algorithm` block.
        across: Adds up numbers of all ranks.
    """
    if config.correction == "none":
        return OldPolicy(logprobs, [])
    logs = [own_N - drawn_N for own_N, drawn_N in zip(logprobs, behaviour, strict=True)]
    if sequences is not None and config.correction != "token":
        sum_up = config.correction == "sequence"
        logs = sequences.sums(logs) if sum_up else sequences.means(logs)
    masks = config.correction == "geometric_mask"
    bound = torch.inf if masks else config.correction_max
    raw = [importance(log_N) for log_N in logs]
    weights = [correction_weights(log_N, config) for log_N in logs]
    found = {
        "weight": weights,
        "masked": [(weight_N == 0).float() for weight_N in weights],
        "truncated": [(raw_N > bound).float() for raw_N in raw],
        "all": [torch.ones_like(weight_N) for weight_N in weights],
    }
    own = [_weighed(values, shares) for values in found.values()]
    sums = dict(zip(found, across.sum(own), strict=True))
    present = [raw_N.max() for raw_N, share_N in zip(raw, shares, strict=True) if share_N.any()]
    largest = across.most(float(max(present, default=0.0)))
    if masks and sums["masked"] < sums["all"]:
        scale = total / (total - sums["masked"])
        weights = [weight_N * scale for weight_N in weights]
    return OldPolicy(logprobs, weights, sums, largest)


def correction_metrics(
    config: PolicyGradientConfig, minibatches: Sequence[OldPolicy | None]
) -> dict[str, float]:
    """Return which way an update has gone, and what that did to its tokens.

    correction/weight_mean: of the weights as they were used; weight_max: of those before they were
    truncated; masked_share, truncated_share: of the tokens. All by the tokens' share in the loss.
    Where pi_old is what the engine recorded all weights are 1.
    """
    scored = [old for old in minibatches if old is not None]
    metrics = {"update/old_logprobs_recomputed": float(bool(scored))}
    if config.correction == "none":
        return metrics
    sums = {name: sum(s.sums[name] for s in scored) for name in scored[0].sums} if scored else {}
    total = sums.get("all", 1.0)
    return metrics | {
        "correction/weight_mean": sums.get("weight", 1.0) / total,
        "correction/weight_max": max((s.largest for s in scored), default=1.0),
        "correction/masked_share": sums.get("masked", 0.0) / total,
        "correction/truncated_share": sums.get("truncated", 0.0) / total,
    }


def _weighed(values: Sequence[Tensor], shares: Sequence[Tensor]) -> float:
    return sum(
        float(torch.dot(value_N.double(), share_N.double()))
        for value_N, share_N in zip(values, shares, strict=True)
    )
