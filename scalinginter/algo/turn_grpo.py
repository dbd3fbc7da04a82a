# ruff: noqa: N806 (names end in the shape of the tensor)
"""GRPO with credit per turn: a turn is worth the rewards from there on."""

from collections.abc import Sequence

import numpy as np

from scalinginter.algo.advantage import group_advantages, returns_to_go
from scalinginter.algo.estimator import Episode, Estimator, Floats
from scalinginter.config.algorithms import TurnGRPOConfig


class TurnGRPO(Estimator):
    """At turn k the discounted rewards from k on are compared within the group.

    `compare: running` compares the episodes that have a turn k, as RLAnything does (arXiv
    2602.02488). At late turns these are mostly the ones that fail: winners have ended, so failures
    are compared with failures, and look alike. `compare: everyone` keeps an episode that has ended
    in the comparison, with what its last turn brought; with one reward at the end and `gamma: 1`
    that is GRPO.
    """

    def __init__(self, config: TurnGRPOConfig) -> None:
        super().__init__(config)
        self._gamma, self._compare = config.gamma, config.compare
        self._normalize = config.normalize_advantages

    def of_group(self, episodes: Sequence[Episode]) -> list[Floats]:
        returns = [returns_to_go(episode.rewards_K, self._gamma) for episode in episodes]
        advantages = [np.zeros_like(returns_K) for returns_K in returns]
        for turn in range(max(map(len, returns), default=0)):
            last = [min(turn, len(returns_K) - 1) for returns_K in returns]
            running_G = np.array([at == turn for at in last])
            counted_G = running_G if self._compare == "running" else np.array(last) >= 0
            values_G = np.array(
                [
                    returns_K[at] if at >= 0 else 0.0
                    for returns_K, at in zip(returns, last, strict=True)
                ]
            )
            found_G = group_advantages(values_G, counted_G, normalize=self._normalize)
            for index in np.flatnonzero(running_G):
                advantages[index][turn] = found_G[index]
        return advantages
