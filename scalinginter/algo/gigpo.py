# ruff: noqa: N806 (names end in the shape of the tensor)
"""GiGPO: group-in-group policy optimisation (arXiv 2505.10978)."""

from collections.abc import Sequence

import numpy as np

from scalinginter.algo.advantage import group_advantages, returns_to_go
from scalinginter.algo.estimator import Episode, Estimator, Floats, rewards_of
from scalinginter.config.algorithms import GiGPOConfig
from scalinginter.types import Trajectory


class GiGPO(Estimator):
    """An episode's advantage in its group, plus each turn's among the turns that met its state.

    Equation 8: A = A_episode + step_weight * A_step. A_step compares the discounted returns (eq. 6)
    of all turns of the group that answered the same observation (eq. 5 and 7), wherever they stand
    and whichever episode they are from. A state that was met once has A_step 0.

    `state_observations`: how many observations tell a state. One is the paper's choice; an answer
    like "Nothing happens." then makes one state of many, which two tell apart.
    """

    def __init__(self, config: GiGPOConfig) -> None:
        super().__init__(config)
        self._gamma, self._weight = config.gamma, config.step_weight
        self._normalize, self._length = config.normalize_advantages, config.state_observations

    def of_group(self, episodes: Sequence[Episode]) -> list[Floats]:
        of_episodes_G = group_advantages(rewards_of(episodes), normalize=self._normalize)
        returns = [returns_to_go(episode.rewards_K, self._gamma) for episode in episodes]
        met: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        for index, episode in enumerate(episodes):
            for turn, state in enumerate(states(episode.trajectory, self._length)):
                met.setdefault(state, []).append((index, turn))
        advantages = [np.full(e.num_turns, a) for e, a in zip(episodes, of_episodes_G, strict=True)]
        for places in met.values():
            found_P = group_advantages(
                np.array([returns[index][turn] for index, turn in places]),
                normalize=self._normalize,
            )
            for (index, turn), found in zip(places, found_P, strict=True):
                advantages[index][turn] += self._weight * found
        return advantages


def states(trajectory: Trajectory, length: int = 1) -> list[tuple[str, ...]]:
    """Return for each turn the last `length` observations before it, fewer at the start."""
    seen = [trajectory.first_observation, *(turn.observation for turn in trajectory.turns)]
    return [
        tuple(seen[max(0, turn + 1 - length) : turn + 1]) for turn in range(len(trajectory.turns))
    ]
