# ruff: noqa: N806 (names end in the shape of the tensor)
"""GRPO: group relative policy optimisation (DeepSeekMath, arXiv 2402.03300, section 4.1)."""

from collections.abc import Sequence

import numpy as np

from scalinginter.algo.advantage import group_advantages, overlong_penalty
from scalinginter.algo.estimator import Episode, Estimator, Floats, over_turns, rewards_of
from scalinginter.config.algorithms import DrGRPOConfig, GRPOConfig, GRPOTCRConfig, GSPOConfig


class GRPO(Estimator):
    """An episode's advantage is its reward against its group; every turn of it shares that."""

    def __init__(self, config: GRPOConfig | DrGRPOConfig | GSPOConfig | GRPOTCRConfig) -> None:
        super().__init__(config)
        self._normalize = config.normalize_advantages

    def of_group(self, episodes: Sequence[Episode]) -> list[Floats]:
        advantages_G = group_advantages(rewards_of(episodes), normalize=self._normalize)
        return over_turns(advantages_G, episodes)


class GRPOTCR(GRPO):
    """GRPO-TCR (DemyAgent, arXiv 2510.11701): GRPO whose rewards pay for the episode's length."""

    def __init__(self, config: GRPOTCRConfig) -> None:
        super().__init__(config)
        self._most, self._cache = config.overlong_tokens, config.overlong_cache

    def of_group(self, episodes: Sequence[Episode]) -> list[Floats]:
        lengths_G = np.array([e.trajectory.num_generated_tokens for e in episodes])
        rewards_G = rewards_of(episodes) + overlong_penalty(lengths_G, self._most, self._cache)
        return over_turns(group_advantages(rewards_G, normalize=self._normalize), episodes)
