"""How far generation may run ahead of the learner, and which groups a step may train on.

Staleness is counted in versions of the policy: an episode that began under version 3 and is trained
by the update that makes version 6 of version 5 is 2 behind. It is bounded by pacing alone: a group
begins only if it can be trained in time with everything that is under way, so that nothing has to
be thrown away.

    version           0        1        2          `step` groups are trained at each version
    begins at 0       | step   | step   |          max_staleness 1: at most two steps' groups,
    trained at        0        1                   the second of which is trained one version late
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """The rule of a run.

    Args:
        step: Groups that a step trains on.
        max_staleness: Versions that a group may be behind when it is trained.
        limit: Most groups that may be under way, `step` at least. None: as many as staleness lets.
    """

    step: int
    max_staleness: int
    limit: int | None = None

    @property
    def most(self) -> int:
        """Most groups that can be under way at a time."""
        most = self.step * (self.max_staleness + 1)
        return most if self.limit is None else min(most, self.limit)

    def may_begin(self, under_way: int, version: int, next_version: int) -> bool:
        """Whether one more group may begin.

        Args:
            under_way: Groups that have begun and are not trained yet.
            version: Of the policy that the group would begin with.
            next_version: Of the policy that the next step will update; one more than `version`
                while an update runs.
        """
        waits = next_version + under_way // self.step - version  # if all those are trained first
        return waits <= self.max_staleness and (self.limit is None or under_way < self.limit)

    def choose(
        self, under_way: Sequence[int], ready: Sequence[int], version: int
    ) -> list[int] | None:
        """Choose the groups of a step at `version` among the finished ones.

        Those that finished first, unless older ones would then come too late: for every deadline
        there have to be steps enough for the groups that remain (earliest deadline first).

        Args:
            under_way: The version that each group began with, finished or not.
            ready: The same of the finished ones, in the order in which they finished.

        Returns:
            Places in `ready`, ascending, or None: the step has to wait.
        """
        chosen: list[int] = []
        for began in sorted(set(under_way)):
            later = max(0, began + self.max_staleness - version)  # steps that may come before it
            due = sum(other <= began for other in under_way) - later * self.step
            missing = min(due, self.step) - len(chosen)
            if missing > 0:
                found = self._first(ready, chosen, began, missing)
                if len(found) < missing:
                    return None
                chosen += found
        rest = self._first(ready, chosen, None, self.step - len(chosen))
        chosen += rest
        return sorted(chosen) if len(chosen) == self.step else None

    @staticmethod
    def _first(
        ready: Sequence[int], chosen: Sequence[int], latest: int | None, count: int
    ) -> list[int]:
        free = [i for i in range(len(ready)) if i not in chosen]
        return [i for i in free if latest is None or ready[i] <= latest][: max(0, count)]
