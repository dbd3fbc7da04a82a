# ruff: noqa: N806 (names end in the shape of the tensor)
"""PPO with a critic (arXiv 1707.06347), its advantages by GAE at token or at turn level."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from scalinginter.algo.estimator import SumOverRanks
from scalinginter.algo.loss import LossBatch, LossTerms, value_loss, weighted_sum
from scalinginter.algo.policy_loss import PolicyLoss
from scalinginter.config.algorithms import PPOConfig
from scalinginter.types import Group, Trajectory


class PPO(PolicyLoss):
    """Every decision has an advantage of its own, from the values of the states around it.

    What is compared is not an episode with its group but a return with the critic's value: groups
    only say which episodes have one task. `train/critic.py` computes values and advantages, with
    `algo/gae.py`.
    """

    def __init__(self, config: PPOConfig) -> None:
        super().__init__(config)
        self.critic = config
        self._ppo = config
        self.uses_every_token = True  # a token without an advantage trains its value all the same

    def advantages(
        self, groups: Sequence[Group], sum_over_ranks: SumOverRanks = dict
    ) -> list[list[NDArray[np.float32]]]:
        """Return zeros [num_turns], which the critic replaces; empty for one that is left out."""
        return [
            [np.zeros(len(t.turns) if self._counts(t) else 0, np.float32) for t in g.trajectories]
            for g in groups
        ]

    def _counts(self, trajectory: Trajectory) -> bool:
        dropped = self._ppo.truncated == "drop" and trajectory.stop.is_truncation
        return not trajectory.stop.is_failure and not dropped

    def loss(self, batch: LossBatch) -> LossTerms:
        """Return the shared policy loss plus the clipped error of the values."""
        terms, values = super().loss(batch), batch.values
        if values is None:
            raise ValueError("PPO needs the values of a critic")
        clip = self._ppo.value_clip
        errors_N = value_loss(values.values, values.old, values.targets, clip)
        mask_N = values.targets.isfinite()
        value = weighted_sum(errors_N, values.weights, mask_N)
        moved_N = (values.values - values.old).detach().abs() > (
            torch.inf if clip is None else clip
        )
        terms.sums["loss/value"] = value.detach()
        terms.sums["loss/value_clip_share"] = weighted_sum(moved_N.float(), values.weights, mask_N)
        return LossTerms(
            terms.loss + self._ppo.value_coefficient * value,
            terms.sums,
            terms.averages,
            terms.maxima,
        )
