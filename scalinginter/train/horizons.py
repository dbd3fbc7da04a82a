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
        self._held: dict[str, tuple[Horizon, int]] = {}  # at most this, before that step

    def start(self, progress: Progress) -> dict[str, Horizon]:
        """Return the horizon of the step that starts now, by environment, in its own turns."""
        self._scheduled = {
            name: schedule.horizon(progress) for name, schedule in self._schedules.items()
        }
        return {
            name: self._at_most(name, horizon, progress.step)
            for name, horizon in self._scaled().items()
        }

    def hold(self, horizons: Mapping[str, Horizon], until: int) -> None:
        """Give no longer horizons than these, in the environments' own turns, before step `until`.

        The schedules are not told: they go on as the run does, and see no episode of their own
        horizon meanwhile.
        """
        self._held |= {name: (horizon, until) for name, horizon in horizons.items()}

    def _at_most(self, name: str, horizon: Horizon, step: int) -> Horizon:
        most, until = self._held.get(name, (horizon, 0))
        return most if step < until and most.turns < horizon.turns else horizon

    def _scaled(self) -> dict[str, Horizon]:
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
        """Return the schedules' states and what is held, by environment, as JSON values."""
        return {
            "schedules": {name: s.state_dict() for name, s in self._schedules.items()},
            "held": {n: [h.turns, h.stage, until] for n, (h, until) in self._held.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        for name, schedule in self._schedules.items():
            schedule.load_state_dict(state["schedules"][name])
        self._held = {n: (Horizon(turns, s), u) for n, (turns, s, u) in state["held"].items()}
