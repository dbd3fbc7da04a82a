# ruff: noqa: N806 (names end in the shape of the tensor)
"""GRPO: group relative policy optimisation (DeepSeekMath, arXiv 2402.03300, section 4.1)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scalinginter.algo.advantage import group_advantages
from scalinginter.algo.policy_loss import PolicyLoss
from scalinginter.config.algorithms import GRPOConfig
from scalinginter.types import Group, Trajectory


class GRPO(PolicyLoss):
    """An episode's advantage is its reward against its group; every turn of it shares that."""

    def __init__(self, config: GRPOConfig) -> None:
        super().__init__(config)
        self.config = config

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
