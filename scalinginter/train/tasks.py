"""Which tasks a step trains on, and how its places are shared among environments."""

from collections.abc import Mapping, Sequence

import numpy as np

from scalinginter.config.schema import FamilyConfig
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


def share_out(
    families: Sequence[FamilyConfig], num_tasks: int, taken: Mapping[str, int], step: int
) -> dict[str, int]:
    """Return how many of a step's `num_tasks` tasks each environment gets, by name.

    Every quota first. The rest goes, place by place, to the environment that is furthest behind its
    weight over all the steps so far (`taken`: tasks of the `step` steps before this one), so that a
    weight too small for one place a step still gets its places (Webster's method).
    """
    counts = {family.name: family.quota for family in families}
    by_weight = {f.name: taken.get(f.name, 0) - f.quota * step for f in families}
    for _ in range(num_tasks - sum(counts.values())):
        behind = max(families, key=lambda f: f.weight / (by_weight[f.name] + 0.5))
        counts[behind.name] += 1
        by_weight[behind.name] += 1
    return counts
