# ruff: noqa: N803, N806, N815 (names end in the shape of the tensor)
"""What the algorithms without a critic share: which episodes count, and what they are worth.

Shape suffixes: `_G` episodes of a group, `_K` turns of an episode.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalinginter.algo.advantage import EQUAL_REWARDS, STD_EPSILON
from scalinginter.algo.policy_loss import PolicyLoss
from scalinginter.config.algorithms import EstimatorConfig
from scalinginter.types import Group, Trajectory

Floats = NDArray[np.float64]
SumOverRanks = Callable[[Mapping[str, float]], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode as an estimator sees it. An array [K] has an entry per turn."""

    trajectory: Trajectory
    reward: float  # of the episode
    rewards_K: Floats  # of its turns

    @property
    def num_turns(self) -> int:
        return len(self.rewards_K)


class Estimator(PolicyLoss):
    """Turns the rewards of groups into an advantage per turn.

    Only episodes that count reach `of_group`: not those whose infrastructure failed, and not the
    truncated ones under `truncated: drop`.
    """

    def __init__(self, config: EstimatorConfig) -> None:
        super().__init__(config)
        self._by_task = config.normalize_by_task

    @abstractmethod
    def of_group(self, episodes: Sequence[Episode]) -> list[Floats]:
        """Return the advantages [num_turns] of the episodes that count in one group."""

    def of_step(self, groups: Sequence[Sequence[Episode]]) -> list[list[Floats]]:
        """Return the same for all groups of a step, those of other processes included."""
        return [self.of_group(episodes) for episodes in groups]

    def advantages(
        self, groups: Sequence[Group], sum_over_ranks: SumOverRanks = dict
    ) -> list[list[NDArray[np.float32]]]:
        """Return per group and trajectory an array [num_turns].

        A trajectory that does not count gets an empty array, and so no training rows.

        Args:
            groups: Of one step, of all processes; those of the others without contents.
            sum_over_ranks: Adds up numbers by name, for what is normalised over the whole step.

        Raises:
            ValueError: A group of one, or groups of different sizes: the sampler went wrong.
        """
        sizes = {len(group.trajectories) for group in groups}
        if len(sizes) > 1 or 1 in sizes:
            raise ValueError(
                f"an algorithm needs groups of one size, at least 2; got sizes {sorted(sizes)}"
            )
        counted = [[t for t in group.trajectories if self._counts(t)] for group in groups]
        found = [
            list(map(_without_rounding, group))
            for group in self.of_step([[_episode(t) for t in each] for each in counted])
        ]
        if self._by_task:
            found = normalize_by_task(counted, found, sum_over_ranks)
        return [
            self._spread(group, advantages) for group, advantages in zip(groups, found, strict=True)
        ]

    def _spread(self, group: Group, advantages: Sequence[Floats]) -> list[NDArray[np.float32]]:
        remaining = iter(advantages)
        return [
            next(remaining).astype(np.float32) if self._counts(t) else np.zeros(0, np.float32)
            for t in group.trajectories
        ]

    def _counts(self, trajectory: Trajectory) -> bool:
        dropped = self._config.truncated == "drop" and trajectory.stop.is_truncation
        return not trajectory.stop.is_failure and not dropped


def normalize_by_task(
    groups: Sequence[Sequence[Trajectory]],
    advantages: Sequence[Sequence[Floats]],
    sum_over_ranks: SumOverRanks,
) -> list[list[Floats]]:
    """Bring the advantages of each environment's tokens to mean 0 and deviation 1 over a step.

    AgentRL (arXiv 2510.04206), section 3.3: (A - mean) / std over all tokens of a task,
    so that an environment with large advantages does not drown one with small ones. Tokens whose
    advantage is 0 say nothing; they are left out of mean and deviation and stay at 0 exactly. (With
    them inside, groups that all won and groups that all lost get the same push, away from 0.)

    Args:
        groups: The episodes that count, per group, of all processes.
        advantages: [num_turns] of each of them.
        sum_over_ranks: Adds up numbers by name; the tokens of an episode count where it was played.
    """
    moments: dict[str, float] = {}
    for trajectories, found in zip(groups, advantages, strict=True):
        for trajectory, values_K in zip(trajectories, found, strict=True):
            own = 0.0 if trajectory.elsewhere else 1.0
            tokens_K = own * _trained_tokens(trajectory) * (values_K != 0)
            for power in range(3):
                name = f"{trajectory.family}/{power}"
                moments[name] = moments.get(name, 0.0) + float((tokens_K * values_K**power).sum())
    moments = sum_over_ranks(moments)

    def normalized(trajectory: Trajectory, values_K: Floats) -> Floats:
        count, total, squares = (moments[f"{trajectory.family}/{power}"] for power in range(3))
        if not count:
            return values_K
        mean = total / count
        deviation = max(squares / count - mean**2, 0.0) ** 0.5 + STD_EPSILON
        return np.where(values_K != 0, (values_K - mean) / deviation, 0.0)

    return [
        [normalized(t, values_K) for t, values_K in zip(trajectories, found, strict=True)]
        for trajectories, found in zip(groups, advantages, strict=True)
    ]


def _trained_tokens(trajectory: Trajectory) -> Floats:
    """Return per turn [K] the tokens that are trained."""
    return np.array(
        [
            turn.completion.trained * (len(turn.completion.forced) - sum(turn.completion.forced))
            for turn in trajectory.turns
        ],
        dtype=np.float64,
    )


def _episode(trajectory: Trajectory) -> Episode:
    rewards_K = np.array([turn.reward for turn in trajectory.turns], dtype=np.float64)
    return Episode(trajectory, trajectory.reward, rewards_K)


def _without_rounding(advantages_K: Floats) -> Floats:
    """An episode that is as good as its baseline has an advantage of 0, not of 1e-17."""
    return np.where(np.abs(advantages_K) > EQUAL_REWARDS, advantages_K, 0.0)


def over_turns(advantages_G: Floats, episodes: Sequence[Episode]) -> list[Floats]:
    """Give every turn the advantage of its episode."""
    return [np.full(e.num_turns, a) for e, a in zip(episodes, advantages_G, strict=True)]


def rewards_of(episodes: Sequence[Episode]) -> Floats:
    """Return the reward [G] of each episode."""
    return np.array([episode.reward for episode in episodes], dtype=np.float64)
