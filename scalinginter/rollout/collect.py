"""Collect groups of episodes, many at a time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from scalinginter.rollout.episode import EpisodeRunner, EpisodeSpec
from scalinginter.seeds import derive
from scalinginter.types import Group, Task, Trajectory


@dataclass(frozen=True, slots=True)
class CollectPlan:
    """What to collect: every task `group_size` times, under one horizon."""

    tasks: Sequence[Task]
    group_size: int
    horizon: int  # turns
    temperature: float
    key: tuple[int | str, ...]  # names this collection: run seed, stage, step


@dataclass(frozen=True, slots=True)
class Collection:
    """Groups in the order of the plan's tasks, each of full size, failed episodes included."""

    groups: list[Group]
    num_retries: int

    @property
    def trajectories(self) -> list[Trajectory]:
        return [trajectory for group in self.groups for trajectory in group.trajectories]


class Collector:
    """Runs episodes concurrently. A failed one is played again on the same task."""

    def __init__(self, runner: EpisodeRunner, *, max_concurrent: int, max_retries: int) -> None:
        self._runner = runner
        self._max_concurrent, self._max_retries = max_concurrent, max_retries

    async def collect(self, plan: CollectPlan) -> Collection:
        """Play all episodes of the plan; cancelling this coroutine abandons them."""
        specs = [spec for i in range(len(plan.tasks)) for spec in _specs(plan, i)]
        slots = asyncio.Semaphore(self._max_concurrent)
        retries = 0

        async def play(spec: EpisodeSpec) -> Trajectory:
            nonlocal retries
            async with slots:
                trajectory = await self._runner.run(spec)
                for _ in range(self._max_retries):
                    if not trajectory.stop.is_failure:
                        break
                    retries += 1
                    trajectory = await self._runner.run(spec)
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
    task = plan.tasks[number]
    group_id = "/".join(str(part) for part in (*plan.key, number))
    return [
        EpisodeSpec(
            task=task,
            group_id=group_id,
            index=index,
            seed=derive(*plan.key, number, index),
            env_seed=derive(*plan.key, number),
            horizon=plan.horizon,
            temperature=plan.temperature,
        )
        for index in range(plan.group_size)
    ]
