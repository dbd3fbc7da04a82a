"""Many episodes of one environment at once, for an asyncio program."""

import itertools
from abc import ABC, abstractmethod
from typing import Any

from scalinginter.env.host import EnvHost, Observation
from scalinginter.types import Task

__all__ = ["EnvPool", "EnvSession", "Observation"]


class EnvSession(ABC):
    """One episode. `close` it when it is over, whatever happened; closing twice is fine."""

    instructions: str  # what the agent is told once
    first: Observation  # what the reset gave

    @abstractmethod
    async def step(self, action: str) -> Observation:
        """Act once. Raises `EnvironmentFailure`; the session is of no use after that."""

    @abstractmethod
    async def close(self) -> None:
        """Give the instance back."""


class _InlineSession(EnvSession):
    """An episode in this process: its calls never suspend."""

    def __init__(self, host: EnvHost, key: int, task: Task, seed: int, horizon: int) -> None:
        self._host = host
        self._key = key
        self.instructions, self.first = host.open(key, task, seed, horizon)

    async def step(self, action: str) -> Observation:
        return self._host.step(self._key, action)

    async def close(self) -> None:
        self._host.close(self._key)


class EnvPool:
    """Opens episodes of one environment.

    An environment with `isolation = "inline"` runs right here; one with `"process"` runs in worker
    processes, several episodes in each, with a deadline for every call.

    Args:
        env_id: Registry id, or "module:Class".
        params: The environment's own arguments.
        num_workers: Processes, for environments that need them.
        turn_timeout_s: Seconds that one step may take. Waiting for a busy worker does not count.
        reset_timeout_s: Seconds that one reset may take.
        want_admissible: Whether observations carry the admissible actions.

    Raises `UserError` for an unknown environment and for wrong parameters.
    """

    def __init__(
        self,
        env_id: str,
        params: dict[str, Any],
        *,
        num_workers: int,
        turn_timeout_s: float,
        reset_timeout_s: float,
        want_admissible: bool,
    ) -> None:
        self._host = EnvHost(env_id, params, want_admissible)
        self._keys = itertools.count()

    @property
    def pending(self) -> int:
        """Calls that are waiting for a worker right now; 0 for inline environments."""
        return 0

    async def open(self, task: Task, *, seed: int, horizon: int) -> EnvSession:
        """Start an episode of `task`. Raises `EnvironmentFailure`."""
        return _InlineSession(self._host, next(self._keys), task, seed, horizon)

    async def aclose(self) -> None:
        """Close the environments and end the workers, within about a second."""
        self._host.shutdown()
