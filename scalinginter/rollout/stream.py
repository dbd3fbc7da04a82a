"""Groups that are played while the learner updates: a step takes those that are finished.

    deal (tasks) --begin--> under way --finish--> ready --take--> taken --trained--> forgotten
                    ^                                                |
                    +------ pace: only what can be trained in time --+

A group is a pure function of its number, its task and its horizon: what was under way when a run
was stopped is played again after it is resumed. No group is lost, none is trained twice.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from scalinginter.horizon import Horizon
from scalinginter.rollout.collect import Assignment, Collection, Collector, group_specs
from scalinginter.rollout.lag import lag_metrics
from scalinginter.rollout.pacing import Pace
from scalinginter.types import Group, Task

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ticket:
    """A group that is to be played."""

    number: int  # from 0, over the whole run
    family: str  # the environment's name in the recipe
    position: int  # of the task in the environment's sequence


class Deal(Protocol):
    """Says which group comes next."""

    def draw(self, under_way: Mapping[str, int]) -> Ticket | None:
        """Return the next group; None if no environment may have another one under way.

        `under_way`: groups under way by environment; 0 where one is missing.
        """
        ...

    def task(self, ticket: Ticket) -> Task:
        """Return the task of a group."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what `draw` has changed, as JSON values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        ...


@dataclass(eq=False, slots=True)
class _Entry:
    """A group that has begun."""

    ticket: Ticket
    horizon: int
    began: int  # version of the policy
    play: asyncio.Task[tuple[Group, int]]
    group: Group | None = None  # once it is finished
    retries: int = 0


class GroupStream:
    """Plays groups ahead of the learner, as far as the pace allows.

    All of it runs in one event loop, and only while that runs: in `take` and in `beside`.

    Args:
        collector: Plays the episodes.
        deal: Says which group comes next.
        pace: How far ahead.
        version: Gives the version of the policy that a group would begin with now.
        group_size: Episodes of a group.
        temperature: Of sampling.
        key: Names the run: its stage and seed.
    """

    def __init__(
        self,
        collector: Collector,
        deal: Deal,
        pace: Pace,
        version: Callable[[], int],
        *,
        group_size: int,
        temperature: float,
        key: tuple[int | str, ...],
    ) -> None:
        self._collector, self._deal, self._pace, self._version = collector, deal, pace, version
        self._group_size, self._temperature, self._key = group_size, temperature, key
        self._places = collector.places()
        self._horizons: Mapping[str, Horizon] = {}
        self._again: list[tuple[Ticket, int | None]] = []  # to play again, under this horizon
        self._under_way: dict[int, _Entry] = {}  # by number
        self._ready: list[_Entry] = []  # those of them that are finished, in that order
        self._taken: list[_Entry] = []
        self._learning = False
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()
        self._clock = _Clock()
        self._metrics: dict[str, float] = {}

    async def take(self, horizons: Mapping[str, Horizon]) -> Collection:
        """Return the groups of a step, as soon as there are enough that may be trained.

        Groups that begin from now on are played under `horizons`; others keep theirs. Cancelling
        this coroutine leaves everything under way. What is returned counts as under way until
        `trained` is called. Raises what playing a group has raised.
        """
        self._horizons = horizons
        self._clock.start()
        self._fill()
        while (chosen := self._chosen()) is None:
            self._changed.clear()
            await self._changed.wait()
        self._taken = sorted((self._ready[i] for i in chosen), key=lambda e: e.ticket.number)
        for entry in self._taken:
            self._ready.remove(entry)
            del self._under_way[entry.ticket.number]
        groups = [entry.group for entry in self._taken if entry.group is not None]
        self._clock.lap()
        self._metrics = lag_metrics(groups, self._version(), self._pace.max_staleness)
        self._metrics |= self._load()
        return Collection(groups, sum(entry.retries for entry in self._taken))

    async def beside(self, work: Callable[[], T], *, update: bool = True) -> T:
        """Do some blocking work in a thread, and go on playing groups meanwhile.

        `update`: the work makes the next version of the policy.
        """
        self._learning = update
        self._fill()
        try:
            return await asyncio.get_running_loop().run_in_executor(None, work)
        finally:
            self._learning = False
            if update:
                self._metrics |= self._clock.stop()

    def trained(self) -> None:
        """The groups that `take` has returned are done with."""
        self._taken = []

    async def restart(self) -> None:
        """Play again what is under way, finished or not: the policy that plays it went wrong."""
        tickets = [entry.ticket for entry in self._under_way.values()]
        await self._cancel()
        self._again = [(ticket, None) for ticket in tickets] + self._again

    async def aclose(self) -> None:
        """Abandon what is under way; a state that was saved before has it."""
        await self._cancel()

    def metrics(self) -> dict[str, float]:
        """Return the `async/*` metrics of the last step."""
        return dict(self._metrics)

    def state_dict(self) -> dict[str, Any]:
        """Return what is to be played, and what is under way, as JSON values."""
        begun = [*self._taken, *self._under_way.values()]
        again = [(entry.ticket, entry.horizon) for entry in begun] + self._again
        return {
            "deal": self._deal.state_dict(),
            "again": [[t.number, t.family, t.position, horizon] for t, horizon in again],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state: what was under way is played again."""
        self._deal.load_state_dict(state["deal"])
        self._again = [(Ticket(*ticket), horizon) for *ticket, horizon in state["again"]]
        self._again.sort(key=lambda pair: pair[0].number)

    def _chosen(self) -> list[int] | None:
        if self._failure is not None:
            raise self._failure
        under_way = [entry.began for entry in self._under_way.values()]
        return self._pace.choose(under_way, [entry.began for entry in self._ready], self._version())

    def _fill(self) -> None:
        """Begin as many groups as may begin."""
        version = self._version()
        following = version + self._learning
        while self._pace.may_begin(len(self._under_way), version, following):
            ticket, horizon = self._again.pop(0) if self._again else (self._draw(), None)
            if ticket is None:
                return
            self._begin(ticket, horizon, version)

    def _draw(self) -> Ticket | None:
        return self._deal.draw(Counter(e.ticket.family for e in self._under_way.values()))

    def _begin(self, ticket: Ticket, horizon: int | None, version: int) -> None:
        turns = self._horizons[ticket.family].turns if horizon is None else horizon
        assignment = Assignment(self._deal.task(ticket), turns, ticket.family)
        key = (*self._key, *divmod(ticket.number, self._pace.step))
        specs = group_specs(assignment, key, self._group_size, self._temperature)
        play = asyncio.create_task(self._collector.play_group(specs, self._places))
        entry = self._under_way[ticket.number] = _Entry(ticket, turns, version, play)
        self._clock.plays(+1)
        play.add_done_callback(lambda _: self._ended(entry))

    def _ended(self, entry: _Entry) -> None:
        self._clock.plays(-1)
        if entry.play.cancelled():
            return
        self._failure = self._failure or entry.play.exception()
        if self._failure is None:
            entry.group, entry.retries = entry.play.result()
            self._ready.append(entry)
        self._changed.set()

    async def _cancel(self) -> None:
        plays = [entry.play for entry in self._under_way.values()]
        for play in plays:
            play.cancel()
        await asyncio.gather(*plays, return_exceptions=True)
        self._under_way, self._ready = {}, []

    def _load(self) -> dict[str, float]:
        """What stays under way: long episodes are those that steps leave behind."""
        turns = self._collector.turns_in_play
        return {
            "async/under_way": float(len(self._under_way)),
            "async/ready": float(len(self._ready)),
            "async/turns_in_play_mean": float(np.mean(turns)) if turns else 0.0,
            "async/turns_in_play_max": float(max(turns, default=0)),
        }


class _Clock:
    """Measures who waits, from the start of `take` to the end of the update."""

    def __init__(self) -> None:
        self._playing = 0
        self._idle, self._since = 0.0, time.perf_counter()
        self._started = self._waited = self._idle_before = 0.0

    def plays(self, change: int) -> None:
        """Note that one group more or less is being played."""
        now = time.perf_counter()
        if not self._playing:
            self._idle += now - self._since
        self._playing += change
        self._since = now

    def start(self) -> None:
        """The learner begins to wait."""
        self.plays(0)
        self._started, self._idle_before = time.perf_counter(), self._idle

    def lap(self) -> None:
        """The learner has its groups."""
        self._waited = time.perf_counter() - self._started

    def stop(self) -> dict[str, float]:
        """The update is done."""
        self.plays(0)
        total = max(time.perf_counter() - self._started, 1e-9)
        return {
            "async/learner_idle_share": self._waited / total,
            "async/generation_idle_share": (self._idle - self._idle_before) / total,
        }
