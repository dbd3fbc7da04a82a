"""Collect groups of episodes, many at a time."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from scalinginter.rollout.episode import EpisodeRunner, EpisodeSpec
from scalinginter.seeds import derive
from scalinginter.types import Group, Task, Trajectory


@dataclass(frozen=True, slots=True)
class Assignment:
    """One group to play."""

    task: Task
    horizon: int  # turns
    family: str  # the environment's name in the recipe


@dataclass(frozen=True, slots=True)
class CollectPlan:
    """What to collect: every assignment `group_size` times."""

    assignments: Sequence[Assignment]
    group_size: int
    temperature: float
    key: tuple[int | str, ...]  # names this collection: run seed, stage, step
    share: tuple[int, int] = (0, 1)  # (rank, ranks): this process plays every ranks-th assignment

    @property
    def positions(self) -> range:
        """The assignments that this process plays, by their place in the plan."""
        return range(self.share[0], len(self.assignments), self.share[1])


@dataclass(frozen=True, slots=True)
class Collection:
    """Groups in the order of the plan's assignments, of full size, failed episodes included.

    Where a run has several processes, the groups of the others have come without their tokens
    (`Trajectory.elsewhere`).
    """

    groups: list[Group]
    num_retries: int

    @property
    def trajectories(self) -> list[Trajectory]:
        return [trajectory for group in self.groups for trajectory in group.trajectories]

    def by_family(self) -> dict[str, list[Trajectory]]:
        """Return the episodes of each environment, by its name in the recipe."""
        episodes: dict[str, list[Trajectory]] = defaultdict(list)
        for trajectory in self.trajectories:
            episodes[trajectory.family].append(trajectory)
        return dict(episodes)


class Collector:
    """Runs episodes concurrently. A failed one is played again on the same task.

    Args:
        runners: The runner of each environment, by its name in the recipe.
        max_concurrent: Episodes at a time, of all environments together.
        limits: Episodes at a time of those environments that have a limit of their own.
        max_retries: Of an episode that failed.
    """

    def __init__(
        self,
        runners: Mapping[str, EpisodeRunner],
        *,
        max_concurrent: int,
        max_retries: int,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self._runners, self._limits = runners, dict(limits or {})
        self._max_concurrent, self._max_retries = max_concurrent, max_retries

    async def collect(self, plan: CollectPlan) -> Collection:
        """Play this process's share of the plan; cancelling this coroutine abandons it."""
        specs = [spec for i in plan.positions for spec in _specs(plan, i)]
        slots = asyncio.Semaphore(self._max_concurrent)
        own = {name: asyncio.Semaphore(limit) for name, limit in self._limits.items()}
        retries = 0

        async def play(spec: EpisodeSpec) -> Trajectory:
            nonlocal retries
            runner = self._runners[spec.family]
            async with AsyncExitStack() as held:
                if spec.family in own:  # first: who waits for it must not hold a common place
                    await held.enter_async_context(own[spec.family])
                await held.enter_async_context(slots)
                trajectory = await runner.run(spec)
                for _ in range(self._max_retries):
                    if not trajectory.stop.is_failure:
                        break
                    retries += 1
                    trajectory = await runner.run(spec)
                return trajectory

        async with asyncio.TaskGroup() as running:
            plays = [running.create_task(play(spec)) for spec in specs]
        done = [task.result() for task in plays]
        size = plan.group_size
        groups = [
            Group(done[start].group_id, tuple(done[start : start + size]))
            for start in range(0, len(done), size)
        ]
        return Collection(groups, retries)


def _specs(plan: CollectPlan, number: int) -> list[EpisodeSpec]:
    """The episodes of one group. The group's id is given here, by the sampler."""
    assignment = plan.assignments[number]
    group_id = "/".join(str(part) for part in (*plan.key, number))
    return [
        EpisodeSpec(
            task=assignment.task,
            group_id=group_id,
            index=index,
            seed=derive(*plan.key, number, index),
            env_seed=derive(*plan.key, number),
            horizon=assignment.horizon,
            temperature=plan.temperature,
            family=assignment.family,
        )
        for index in range(plan.group_size)
    ]
