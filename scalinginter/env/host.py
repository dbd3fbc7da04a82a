"""Holds environments and checks what they answer. Runs in the event loop or in a worker process."""

import math
import numbers
import traceback
from dataclasses import dataclass
from typing import Any

from scalinginter.env import registry
from scalinginter.env.base import TextEnv
from scalinginter.errors import EnvironmentFailure
from scalinginter.types import Task

REWARD_TOLERANCE = 1e-6  # rounding of a sum of rewards that should end at exactly 0 or 1
MAX_IDLE = 256  # instances kept for the next episode


@dataclass(frozen=True, slots=True)
class Observation:
    """What one reset or step gave."""

    text: str
    reward: float  # of this step; 0 after a reset
    terminated: bool
    truncated: bool
    success: bool
    admissible: tuple[str, ...] | None  # accepted actions; None: unknown, not wanted, or over


@dataclass(frozen=True, slots=True)
class Opening:
    """What the start of an episode gave."""

    instructions: str  # the rules and the grammar of actions
    rules: str  # without the grammar, for answers that call tools
    first: Observation


def make_env(reference: str, params: dict[str, Any]) -> TextEnv:
    """Make an environment from a registry id or from "module:Class".

    Raises `UserError` for an unknown id and for parameters that are not allowed.
    """
    if ":" in reference:
        cls = registry.load_location(reference, f"environment {reference!r}")
        return registry.build(cls, reference, params)
    return registry.make(reference, **params)


@dataclass(slots=True)
class _Episode:
    env: TextEnv
    total_reward: float = 0.0


class EnvHost:
    """Many episodes of one environment, each on an instance of its own; instances are reused.

    Whatever an environment does wrong (an exception, a reward that is not a number or leaves
    [0, 1] in sum, an observation that is not text) becomes an `EnvironmentFailure` that says what
    happened; its instance is thrown away.
    """

    def __init__(self, reference: str, params: dict[str, Any], want_admissible: bool) -> None:
        self._reference = reference
        self._params = params
        self._want_admissible = want_admissible
        self._episodes: dict[int, _Episode] = {}
        self._idle = [make_env(reference, params)]

    def open(self, session: int, task: Task, seed: int, horizon: int) -> Opening:
        """Start an episode."""
        options = {"task": task, "horizon": horizon}
        try:
            env = self._idle.pop() if self._idle else make_env(self._reference, self._params)
            text, _ = env.reset(seed=seed, options=options)
            first = self._checked(env, text, 0.0, False, False, False)
            opening = Opening(env.instructions, env.rules, first)
        except (Exception, SystemExit) as error:
            raise self._failure(error, f"reset of task {task.id!r}") from error
        self._episodes[session] = _Episode(env)
        return opening

    def step(self, session: int, action: str) -> Observation:
        """Act once."""
        episode = self._episodes.get(session)
        if episode is None:
            raise EnvironmentFailure(f"{self._reference}: this episode failed before or is closed")
        try:
            text, reward, terminated, truncated, info = episode.env.step(action)
            reward = _checked_reward(reward, episode.total_reward)
            flags = terminated, truncated, bool(info.get("success", False))
            answer = self._checked(episode.env, text, reward, *flags)
        except (Exception, SystemExit) as error:
            del self._episodes[session]
            raise self._failure(error, f"step {action[:80]!r}") from error
        episode.total_reward += reward
        return answer

    def close(self, session: int) -> None:
        """End an episode; its instance waits for the next one. Unknown sessions are fine."""
        episode = self._episodes.pop(session, None)
        if episode is not None and len(self._idle) < MAX_IDLE:
            self._idle.append(episode.env)

    def shutdown(self) -> None:
        """Close every instance."""
        for env in [*self._idle, *(episode.env for episode in self._episodes.values())]:
            env.close()
        self._idle.clear()
        self._episodes.clear()

    def _checked(
        self,
        env: TextEnv,
        text: str,
        reward: float,
        terminated: bool,
        truncated: bool,
        success: bool,
    ) -> Observation:
        if not isinstance(text, str):
            raise TypeError(f"an observation must be text, got {type(text).__name__}")
        over = terminated or truncated
        actions = env.admissible_actions() if self._want_admissible and not over else None
        admissible = None if actions is None else tuple(actions)
        return Observation(text, reward, terminated, truncated, success, admissible)

    def _failure(self, error: BaseException, what: str) -> EnvironmentFailure:
        if isinstance(error, EnvironmentFailure):
            return error
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
        message = f"{type(error).__name__}: {error}"[:500]
        return EnvironmentFailure(f"{self._reference} failed in {what}: {message} ({place})")


def _checked_reward(reward: object, total: float) -> float:
    if not isinstance(reward, numbers.Real):
        raise TypeError(f"a reward must be a number, got {type(reward).__name__}")
    value = float(reward)
    if not math.isfinite(value):
        raise ValueError(f"a reward must be finite, got {value}")
    if not -REWARD_TOLERANCE <= total + value <= 1 + REWARD_TOLERANCE:
        raise ValueError(f"the rewards of an episode must stay in [0, 1], got {total + value}")
    return value
