"""From a recipe's `algorithm` block to the object that the trainer works with."""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from scalinginter.algo.grpo import GRPO
from scalinginter.algo.loss import LossBatch, LossTerms
from scalinginter.config.algorithms import AlgorithmConfig
from scalinginter.types import Group


class Algorithm(Protocol):
    """All that the trainer knows of an algorithm."""

    needs_reference: bool  # the loss compares with a frozen copy of the first policy
    needs_entropy_gradient: bool
    uses_every_token: bool  # tokens whose advantage is 0 have a gradient too
    loss_aggregation: Literal["token", "sequence"]

    def advantages(self, groups: Sequence[Group]) -> list[list[NDArray[np.float32]]]:
        """Return per group and trajectory [num_turns]; empty for one that is left out."""
        ...

    def loss(self, batch: LossBatch) -> LossTerms:
        """Return the loss of one micro-batch and its metrics."""
        ...


def make_algorithm(config: AlgorithmConfig) -> Algorithm:
    """Return the algorithm that `config.kind` names."""
    return GRPO(config)
