# ruff: noqa: N806 (names end in the shape of the tensor)
"""GRPO: group relative policy optimisation (DeepSeekMath, arXiv 2402.03300, section 4.1)."""

from collections.abc import Sequence

from scalinginter.algo.advantage import group_advantages
from scalinginter.algo.estimator import Episode, Estimator, Floats, over_turns, rewards_of
from scalinginter.config.algorithms import DrGRPOConfig, GRPOConfig, GSPOConfig


class GRPO(Estimator):
    """An episode's advantage is its reward against its group; every turn of it shares that."""

    def __init__(self, config: GRPOConfig | DrGRPOConfig | GSPOConfig) -> None:
        super().__init__(config)
        self._normalize = config.normalize_advantages

    def of_group(self, episodes: Sequence[Episode]) -> list[Floats]:
        advantages_G = group_advantages(rewards_of(episodes), normalize=self._normalize)
        return over_turns(advantages_G, episodes)
