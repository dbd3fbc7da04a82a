"""Collect groups of episodes, many at a time."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scalinginter.algo.advantage import has_variance
from scalinginter.rollout.episode import EpisodeRunner, EpisodeSpec
from scalinginter.seeds import derive
from scalinginter.types import Group, StopReason, Task, Trajectory


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

    def groups(self) -> list[list[EpisodeSpec]]:
        """Return the episodes of every group that this process plays."""
        size, temperature = self.group_size, self.temperature
        return [
            group_specs(self.assignments[i], (*self.key, i), size, temperature)
            for i in self.positions
        ]


@dataclass(frozen=True, slots=True)
class Collection:
    """Groups in the order of the plan's assignments, of full size, failed episodes included.

    Where a run has several processes, the groups of the others have come without their tokens
    (`Trajectory.elsewhere`). Groups that a step has replaced, because they say nothing, count in
    its costs and in all statistics of episodes, but are not trained.
    """

    groups: list[Group]
    num_retries: int
    dropped: list[Group] = field(default_factory=list)  # replaced

    @property
    def trajectories(self) -> list[Trajectory]:
        """All episodes; those that are trained come first."""
        return [t for group in (*self.groups, *self.dropped) for t in group.trajectories]

    def by_family(self) -> dict[str, list[Trajectory]]:
        """Return the episodes of each environment, by its name in the recipe."""
        episodes: dict[str, list[Trajectory]] = defaultdict(list)
        for trajectory in self.trajectories:
            episodes[trajectory.family].append(trajectory)
        return dict(episodes)


def says_something(group: Group) -> bool:
    """Whether some of a group's rewards differ, failed episodes aside."""
    rewards = [t.reward for t in group.trajectories if not t.stop.is_failure]
    return has_variance(np.array(rewards, dtype=np.float64))


class Collector:
    """Runs episodes concurrently. A failed one is played again on the same task.

    Args:
        runners: The runner of each environment, by its name in the recipe.
        max_concurrent: Episodes at a time, of all environments together.
        limits: Episodes at a time of those environments that have a limit of their own.
        max_retries: Of an episode that failed.
        straggler_timeout_s: How long the rest of a group has once half of it is done; those that
            take longer are cut off as failures of their infrastructure. None: they are waited for.
    """

    def __init__(
        self,
        runners: Mapping[str, EpisodeRunner],
        *,
        max_concurrent: int,
        max_retries: int,
        limits: Mapping[str, int] | None = None,
        straggler_timeout_s: float | None = None,
    ) -> None:
        self._runners, self._limits = runners, dict(limits or {})
        self._max_concurrent, self._max_retries = max_concurrent, max_retries
        self._straggler_timeout_s = straggler_timeout_s

    async def collect(self, plan: CollectPlan) -> Collection:
        """Play this process's share of the plan; cancelling this coroutine abandons it."""
        places = self.places()
        async with asyncio.TaskGroup() as running:
            plays = [running.create_task(self.play_group(specs, places)) for specs in plan.groups()]
        played = [play.result() for play in plays]
        return Collection([group for group, _ in played], sum(retries for _, retries in played))

    def places(self) -> "Places":
        """Return as many places for episodes as there are."""
        return Places(self._max_concurrent, self._limits)

    async def play_group(self, specs: Sequence[EpisodeSpec], places: "Places") -> tuple[Group, int]:
        """Play the episodes of a group; return it and the number of retries.

        Cancelling this coroutine abandons them.
        """
        plays = [asyncio.create_task(self._play(spec, places)) for spec in specs]
        try:
            await _finished(plays, self._straggler_timeout_s)
        finally:
            for play in plays:
                play.cancel()  # no effect on those that are done
            ends = await asyncio.gather(*plays, return_exceptions=True)
        trajectories, retries = [], 0
        for spec, end in zip(specs, ends, strict=True):
            if isinstance(end, asyncio.CancelledError):
                trajectories.append(_cut_off(spec, self._straggler_timeout_s))
            elif isinstance(end, BaseException):
                raise end
            else:
                trajectories.append(end[0])
                retries += end[1]
        return Group(specs[0].group_id, tuple(trajectories)), retries

    async def _play(self, spec: EpisodeSpec, places: "Places") -> tuple[Trajectory, int]:
        runner, retries = self._runners[spec.family], 0
        async with places.one(spec.family):
            trajectory = await runner.run(spec)
            while trajectory.stop.is_failure and retries < self._max_retries:
                retries += 1
                trajectory = await runner.run(spec)
        return trajectory, retries

    @property
    def turns_in_play(self) -> list[int]:
        """Turns so far of every episode that is being played."""
        return [turns for runner in self._runners.values() for turns in runner.turns_in_play]

    @property
    def forwarded_tokens(self) -> int:
        """Tokens that these episodes have pushed through the model so far."""
        return sum(runner.forwarded_tokens for runner in self._runners.values())


class Places:
    """Places for episodes: of all environments together, and of some of them apart."""

    def __init__(self, total: int, limits: Mapping[str, int]) -> None:
        self._all = asyncio.Semaphore(total)
        self._own = {name: asyncio.Semaphore(limit) for name, limit in limits.items()}

    @asynccontextmanager
    async def one(self, family: str) -> AsyncGenerator[None]:
        """Hold a place for an episode of this environment."""
        async with AsyncExitStack() as held:
            if family in self._own:  # first: who waits for it must not hold a common place
                await held.enter_async_context(self._own[family])
            await held.enter_async_context(self._all)
            yield


async def _finished(plays: Sequence[asyncio.Task[Any]], timeout_s: float | None) -> None:
    """Wait until all are done, or until the rest of them has had `timeout_s` after the first half.

    Raises what the first of them raised.
    """
    pending, deadline, now = set(plays), None, asyncio.get_running_loop().time
    while pending:
        left = None if deadline is None else deadline - now()
        done, pending = await asyncio.wait(
            pending, timeout=left, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            return
        for play in done:
            play.result()
        if timeout_s is not None and deadline is None and 2 * len(pending) <= len(plays):
            deadline = now() + timeout_s


def _cut_off(spec: EpisodeSpec, timeout_s: float | None) -> Trajectory:
    return Trajectory(
        task=spec.task,
        group_id=spec.group_id,
        index=spec.index,
        seed=spec.seed,
        horizon=spec.horizon,
        turns=(),
        stop=StopReason.TIMEOUT,
        success=False,
        error=f"half of its group had been done for {timeout_s:g} s (rollout.straggler_timeout_s)",
        family=spec.family,
    )


def group_specs(
    assignment: Assignment, key: tuple[int | str, ...], size: int, temperature: float
) -> list[EpisodeSpec]:
    """Return the episodes of the group that `key` names. Its id is given here, by the sampler."""
    group_id = "/".join(map(str, key))
    return [
        EpisodeSpec(
            task=assignment.task,
            group_id=group_id,
            index=index,
            seed=derive(*key, index),
            env_seed=derive(*key),
            horizon=assignment.horizon,
            temperature=temperature,
            family=assignment.family,
        )
        for index in range(size)
    ]
