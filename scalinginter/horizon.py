"""Horizon schedules: how many turns an episode may take, at each step of training.

A schedule is asked once before a step (`horizon`) and told once after it (`observe`). Whatever it
remembers is in `state_dict`, so a resumed run asks and gets the same as an uninterrupted one.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from scalinginter.config.horizon_blocks import (
    FixedHorizon,
    HorizonConfig,
    LinearHorizon,
    StagedHorizon,
    SuccessGatedHorizon,
)


@dataclass(frozen=True, slots=True)
class Horizon:
    """The limit in force: turns per episode, and which stage of the schedule it belongs to."""

    turns: int
    stage: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far training is before a step."""

    step: int  # steps taken so far
    fraction: float = 0.0  # share of the run's budget that is spent, from 0 to 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a schedule may know of an episode."""

    horizon: int  # that the episode ran under, in turns
    success: bool


class HorizonSchedule(Protocol):
    """Gives the horizon of each step."""

    def horizon(self, progress: Progress) -> Horizon:
        """Return the horizon of the step that starts now."""
        ...

    def observe(self, outcomes: Iterable[Outcome]) -> None:
        """Take note of the step's episodes (infrastructure failures are left out by the loop)."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that `observe` has changed, as JSON values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        ...


class _Stateless:
    """A schedule that depends on the progress alone."""

    def observe(self, outcomes: Iterable[Outcome]) -> None:
        """Nothing to remember."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


class Fixed(_Stateless):
    """One horizon throughout."""

    def __init__(self, config: FixedHorizon) -> None:
        self._horizon = Horizon(config.turns)

    def horizon(self, progress: Progress) -> Horizon:
        return self._horizon


class Staged(_Stateless):
    """A list of horizons (ScalingInter-RL, arXiv 2509.08755, section 3.3).

    Stage i starts at step `i * every`, at step `at_step[i]`, or when the share `at_fraction[i]` of
    the budget is spent.
    """

    def __init__(self, config: StagedHorizon) -> None:
        self._turns = config.stages
        self._by_fraction = config.at_fraction is not None
        if config.at_fraction is not None:
            self._starts: list[float] = list(config.at_fraction)
        elif config.at_step is not None:
            self._starts = list(config.at_step)
        else:
            assert config.every is not None, "checked by the schema"
            self._starts = [i * config.every for i in range(len(config.stages))]

    def horizon(self, progress: Progress) -> Horizon:
        position = progress.fraction if self._by_fraction else progress.step
        stage = sum(start <= position for start in self._starts) - 1
        return Horizon(self._turns[stage], stage)


class Linear(_Stateless):
    """A straight line from `start` to `end`, rounded half up, then `end`."""

    def __init__(self, config: LinearHorizon) -> None:
        self._config = config

    def horizon(self, progress: Progress) -> Horizon:
        config = self._config
        if config.over_steps is not None:
            share = progress.step / config.over_steps
        else:
            assert config.over_fraction is not None, "checked by the schema"
            share = progress.fraction / config.over_fraction
        turns = config.start + (config.end - config.start) * min(1.0, share)
        return Horizon(int(turns + 0.5), stage=abs(int(turns + 0.5) - config.start))


class SuccessGated:
    """Raises the horizon once the policy succeeds often enough under the one in force.

    Only episodes that ran under the horizon in force count. The rate is over the episodes of the
    last `window` steps; on `patience` steps in a row it must be at least `threshold`.
    """

    def __init__(self, config: SuccessGatedHorizon) -> None:
        self._config = config
        self._stage = 0
        self._steps = 0  # observed in this stage
        self._passes = 0  # steps in a row on which the rate was high enough
        self._window: deque[tuple[int, int]] = deque(maxlen=config.window)  # successes, episodes

    def horizon(self, progress: Progress) -> Horizon:
        return Horizon(self._config.stages[self._stage], self._stage)

    def observe(self, outcomes: Iterable[Outcome]) -> None:
        in_force = self._config.stages[self._stage]
        wins = [outcome.success for outcome in outcomes if outcome.horizon == in_force]
        self._window.append((sum(wins), len(wins)))
        self._steps += 1
        successes, episodes = (sum(column) for column in zip(*self._window, strict=True))
        passed = episodes > 0 and successes / episodes >= self._config.threshold
        self._passes = self._passes + 1 if passed else 0
        if self._stage + 1 < len(self._config.stages) and self._ready():
            self._stage += 1
            self._steps = self._passes = 0
            self._window.clear()

    def _ready(self) -> bool:
        config = self._config
        if config.max_steps_per_stage is not None and self._steps >= config.max_steps_per_stage:
            return True
        return self._passes >= config.patience and self._steps >= config.min_steps_per_stage

    def state_dict(self) -> dict[str, Any]:
        return {
            "stage": self._stage,
            "steps": self._steps,
            "passes": self._passes,
            "window": [list(entry) for entry in self._window],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._stage, self._steps = state["stage"], state["steps"]
        self._passes = state["passes"]
        self._window.clear()
        self._window.extend((wins, episodes) for wins, episodes in state["window"])


def make_schedule(config: HorizonConfig) -> HorizonSchedule:
    """Make the schedule that a recipe's horizon block describes."""
    match config:
        case FixedHorizon():
            return Fixed(config)
        case StagedHorizon():
            return Staged(config)
        case LinearHorizon():
            return Linear(config)
        case SuccessGatedHorizon():
            return SuccessGated(config)
