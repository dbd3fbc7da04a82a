# ruff: noqa: N803, N815 (names end in the shape of the tensor)
"""What the algorithms without a critic share: which episodes count, and what they are worth."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalinginter.algo.policy_loss import PolicyLoss
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

    @abstractmethod
    def of_group(self, episodes: Sequence[Episode]) -> list[Floats]:
        """Return the advantages [num_turns] of the episodes that count in one group."""

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
        return [self._spread(group) for group in groups]

    def _spread(self, group: Group) -> list[NDArray[np.float32]]:
        episodes = [
            Episode(t, t.reward, np.array([turn.reward for turn in t.turns], dtype=np.float64))
            for t in group.trajectories
            if self._counts(t)
        ]
        found = iter(self.of_group(episodes))
        return [
            next(found).astype(np.float32) if self._counts(t) else np.zeros(0, dtype=np.float32)
            for t in group.trajectories
        ]

    def _counts(self, trajectory: Trajectory) -> bool:
        dropped = self._config.truncated == "drop" and trajectory.stop.is_truncation
        return not trajectory.stop.is_failure and not dropped


def over_turns(advantages_G: Floats, episodes: Sequence[Episode]) -> list[Floats]:
    """Give every turn the advantage of its episode."""
    return [np.full(e.num_turns, a) for e, a in zip(episodes, advantages_G, strict=True)]


def rewards_of(episodes: Sequence[Episode]) -> Floats:
    """Return the reward [G] of each episode."""
    return np.array([episode.reward for episode in episodes], dtype=np.float64)
