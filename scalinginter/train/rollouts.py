"""Where a step's groups come from: played for it, or taken from a stream that plays ahead.

rollout.max_staleness: 0   `InStep`: a step plays its groups, then updates; same seed, same bits
                       k   `Ahead`: groups are played while the learner updates
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import torch

from scalinginter.config.schema import Recipe
from scalinginter.errors import UserError
from scalinginter.horizon import Horizon
from scalinginter.rollout.collect import Assignment, Collection, CollectPlan
from scalinginter.rollout.pacing import Pace
from scalinginter.rollout.stack import RolloutStack
from scalinginter.train.deal import FamilyDeal
from scalinginter.train.ranks import Ranks
from scalinginter.train.sharing import collect, shared
from scalinginter.train.signals import StopSignal
from scalinginter.train.tasks import TaskSampler, share_out

T = TypeVar("T")


class Rollouts(Protocol):
    """Gives the loop the groups of its steps."""

    @property
    def forwarded_tokens(self) -> int:
        """Tokens that training episodes have pushed through the model in this process."""
        ...

    def take(self, step: int, horizons: Mapping[str, Horizon]) -> Collection:
        """Return the groups of a step; new episodes are played under `horizons`.

        Raises `Interrupted` on every rank if a signal came to one.
        """
        ...

    def beside(self, work: Callable[[], T], *, update: bool = True) -> T:
        """Do some work, to its end even after a signal; play on meanwhile where that is possible.

        `update`: the work makes the next version of the policy.
        """
        ...

    def trained(self) -> None:
        """The groups of `take` are done with: until then a checkpoint has them to play again."""
        ...

    def restart(self) -> None:
        """Play again what the policy has played that was taken back."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return metrics of the last step."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what the next groups depend on, as JSON values; every rank calls it."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        ...


def make_rollouts(recipe: Recipe, stack: RolloutStack, stop: StopSignal, ranks: Ranks) -> Rollouts:
    """Make what the recipe asks for."""
    samplers = {f.name: TaskSampler(f.tasks("train"), recipe.seed) for f in stack.families}
    kind = Ahead if recipe.rollout.max_staleness else InStep
    return kind(recipe, stack, samplers, stop, ranks)


class InStep:
    """A step plays its groups while the learner waits."""

    def __init__(
        self,
        recipe: Recipe,
        stack: RolloutStack,
        samplers: Mapping[str, TaskSampler],
        stop: StopSignal,
        ranks: Ranks,
    ) -> None:
        self._recipe, self._stack, self._stop, self._ranks = recipe, stack, stop, ranks
        self._samplers, self._collector = samplers, stack.collector(training=True)
        self._cursors = dict.fromkeys(samplers, 0)  # tasks so far, by environment
        self._taken: dict[str, int] = {}

    @property
    def forwarded_tokens(self) -> int:
        """See `Rollouts.forwarded_tokens`."""
        return self._collector.forwarded_tokens

    def take(self, step: int, horizons: Mapping[str, Horizon]) -> Collection:
        """See `Rollouts.take`."""
        self._stop.finish(self._stack.before_step(step))
        rollout, families = self._recipe.rollout, self._recipe.families
        self._taken = share_out(families, rollout.num_tasks, self._cursors, step)
        plan = CollectPlan(
            assignments=[
                Assignment(task, horizons[name].turns, name)
                for name, count in self._taken.items()
                for task in self._samplers[name].take(self._cursors[name], count)
            ],
            group_size=rollout.group_size,
            temperature=rollout.temperature,
            key=("train", self._recipe.seed, step),
        )
        return collect(self._ranks, self._stop, self._collector, plan)

    def beside(self, work: Callable[[], T], *, update: bool = True) -> T:
        """See `Rollouts.beside`."""
        return work()

    def trained(self) -> None:
        """See `Rollouts.trained`."""
        for name, count in self._taken.items():
            self._cursors[name] += count
        self._taken = {}

    def restart(self) -> None:
        """Nothing was played ahead."""

    def metrics(self) -> dict[str, float]:
        """Who waits for whom is no question here."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """See `Rollouts.state_dict`."""
        return {"cursors": dict(self._cursors)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Rollouts.load_state_dict`."""
        self._cursors = dict(state["cursors"])


class Ahead:
    """A step takes groups from a stream that plays on while the learner updates.

    Every rank has a stream of its own, for its share of every step's groups.
    """

    def __init__(
        self,
        recipe: Recipe,
        stack: RolloutStack,
        samplers: Mapping[str, TaskSampler],
        stop: StopSignal,
        ranks: Ranks,
    ) -> None:
        """Raises `UserError` where the ranks cannot have equal shares."""
        rollout = recipe.rollout
        if rollout.num_tasks % ranks.size:
            raise UserError(
                f"rollout.num_tasks: got {rollout.num_tasks} for {ranks.size} processes; with "
                f"rollout.max_staleness: {rollout.max_staleness} each of them has an equal share, "
                f"so it must be a multiple of {ranks.size}"
            )
        step, ahead = rollout.num_tasks // ranks.size, rollout.overprovision
        limit = None if ahead is None else math.ceil(step * (1 + ahead))
        pace = Pace(step, rollout.max_staleness, limit)
        share = (ranks.rank, ranks.size)
        deal = FamilyDeal(recipe.families, samplers, pace.most, rollout.num_tasks, share)
        self._collector = stack.collector(training=True)
        self._stream = stack.stream(self._collector, deal, pace)
        self._stack, self._stop, self._ranks = stack, stop, ranks

    @property
    def forwarded_tokens(self) -> int:
        """See `Rollouts.forwarded_tokens`."""
        return self._collector.forwarded_tokens

    def take(self, step: int, horizons: Mapping[str, Horizon]) -> Collection:
        """See `Rollouts.take`."""
        self._stop.finish(self._stack.before_step(step))
        own = self._ranks.agree(lambda: self._stop.run(self._stream.take(horizons)))
        return shared(self._ranks, own)

    def beside(self, work: Callable[[], T], *, update: bool = True) -> T:
        """See `Rollouts.beside`."""
        return self._stop.finish(self._stream.beside(_on_this_device(work), update=update))

    def trained(self) -> None:
        """See `Rollouts.trained`."""
        self._stream.trained()

    def restart(self) -> None:
        """See `Rollouts.restart`."""
        self._stop.finish(self._stream.restart())

    def metrics(self) -> dict[str, float]:
        """See `Rollouts.metrics`; of this rank's stream."""
        return self._stream.metrics()

    def state_dict(self) -> dict[str, Any]:
        """See `Rollouts.state_dict`."""
        return {"streams": self._ranks.gather(self._stream.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Rollouts.load_state_dict`. Raises `UserError` for another number of processes."""
        streams = state["streams"]
        if len(streams) != self._ranks.size:
            raise UserError(
                f"the run had {len(streams)} processes and would now have {self._ranks.size}; with "
                "rollout.max_staleness above 0 it goes on with as many as it had: each has groups "
                f"under way. Start it with --num-processes {len(streams)}"
            )
        self._stream.load_state_dict(streams[self._ranks.rank])


def _on_this_device(work: Callable[[], T]) -> Callable[[], T]:
    """Threads begin on the first GPU; the work belongs on that of this process."""
    if not torch.cuda.is_initialized():
        return work
    device = torch.cuda.current_device()

    def there() -> T:
        torch.cuda.set_device(device)
        return work()

    return there
