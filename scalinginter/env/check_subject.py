"""The environment under check."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scalinginter.env import registry
from scalinginter.env.base import TextEnv
from scalinginter.env.fingerprint import Moment, act, spread
from scalinginter.types import Task


class Finding(Exception):  # noqa: N818 - a finding, not an error of ours
    """The environment breaks its contract."""


def require(condition: bool, message: str) -> None:
    """Raise `Finding(message)` unless the condition holds."""
    if not condition:
        raise Finding(message)


@dataclass
class Subject:
    """The environment under check, and what several checks need."""

    cls: type[TextEnv]
    name: str
    params: dict[str, Any]
    horizon: int | None
    num_tasks: int
    seed: int

    def make(self) -> TextEnv:
        return registry.build(self.cls, self.name, self.params)

    @cached_property
    def env(self) -> TextEnv:
        return self.make()

    @cached_property
    def played(self) -> list[Task]:
        """The test tasks that are played."""
        return spread(self.env.tasks("test"), self.num_tasks)

    def turns(self, task: Task) -> int:
        """Return how many turns to play of a task."""
        return self.horizon or 2 * (task.required_turns or 10)

    def start(self, task: Task) -> tuple[str, dict[str, Any]]:
        options = {"task": task, "horizon": self.turns(task)}
        return self.env.reset(seed=self.seed, options=options)

    def expert(self, task: Task) -> list[Moment] | None:
        """Return the answers to the expert plan, or None without one."""
        self.start(task)
        plan = self.env.expert_plan()
        if plan is None:
            return None
        moments: list[Moment] = []
        for action in plan:
            moments.append(act(self.env, action))
            if moments[-1].terminated or moments[-1].truncated:
                break
        return moments
