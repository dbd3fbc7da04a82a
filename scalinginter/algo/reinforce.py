# ruff: noqa: N806 (names end in the shape of the tensor)
"""REINFORCE with a baseline out of other episodes: leave-one-out, or of the whole step."""

from collections.abc import Sequence

import numpy as np

from scalinginter.algo.advantage import (
    STD_EPSILON,
    group_advantages,
    has_variance,
    leave_one_out_advantages,
)
from scalinginter.algo.estimator import Episode, Estimator, Floats, over_turns, rewards_of
from scalinginter.config.algorithms import ReinforcePPConfig


class RLOO(Estimator):
    """REINFORCE leave-one-out (arXiv 2402.14740, section 3.3).

    An episode is one action, and its baseline is the mean reward of the group's other episodes.
    """

    def of_group(self, episodes: Sequence[Episode]) -> list[Floats]:
        return over_turns(leave_one_out_advantages(rewards_of(episodes)), episodes)


class ReinforcePP(Estimator):
    """REINFORCE++ (arXiv 2501.03262): rewards normalised over all episodes of the step.

    `group_baseline` takes the group's mean away first; then a group whose rewards are all equal
    says nothing, and gets exactly 0.
    """

    def __init__(self, config: ReinforcePPConfig) -> None:
        super().__init__(config)
        self._group_baseline = config.group_baseline

    def of_group(self, episodes: Sequence[Episode]) -> list[Floats]:
        rewards_G = rewards_of(episodes)
        if self._group_baseline:
            rewards_G = group_advantages(rewards_G, normalize=False)
        return over_turns(rewards_G, episodes)

    def of_step(self, groups: Sequence[Sequence[Episode]]) -> list[list[Floats]]:
        worth = [self.of_group(episodes) for episodes in groups]
        each = np.array([turns_K[0] for group in worth for turns_K in group if len(turns_K)])
        if not has_variance(each):
            return [[np.zeros_like(turns_K) for turns_K in group] for group in worth]
        mean = 0.0 if self._group_baseline else each.mean()  # of centred groups it is 0 already
        scale = each.std(ddof=1) + STD_EPSILON
        return [[(turns_K - mean) / scale for turns_K in group] for group in worth]
