"""From a recipe's `algorithm` block to the object that the trainer works with."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scalinginter.algo.estimator import SumOverRanks
from scalinginter.algo.gigpo import GiGPO
from scalinginter.algo.grpo import GRPO, GRPOTCR
from scalinginter.algo.loss import LossBatch, LossTerms
from scalinginter.algo.ppo import PPO
from scalinginter.algo.reinforce import RLOO, ReinforcePP
from scalinginter.algo.turn_grpo import RLAnything, TurnGRPO
from scalinginter.config.algorithms import AlgorithmConfig, PolicyGradientConfig, PPOConfig
from scalinginter.types import Group


class Algorithm(Protocol):
    """All that the trainer knows of an algorithm."""

    needs_reference: bool  # the loss compares with a frozen copy of the first policy
    needs_entropy_gradient: bool
    uses_every_token: bool  # tokens whose advantage is 0 have a gradient too
    critic: PPOConfig | None  # how a critic's values become advantages; None: no critic

    @property
    def config(self) -> PolicyGradientConfig:
        """The recipe's `algorithm` block."""
        ...

    def advantages(
        self, groups: Sequence[Group], sum_over_ranks: SumOverRanks = dict
    ) -> list[list[NDArray[np.float32]]]:
        """Return per group and trajectory [num_turns]; empty for one that is left out."""
        ...

    def loss(self, batch: LossBatch) -> LossTerms:
        """Return the loss of one micro-batch and its metrics."""
        ...

    def adapt(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Take in the metrics of an update, which are those of all ranks; return more of them."""
        ...

    def state_dict(self) -> dict[str, float]:
        """Return what updates have changed."""
        ...

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Continue from a saved state."""
        ...


ALGORITHMS: dict[str, Any] = {  # the class of each kind; it takes the kind's config
    "grpo": GRPO,
    "dr_grpo": GRPO,
    "gspo": GRPO,
    "grpo_tcr": GRPOTCR,
    "rloo": RLOO,
    "reinforce_pp": ReinforcePP,
    "turn_grpo": TurnGRPO,
    "rlanything": RLAnything,
    "gigpo": GiGPO,
    "ppo": PPO,
}


def make_algorithm(config: AlgorithmConfig) -> Algorithm:
    """Return the algorithm that `config.kind` names."""
    return ALGORITHMS[config.kind](config)
