"""The horizon of every environment of a run: a schedule each, scaled to its own turns."""

from collections.abc import Mapping, Sequence
from typing import Any

from scalinginter.config.schema import Recipe
from scalinginter.horizon import Horizon, Outcome, Progress, make_schedule
from scalinginter.types import Trajectory


class FamilyHorizons:
    """Asked once before a step (`start`), told once after it (`observe`).

    Every environment has a schedule of its own, made from its block in `horizons` or from the
    recipe's `horizon`, that sees its own episodes only. `horizon_scale` multiplies what it gives.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._families = {family.name: family for family in recipe.families}
        self._schedules = {name: make_schedule(recipe.horizon_of(name)) for name in self._families}
        self._scheduled: dict[str, Horizon] = {}

    def start(self, progress: Progress) -> dict[str, Horizon]:
        """Return the horizon of the step that starts now, by environment, in its own turns."""
        self._scheduled = {
            name: schedule.horizon(progress) for name, schedule in self._schedules.items()
        }
        return {
            name: Horizon(self._families[name].scaled(horizon.turns), horizon.stage)
            for name, horizon in self._scheduled.items()
        }

    def observe(self, episodes: Mapping[str, Sequence[Trajectory]]) -> None:
        """Take note of the step's episodes by environment; broken ones say nothing."""
        for name, schedule in self._schedules.items():
            scale, scheduled = self._families[name].scaled, self._scheduled[name].turns
            schedule.observe(
                # in the schedule's own turns
                Outcome(scheduled if t.horizon == scale(scheduled) else t.horizon, t.success)
                for t in episodes.get(name, ())
                if not t.stop.is_failure
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the schedules' states by environment, as JSON values."""
        return {name: schedule.state_dict() for name, schedule in self._schedules.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        for name, schedule in self._schedules.items():
            schedule.load_state_dict(state[name])
