"""Guards the horizon: one that would not fit in memory is not entered, one that blows up is left.

before a step   a longer horizon? -> does an update at it fit in memory? -> checkpoint -> enter it
after a step    weights, gradient norm, KL as usual? -> if not: back to that checkpoint, and at the
                shorter horizon for `hold_steps` steps
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from scalinginter.config.guard import GuardConfig
from scalinginter.errors import RunFailedError
from scalinginter.horizon import Horizon
from scalinginter.types import Trajectory

RISE = 1.2  # growth of a horizon that is watched; single turns of a line are not
WINDOW = 20  # updates whose median is what is usual
USUAL = 5  # updates before anything is unusual


@dataclass(slots=True)
class _State:
    """All that is remembered, as JSON values."""

    last: dict[str, list[int]] = field(default_factory=dict)  # turns, stage: by environment
    watched: dict[str, int] = field(default_factory=dict)  # turns at the last watched rise
    rise: int | None = None  # the step before which that was
    shorter: dict[str, list[int]] = field(default_factory=dict)  # `last` before that
    good: str | None = None  # name of the checkpoint that was made then
    row_tokens: dict[str, float] = field(default_factory=dict)  # per turn, of the longest row
    usual: dict[str, list[float]] = field(default_factory=dict)
    alarms: int = 0
    rollbacks: int = 0
    memory_holds: int = 0


class Guard:
    """Decides; the loop acts.

    Args:
        config: The recipe's `guard` block.
        hold: Keeps environments at a horizon: (horizon by environment, first step without).
        shortage: Says what is short for an update whose longest row has so many ids, or nothing.
        say: Tells people.
    """

    def __init__(
        self,
        config: GuardConfig,
        hold: Callable[[Mapping[str, Horizon], int], None],
        shortage: Callable[[int], str],
        say: Callable[[str], None],
    ) -> None:
        self._config, self._hold, self._shortage, self._say = config, hold, shortage, say
        self._state = _State()
        self._bounds = {  # ratio to the median, and what is never an alarm
            "loss/grad_norm": (config.grad_norm_ratio, config.min_grad_norm),
            "update/kl": (config.kl_ratio, config.min_kl),
        }

    def admit(
        self, horizons: Mapping[str, Horizon], step: int, save: Callable[[], Path]
    ) -> dict[str, Horizon]:
        """Return the horizons of step `step` (from 0): those scheduled, or shorter ones.

        `save` makes a checkpoint. It is called before a horizon that is a fifth longer, or more.
        """
        state = self._state
        admitted = {name: self._that_fits(name, h, step) for name, h in horizons.items()}
        turns = {name: horizon.turns for name, horizon in admitted.items()}
        if not state.last:
            state.watched = turns
        elif self._config.watch_steps and any(
            now >= RISE * state.watched[name] for name, now in turns.items()
        ):
            good = save().name  # of the state before it is changed below
            state.good, state.rise, state.shorter, state.watched = good, step, state.last, turns
        state.last = {name: [h.turns, h.stage] for name, h in admitted.items()}
        return admitted

    def judge(
        self, step: int, episodes: Iterable[Trajectory], metrics: Mapping[str, float], finite: bool
    ) -> str:
        """Return why the update of step `step` has to be taken back; empty if it need not be.

        `finite`: whether the weights are. An alarm outside of the watched steps is told only.
        """
        for trajectory in episodes:
            self._note_length(trajectory)
        alarm = self._alarm(metrics, finite)
        if not alarm:
            for name in self._bounds.keys() & metrics.keys():
                self._state.usual[name] = [*self._usual(name), metrics[name]][-WINDOW:]
            return ""
        self._state.alarms += 1
        if finite and not self._is_watched(step):
            self._say(f"warning: step {step + 1}: {alarm}")
            return ""
        return alarm

    def take_back(self, step: int, alarm: str) -> str | None:
        """Count a rollback and hold the shorter horizon. Returns the checkpoint's name, None: the
        newest. Raises `RunFailedError` if there were too many."""
        state, config = self._state, self._config
        if state.rollbacks >= config.max_rollbacks:
            raise RunFailedError(
                f"step {step + 1}: {alarm}, after {state.rollbacks} rollbacks "
                "(guard.max_rollbacks). Start a new run with a lower train.learning_rate, or with "
                "horizons that grow more slowly"
            )
        state.rollbacks += 1
        if not self._is_watched(step):
            self._say(f"warning: step {step + 1}: {alarm}; back to the newest checkpoint")
            return None
        shorter = {name: Horizon(*values) for name, values in state.shorter.items()}
        self._hold(shorter, step + 1 + config.hold_steps)
        state.watched = {name: horizon.turns for name, horizon in shorter.items()}
        state.rise = None
        turns = ", ".join(str(horizon.turns) for horizon in shorter.values())
        self._say(
            f"warning: step {step + 1}: {alarm}; back to {state.good}, and at {turns} turns for "
            f"{config.hold_steps} steps"
        )
        return state.good

    @property
    def pinned(self) -> str | None:
        """Name of the checkpoint that must not be dropped."""
        return self._state.good

    def metrics(self) -> dict[str, float]:
        """Return the `guard/*` counters of the run so far."""
        state = self._state
        return {
            "guard/alarms": float(state.alarms),
            "guard/rollbacks": float(state.rollbacks),
            "guard/memory_holds": float(state.memory_holds),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return all that is remembered, as JSON values."""
        return asdict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self._state = _State(**state)

    def _that_fits(self, name: str, horizon: Horizon, step: int) -> Horizon:
        state, config = self._state, self._config
        tokens = state.row_tokens.get(name)
        before = Horizon(*state.last[name]) if name in state.last else horizon
        if config.memory_share is None or tokens is None or horizon.turns <= before.turns:
            return horizon
        short = self._shortage(math.ceil(tokens * horizon.turns))
        if not short:
            return horizon
        state.memory_holds += 1
        self._hold({name: before}, step + config.hold_steps)
        self._say(
            f"warning: step {step + 1}: {name} stays at {before.turns} turns for "
            f"{config.hold_steps} steps, since {horizon.turns} would not fit in memory: {short}. "
            "Lower train.micro_batch_tokens or rollout.max_context, or set "
            "model.gradient_checkpointing: true"
        )
        return before

    def _note_length(self, trajectory: Trajectory) -> None:
        """Remember the longest row by its ids per turn: what the next horizon is judged by."""
        if not trajectory.turns:
            return
        ids = sum(len(t.context_ids) + len(t.completion.token_ids) for t in trajectory.turns)
        seen, name = self._state.row_tokens, trajectory.family
        seen[name] = max(seen.get(name, 0.0), ids / len(trajectory.turns))

    def _alarm(self, metrics: Mapping[str, float], finite: bool) -> str:
        if not finite:
            return "the update left weights that are not finite"
        if metrics.get("update/nonfinite"):
            return "a gradient was not finite and its step was left out"
        for name, (ratio, least) in self._bounds.items():
            value, usual = metrics.get(name, 0.0), self._usual(name)
            if len(usual) >= USUAL and value > max(least, ratio * median(usual)):
                return f"{name} is {value:.3g}, its median before was {median(usual):.3g}"
        return ""

    def _usual(self, name: str) -> list[float]:
        return self._state.usual.get(name, [])

    def _is_watched(self, step: int) -> bool:
        rise = self._state.rise
        return rise is not None and step - rise < self._config.watch_steps
