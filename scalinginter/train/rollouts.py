"""Where a step's groups come from: played for it, or taken from a stream that plays ahead.

rollout.max_staleness: 0   `InStep`: a step plays its groups, then updates; same seed, same bits
                       k   `Ahead`: groups are played while the learner updates
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import torch

from scalinginter.config.algorithms import EstimatorConfig
from scalinginter.config.schema import Recipe
from scalinginter.errors import UserError
from scalinginter.horizon import Horizon
from scalinginter.rollout.collect import Assignment, Collection, CollectPlan, says_something
from scalinginter.rollout.pacing import Pace
from scalinginter.rollout.stack import RolloutStack
from scalinginter.train.deal import FamilyDeal
from scalinginter.train.ranks import Ranks
from scalinginter.train.sharing import collect, shared
from scalinginter.train.signals import StopSignal
from scalinginter.train.tasks import TaskSampler, share_out
from scalinginter.types import Group

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
    """A step plays its groups while the learner waits.

    Where the recipe says so (`max_refills`), groups whose rewards are all equal are replaced by new
    ones of the same environment, that often at most (dynamic sampling, DAPO, arXiv 2503.14476,
    section 3.2). What then still says nothing is left out. Every rank has all outcomes and comes to
    the same end.
    """

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
        algorithm = recipe.algorithm
        self._refills = algorithm.max_refills if isinstance(algorithm, EstimatorConfig) else 0
        self._cursors = dict.fromkeys(samplers, 0)  # tasks so far, by environment
        self._shares = dict(self._cursors)  # those of them that were a step's own, not refills
        self._taken: dict[str, int] = {}  # of the step that is being taken: both kinds
        self._share: dict[str, int] = {}
        self._metrics: dict[str, float] = {}

    @property
    def forwarded_tokens(self) -> int:
        """See `Rollouts.forwarded_tokens`."""
        return self._collector.forwarded_tokens

    def take(self, step: int, horizons: Mapping[str, Horizon]) -> Collection:
        """See `Rollouts.take`."""
        self._stop.finish(self._stack.before_step(step))
        recipe = self._recipe
        self._taken = dict.fromkeys(self._cursors, 0)
        self._share = share_out(recipe.families, recipe.rollout.num_tasks, self._shares, step)
        key: tuple[int | str, ...] = ("train", recipe.seed, step)
        played = self._play(self._share, horizons, key)
        return self._refilled(played, horizons, key) if self._refills else played

    def _refilled(
        self, played: Collection, horizons: Mapping[str, Horizon], key: tuple[int | str, ...]
    ) -> Collection:
        """Play new groups for those that say nothing, and for those of them that do not either."""
        groups: list[Group] = []
        dropped: list[Group] = []
        retries, number = 0, 0
        while True:
            silent = [group for group in played.groups if not says_something(group)]
            groups += [group for group in played.groups if says_something(group)]
            dropped += silent
            retries += played.num_retries
            if not silent or number == self._refills:
                break
            number += 1
            missing = Counter(group.trajectories[0].family for group in silent)
            played = self._play(missing, horizons, (*key, f"refill{number}"))
        refilled = sum(self._taken.values()) - sum(self._share.values())
        self._metrics = {
            "rollout/refilled_groups": float(refilled),
            "rollout/dropped_groups": float(len(dropped)),
        }
        return Collection(groups, retries, dropped)

    def _play(
        self,
        counts: Mapping[str, int],
        horizons: Mapping[str, Horizon],
        key: tuple[int | str, ...],
    ) -> Collection:
        """Play the next tasks of each environment, `counts` of them."""
        rollout, assignments = self._recipe.rollout, []
        for name, count in counts.items():
            tasks = self._samplers[name].take(self._cursors[name] + self._taken[name], count)
            assignments += [Assignment(task, horizons[name].turns, name) for task in tasks]
            self._taken[name] += count
        plan = CollectPlan(assignments, rollout.group_size, rollout.temperature, key)
        return collect(self._ranks, self._stop, self._collector, plan)

    def beside(self, work: Callable[[], T], *, update: bool = True) -> T:
        """See `Rollouts.beside`."""
        return work()

    def trained(self) -> None:
        """See `Rollouts.trained`."""
        for name in self._taken:
            self._cursors[name] += self._taken[name]
            self._shares[name] += self._share[name]
        self._taken, self._share = {}, {}

    def restart(self) -> None:
        """Nothing was played ahead."""

    def metrics(self) -> dict[str, float]:
        """Return what was refilled, where the recipe asks for it."""
        return dict(self._metrics)

    def state_dict(self) -> dict[str, Any]:
        """See `Rollouts.state_dict`."""
        return {"cursors": dict(self._cursors), "shares": dict(self._shares)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Rollouts.load_state_dict`."""
        self._cursors, self._shares = dict(state["cursors"]), dict(state["shares"])


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
