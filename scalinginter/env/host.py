"""Holds environments and checks what they answer, in the event loop, a thread or a process."""

import contextlib
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from scalinginter.env import registry
from scalinginter.env.base import Split, TextEnv
from scalinginter.errors import EnvironmentFailure, UserError
from scalinginter.types import Task

T = TypeVar("T")

Question = Literal["admissible_actions", "expert_plan"]  # methods of TextEnv

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


@dataclass(frozen=True, slots=True)
class ExpertEpisode:
    """What the expert of an environment did on one task, and what came back."""

    opening: Opening
    plan: tuple[str, ...]
    observations: tuple[Observation, ...]  # one per action that was played

    @property
    def success(self) -> bool:
        """Whether the last action reached the goal."""
        return bool(self.observations) and self.observations[-1].success


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
        self._idle = [registry.make(reference, **params)]

    def open(self, session: int, task: Task, seed: int, horizon: int) -> Opening:
        """Start an episode."""
        options = {"task": task, "horizon": horizon}
        try:
            env = self._take()
            self._episodes[session] = _Episode(env)
            text, _ = env.reset(seed=seed, options=options)
            first = self._checked(env, text, 0.0, False, False, False)
            opening = Opening(env.instructions, env.rules, first)
        except (Exception, SystemExit) as error:
            self._throw_away(session)
            raise self._failure(error, f"reset of task {task.id!r}") from error
        return opening

    def step(self, session: int, action: str) -> Observation:
        """Act once."""
        episode = self._episode(session)
        try:
            text, reward, terminated, truncated, info = episode.env.step(action)
            reward = _checked_reward(reward, episode.total_reward)
            flags = terminated, truncated, bool(info.get("success", False))
            answer = self._checked(episode.env, text, reward, *flags)
        except (Exception, SystemExit) as error:
            self._throw_away(session)
            raise self._failure(error, f"step {action[:80]!r}") from error
        episode.total_reward += reward
        return answer

    def ask(self, session: int, question: Question) -> list[str] | None:
        """Return what the environment of an episode says to a question."""
        episode = self._episode(session)
        try:
            answer = getattr(episode.env, question)()
            return None if answer is None else [str(text) for text in answer]
        except (Exception, SystemExit) as error:
            self._throw_away(session)
            raise self._failure(error, question) from error

    def close(self, session: int) -> None:
        """End an episode; its instance waits for the next one. Unknown sessions are fine."""
        episode = self._episodes.pop(session, None)
        if episode is None:
            return
        try:
            episode.env.release()
        except (Exception, SystemExit):  # nobody waits for an answer: the instance is thrown away
            return
        if len(self._idle) < MAX_IDLE:
            self._idle.append(episode.env)

    def tasks(self, split: Split) -> list[Task]:
        """Return the tasks of a split. Like `corpus` and `expert` it lets a `UserError` through:
        a missing package or file is for the user to mend."""
        return self._ask(f"tasks({split!r})", lambda env: _checked_tasks(env.tasks(split)))

    def corpus(self) -> list[str]:
        """Return the environment's texts."""
        return self._ask("corpus()", lambda env: list(env.corpus()))

    def expert(self, task: Task) -> ExpertEpisode | None:
        """Play the expert plan of a task; None if there is no plan."""
        return self._ask(expert_call(task), lambda env: self._play_expert(env, task))

    def shutdown(self) -> None:
        """Close every instance."""
        for env in [*self._idle, *(episode.env for episode in self._episodes.values())]:
            env.close()
        self._idle.clear()
        self._episodes.clear()

    def _episode(self, session: int) -> _Episode:
        if session not in self._episodes:
            raise EnvironmentFailure(f"{self._reference}: this episode failed before or is closed")
        return self._episodes[session]

    def _throw_away(self, session: int) -> None:
        episode = self._episodes.pop(session, None)
        if episode is not None:
            with contextlib.suppress(Exception, SystemExit):
                episode.env.close()

    def _take(self) -> TextEnv:
        return self._idle.pop() if self._idle else registry.make(self._reference, **self._params)

    def _ask(self, what: str, question: Callable[[TextEnv], T]) -> T:
        try:
            env = self._take()
            answer = question(env)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise self._failure(error, what) from error
        self._idle.append(env)
        return answer

    def _play_expert(self, env: TextEnv, task: Task) -> ExpertEpisode | None:
        text, _ = env.reset(seed=0, options={"task": task})
        plan = env.expert_plan()
        if plan is None:
            return None
        first = self._checked(env, text, 0.0, False, False, False)
        observations: list[Observation] = []
        total = 0.0
        for action in plan:
            text, reward, terminated, truncated, info = env.step(action)
            reward = _checked_reward(reward, total)
            total += reward
            flags = terminated, truncated, bool(info.get("success", False))
            observations.append(self._checked(env, text, reward, *flags))
            if terminated:
                break
        opening = Opening(env.instructions, env.rules, first)
        return ExpertEpisode(opening, tuple(plan), tuple(observations))

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
        return EnvironmentFailure(f"{self._reference} failed in {what}: {registry.blame(error)}")


def expert_call(task: Task) -> str:
    """Name the call of `EnvHost.expert` in messages."""
    return f"the expert's episode of task {task.id!r}"


def _checked_tasks(tasks: Any) -> list[Task]:
    listed = list(tasks)
    for task in listed:
        if not isinstance(task, Task):
            raise TypeError(f"tasks are scalinginter.types.Task, got {task!r}"[:200])
    return listed


def _checked_reward(reward: object, total: float) -> float:
    if not isinstance(reward, numbers.Real):
        raise TypeError(f"a reward must be a number, got {type(reward).__name__}")
    value = float(reward)
    if not math.isfinite(value):
        raise ValueError(f"a reward must be finite, got {value}")
    if not -REWARD_TOLERANCE <= total + value <= 1 + REWARD_TOLERANCE:
        raise ValueError(f"the rewards of an episode must stay in [0, 1], got {total + value}")
    return value
