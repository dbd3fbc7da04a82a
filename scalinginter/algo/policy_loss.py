# ruff: noqa: N806 (names end in the shape of the tensor)
"""The loss that the policy-gradient algorithms share."""

from collections.abc import Mapping

import torch
from torch import Tensor

from scalinginter.algo.loss import (
    LossBatch,
    LossTerms,
    adapted_coefficient,
    clip_shares,
    clipped_surrogate,
    dual_clip_share,
    importance_ratio,
    kl_estimate,
    kl_penalised_advantages,
    sequence_ratio,
    weighted_sum,
)
from scalinginter.config.algorithms import PolicyGradientConfig, PPOConfig


class PolicyLoss:
    """Clipped surrogate plus KL less entropy bonus (arXiv 1707.06347, eq. 7; 2402.03300, eq. 3).

    The ratio that is clipped is a token's, or that of the sequence it belongs to (GSPO).
    """

    critic: PPOConfig | None = None  # how values become advantages, where there are values

    def __init__(self, config: PolicyGradientConfig) -> None:
        self._config = config
        self.kl_coefficient = config.kl_coefficient  # of now; it moves where there is a kl_target
        self.needs_reference = config.kl_coefficient > 0
        # Without these terms a token whose advantage is 0 has no gradient and need not be forwarded
        self.uses_every_token = self.needs_reference or config.entropy_bonus > 0
        self.needs_entropy_gradient = config.entropy_bonus > 0

    @property
    def config(self) -> PolicyGradientConfig:
        """The recipe's `algorithm` block."""
        return self._config

    def loss(self, batch: LossBatch) -> LossTerms:
        """Return the loss of one micro-batch and its metrics."""
        config, mask_N, weights_N = self._config, batch.mask, batch.weights
        advantages_N = torch.where(mask_N, batch.advantages, 0.0)
        if self.needs_reference and config.kl_in == "reward":
            advantages_N = kl_penalised_advantages(
                advantages_N, batch.old, _reference(batch), mask_N, self.kl_coefficient
            )
        ratio_N = self._ratio(batch)
        clip = {"clip_low": config.clip_low, "clip_high": config.clip_high}
        surrogate_N = clipped_surrogate(ratio_N, advantages_N, dual=config.dual_clip, **clip)
        if batch.correction is not None:
            surrogate_N = surrogate_N * torch.where(mask_N, batch.correction.detach(), 1.0)
        policy = weighted_sum(surrogate_N, weights_N, mask_N)
        entropy = weighted_sum(batch.entropy, weights_N, mask_N)
        loss = policy - config.entropy_bonus * entropy if config.entropy_bonus else policy
        sums = {"loss/policy": policy.detach()}
        if self.needs_reference:
            kl_N = kl_estimate(batch.logprobs, _reference(batch), mask_N, config.kl_estimator)
            kl = weighted_sum(kl_N, weights_N, mask_N)
            sums["loss/kl"] = kl.detach()
            if config.kl_in == "loss":
                loss = loss + self.kl_coefficient * kl
        detached_N = ratio_N.detach()
        low_N, high_N = clip_shares(detached_N, advantages_N, **clip)
        averages = {
            "loss/entropy": entropy.detach(),
            "loss/ratio_mean": weighted_sum(detached_N, weights_N, mask_N),
            "loss/clip_low_share": weighted_sum(low_N.to(weights_N.dtype), weights_N, mask_N),
            "loss/clip_high_share": weighted_sum(high_N.to(weights_N.dtype), weights_N, mask_N),
        }
        if self.needs_reference:
            averages["kl/mean"] = sums["loss/kl"]
        if config.dual_clip is not None:
            bounded_N = dual_clip_share(detached_N, advantages_N, config.dual_clip)
            averages["loss/dual_clip_share"] = weighted_sum(
                bounded_N.to(weights_N.dtype), weights_N, mask_N
            )
        maxima = {"loss/ratio_max": detached_N.max()} if len(detached_N) else {}
        return LossTerms(loss, sums, averages, maxima)

    def adapt(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Take in the metrics of an update; return the KL coefficient that it was made with."""
        if not self.needs_reference:
            return {}
        used, config = self.kl_coefficient, self._config
        if config.kl_target is not None:
            self.kl_coefficient = adapted_coefficient(
                used, metrics["kl/mean"], target=config.kl_target, gain=config.kl_gain
            )
        return {"kl/coefficient": used}

    def state_dict(self) -> dict[str, float]:
        """Return what `adapt` has changed, for an exact resume."""
        return {"kl_coefficient": self.kl_coefficient}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore what `state_dict` returned; a coefficient that is fixed is the recipe's."""
        if self._config.kl_target is not None:
            self.kl_coefficient = state["kl_coefficient"]

    def _ratio(self, batch: LossBatch) -> Tensor:
        if self._config.ratio == "token":
            return importance_ratio(batch.logprobs, batch.old, batch.mask)
        if batch.sequence_log_ratio is None:
            raise ValueError("ratio: sequence needs the mean log-ratio of every token's sequence")
        return sequence_ratio(batch.logprobs, batch.sequence_log_ratio, batch.mask)


def _reference(batch: LossBatch) -> Tensor:
    if batch.reference is None:
        raise ValueError("kl_coefficient > 0 needs the log-probs of a reference policy")
    return batch.reference
