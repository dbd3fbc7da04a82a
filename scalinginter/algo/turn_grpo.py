"""Credit per turn: turn k of an episode is compared with turn k of the others of its group."""

from collections.abc import Sequence

from scalinginter.algo.advantage import returns_to_go, turn_advantages
from scalinginter.algo.estimator import Episode, Estimator, Floats
from scalinginter.config.algorithms import RLAnythingConfig, TurnGRPOConfig


class TurnGRPO(Estimator):
    """GRPO with credit per turn: a turn is worth the discounted rewards from there on.

    `compare: running` compares the episodes that have a turn k, as RLAnything does. Winners end
    early, so failures are compared with failures at late turns, and turns that few episodes reach
    learn little. `compare: everyone` keeps an episode that has ended in the comparison, with what
    its last turn brought; with one reward at the end and `gamma: 1` that is GRPO.
    """

    def __init__(self, config: TurnGRPOConfig) -> None:
        super().__init__(config)
        self._gamma, self._everyone = config.gamma, config.compare == "everyone"
        self._normalize = config.normalize_advantages

    def of_group(self, episodes: Sequence[Episode]) -> list[Floats]:
        returns = [returns_to_go(episode.rewards_K, self._gamma) for episode in episodes]
        return turn_advantages(returns, everyone=self._everyone, normalize=self._normalize)


class RLAnything(Estimator):
    """RLAnything's credit per turn (arXiv 2602.02488), the baseline that `TurnGRPO` is against.

    A turn is worth R_k = O + turn_weight * S_k: the outcome of the whole episode plus what this
    turn alone earned. It is normalised among the episodes that have a turn k.
    """

    def __init__(self, config: RLAnythingConfig) -> None:
        super().__init__(config)
        self._weight, self._normalize = config.turn_weight, config.normalize_advantages

    def of_group(self, episodes: Sequence[Episode]) -> list[Floats]:
        worth = [episode.reward + self._weight * episode.rewards_K for episode in episodes]
        return turn_advantages(worth, everyone=False, normalize=self._normalize)
