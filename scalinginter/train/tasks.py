"""Which tasks a step trains on: epochs over the training split, each in an order of its own."""

from collections.abc import Sequence

import numpy as np

from scalinginter.seeds import derive
from scalinginter.types import Task


class TaskSampler:
    """Every task once per epoch; position `i` of the sequence is a function of (seed, i)."""

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        self._tasks, self._seed = tasks, seed

    def take(self, cursor: int, count: int) -> list[Task]:
        """Return `count` tasks from position `cursor` on."""
        return [self._at(position) for position in range(cursor, cursor + count)]

    def _at(self, position: int) -> Task:
        epoch, offset = divmod(position, len(self._tasks))
        return self._tasks[int(self._order(epoch)[offset])]

    def _order(self, epoch: int) -> np.ndarray:
        generator = np.random.default_rng(derive("tasks", self._seed, epoch))
        return generator.permutation(len(self._tasks))
