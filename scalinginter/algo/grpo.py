# ruff: noqa: N806 (names end in the shape of the tensor)
"""GRPO: group relative policy optimisation (DeepSeekMath, arXiv 2402.03300, section 4.1)."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from scalinginter.algo.advantage import group_advantages
from scalinginter.algo.loss import (
    LossBatch,
    LossTerms,
    clip_shares,
    clipped_surrogate,
    importance_ratio,
    kl_estimate,
    kl_penalised_advantages,
    weighted_sum,
)
from scalinginter.config.schema import GRPOConfig
from scalinginter.types import Group, Trajectory


class GRPO:
    """An episode's advantage is its reward against its group; every turn of it shares that."""

    def __init__(self, config: GRPOConfig) -> None:
        self.config = config
        self.needs_reference = config.kl_coefficient > 0
        # Without these terms a token whose advantage is 0 has no gradient and need not be forwarded
        self.uses_every_token = self.needs_reference or config.entropy_bonus > 0
        self.needs_entropy_gradient = config.entropy_bonus > 0
        self.loss_aggregation = config.loss_aggregation

    def advantages(self, groups: Sequence[Group]) -> list[list[NDArray[np.float32]]]:
        """Return per group and trajectory an array [num_turns], constant over the turns.

        A trajectory that is left out (its infrastructure failed, or it was truncated under
        `truncated: drop`) gets an empty array, and so no training rows.

        Raises:
            ValueError: A group of one, or groups of different sizes: the sampler went wrong.
        """
        sizes = {len(group.trajectories) for group in groups}
        if len(sizes) > 1 or 1 in sizes:
            raise ValueError(
                f"GRPO needs groups of one size, at least 2; got sizes {sorted(sizes)}"
            )
        return [self._of_group(group) for group in groups]

    def _of_group(self, group: Group) -> list[NDArray[np.float32]]:
        counted_G = np.array([self._counts(t) for t in group.trajectories], dtype=np.bool_)
        rewards_G = np.array([t.reward for t in group.trajectories], dtype=np.float64)
        advantages_G = group_advantages(
            rewards_G, counted_G, normalize=self.config.normalize_advantages
        )
        return [
            np.full(len(t.turns) if counted else 0, advantage, dtype=np.float32)
            for t, counted, advantage in zip(
                group.trajectories, counted_G, advantages_G, strict=True
            )
        ]

    def _counts(self, trajectory: Trajectory) -> bool:
        dropped = self.config.truncated == "drop" and trajectory.stop.is_truncation
        return not trajectory.stop.is_failure and not dropped

    def loss(self, batch: LossBatch) -> LossTerms:
        """Return the clipped surrogate plus KL less entropy bonus (arXiv 2402.03300, eq. 3)."""
        config, mask_N, weights_N = self.config, batch.mask, batch.weights
        advantages_N = torch.where(mask_N, batch.advantages, 0.0)
        if self.needs_reference and config.kl_in == "reward":
            advantages_N = kl_penalised_advantages(
                advantages_N, batch.behaviour, self._reference(batch), mask_N, config.kl_coefficient
            )
        ratio_N = importance_ratio(batch.logprobs, batch.behaviour, mask_N)
        clip = {"clip_low": config.clip_low, "clip_high": config.clip_high}
        policy = weighted_sum(clipped_surrogate(ratio_N, advantages_N, **clip), weights_N, mask_N)
        entropy = weighted_sum(batch.entropy, weights_N, mask_N)
        loss = policy - config.entropy_bonus * entropy if config.entropy_bonus else policy
        sums = {"loss/policy": policy.detach()}
        if self.needs_reference:
            kl_N = kl_estimate(batch.logprobs, self._reference(batch), mask_N, config.kl_estimator)
            kl = weighted_sum(kl_N, weights_N, mask_N)
            sums["loss/kl"] = kl.detach()
            if config.kl_in == "loss":
                loss = loss + config.kl_coefficient * kl
        detached_N = ratio_N.detach()
        low_N, high_N = clip_shares(detached_N, advantages_N, **clip)
        averages = {
            "loss/entropy": entropy.detach(),
            "loss/ratio_mean": weighted_sum(detached_N, weights_N, mask_N),
            "loss/clip_low_share": weighted_sum(low_N.to(weights_N.dtype), weights_N, mask_N),
            "loss/clip_high_share": weighted_sum(high_N.to(weights_N.dtype), weights_N, mask_N),
        }
        maxima = {"loss/ratio_max": detached_N.max()} if len(detached_N) else {}
        return LossTerms(loss, sums, averages, maxima)

    def _reference(self, batch: LossBatch) -> torch.Tensor:
        if batch.reference is None:
            raise ValueError("kl_coefficient > 0 needs the log-probs of a reference policy")
        return batch.reference
