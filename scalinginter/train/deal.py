"""Which group comes next where groups are played ahead of the learner."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scalinginter.config.schema import FamilyConfig
from scalinginter.rollout.stream import Ticket
from scalinginter.train.tasks import TaskSampler
from scalinginter.types import Task


class FamilyDeal:
    """Deals groups to the environments of a run by their weights (implements `Deal`).

    Every environment has places of its own, its share of those that there are: a slow one cannot
    take those of the others, so they are trained on more often than their weights say meanwhile.
    Among the environments with a free place the next group goes to the one that is furthest behind
    its weight over the whole run (Webster's method). A quota counts as the share that it is of a
    step.

    Args:
        families: The environments.
        samplers: Of their tasks, by name.
        most: Most groups that may be under way in this process.
        num_tasks: Groups that a step trains on, in all processes.
        share: (rank, ranks): groups and tasks go round the processes, this one has every ranks-th.
    """

    def __init__(
        self,
        families: Sequence[FamilyConfig],
        samplers: Mapping[str, TaskSampler],
        most: int,
        num_tasks: int,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self._samplers, self._share = samplers, share
        self._shares = shares(families, num_tasks)
        self._places = {name: math.ceil(share * most) for name, share in self._shares.items()}
        self._dealt = dict.fromkeys(self._shares, 0)  # groups so far: the next task's position

    def draw(self, under_way: Mapping[str, int]) -> Ticket | None:
        """See `Deal.draw`."""
        free = [f for f, places in self._places.items() if under_way.get(f, 0) < places]
        if not free:
            return None
        behind = max(free, key=lambda name: self._shares[name] / (self._dealt[name] + 0.5))
        rank, ranks = self._share
        number = sum(self._dealt.values()) * ranks + rank
        ticket = Ticket(number, behind, self._dealt[behind] * ranks + rank)
        self._dealt[behind] += 1
        return ticket

    def task(self, ticket: Ticket) -> Task:
        """See `Deal.task`."""
        [task] = self._samplers[ticket.family].take(ticket.position, 1)
        return task

    def state_dict(self) -> dict[str, Any]:
        """Return the number of groups so far by environment."""
        return dict(self._dealt)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self._dealt = dict(state)


def shares(families: Sequence[FamilyConfig], num_tasks: int) -> dict[str, float]:
    """Return the share of each environment in the groups of a step; they sum to 1."""
    by_weight = num_tasks - sum(family.quota for family in families)
    weights = sum(family.weight for family in families)
    return {f.name: (f.quota + by_weight * f.weight / weights) / num_tasks for f in families}
