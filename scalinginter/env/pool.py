"""Many episodes of one environment at once, for an asyncio program."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from scalinginter.env.host import EnvHost, Observation, Opening, Question
from scalinginter.env.registry import make
from scalinginter.env.remote import NotSentError, WorkerProcess, end_workers
from scalinginter.env.threads import EnvThreads
from scalinginter.env.worker import pack_task, unpack, unpack_opening
from scalinginter.errors import EnvironmentFailure
from scalinginter.types import Task

T = TypeVar("T")

__all__ = ["EnvPool", "EnvSession", "Observation", "Opening"]


class EnvSession(ABC):
    """One episode. `close` it when it is over, whatever happened; closing twice is fine."""

    opening: Opening

    @property
    def first(self) -> Observation:
        """What the reset gave."""
        return self.opening.first

    @abstractmethod
    async def step(self, action: str) -> Observation:
        """Act once. Raises `EnvironmentFailure`; the session is of no use after that."""

    @abstractmethod
    async def ask(self, question: Question) -> list[str] | None:
        """Return the admissible actions or the expert's plan. Raises like `step`."""

    @abstractmethod
    async def close(self) -> None:
        """Give the instance back."""


class _InlineSession(EnvSession):
    """An episode in this process: its calls never suspend."""

    def __init__(self, host: EnvHost, key: int, task: Task, seed: int, horizon: int) -> None:
        self._host = host
        self._key = key
        self.opening = host.open(key, task, seed, horizon)

    async def step(self, action: str) -> Observation:
        return self._host.step(self._key, action)

    async def ask(self, question: Question) -> list[str] | None:
        return self._host.ask(self._key, question)

    async def close(self) -> None:
        self._host.close(self._key)


class _RemoteSession(EnvSession):
    """An episode in a worker process."""

    def __init__(self, pool: "EnvPool", worker: WorkerProcess, key: int, opened: list[Any]) -> None:
        self._pool = pool
        self._worker = worker
        self._key = key
        self._open = True
        self.opening = unpack_opening(opened)

    async def step(self, action: str) -> Observation:
        what = f"step {action[:80]!r}"
        return unpack(await self._pool._call(self._worker, what, "step", self._key, action))

    async def ask(self, question: Question) -> list[str] | None:
        return await self._pool._call(self._worker, question, "ask", self._key, question)

    async def close(self) -> None:
        if self._open:
            self._open = False
            self._pool._release(self._worker, self._key)


class _ThreadSession(EnvSession):
    """An episode in a thread of this process."""

    def __init__(self, pool: "EnvPool", threads: EnvThreads) -> None:
        self._pool = pool
        self._threads = threads
        self._thread = threads.take()
        self._open = True

    async def start(self, task: Task, seed: int, horizon: int, timeout_s: float) -> "EnvSession":
        """Reset the environment."""
        what = f"reset of task {task.id!r}"
        try:
            self.opening = await self._thread.call(
                what, timeout_s, lambda host: host.open(0, task, seed, horizon)
            )
        except BaseException:
            await self.close()
            raise
        return self

    async def step(self, action: str) -> Observation:
        what = f"step {action[:80]!r}"
        return await self._call(what, lambda host: host.step(0, action))

    async def ask(self, question: Question) -> list[str] | None:
        return await self._call(question, lambda host: host.ask(0, question))

    async def _call(self, what: str, question: Callable[[EnvHost], T]) -> T:
        self._pool._pending += 1
        try:
            return await self._thread.call(what, self._pool._turn_timeout_s, question)
        finally:
            self._pool._pending -= 1

    async def close(self) -> None:
        if self._open:
            self._open = False
            self._threads.give_back(self._thread)


class EnvPool:
    """Opens episodes of one environment.

    An environment with `isolation = "inline"` runs right here; one with `"thread"` in a thread per
    episode; one with `"process"` in worker processes, several episodes in each. The latter two have
    a deadline for every call.

    Args:
        env_id: Registry id, or "module:Class".
        params: The environment's own arguments.
        num_workers: Processes, for environments that need them.
        turn_timeout_s: Seconds that one step may take. Waiting for a busy worker does not count.
        reset_timeout_s: Seconds that one reset may take.
        want_admissible: Whether observations carry the admissible actions.
        inline_in_threads: Give inline environments a thread per episode, too, so that a slow call
            of one holds up no other.

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
        inline_in_threads: bool = False,
    ) -> None:
        self._greeting = {
            "reference": env_id,
            "params": params,
            "want_admissible": want_admissible,
        }
        self._num_workers = num_workers
        self._turn_timeout_s = turn_timeout_s
        self._reset_timeout_s = reset_timeout_s
        self._workers: list[WorkerProcess] = []
        self._keys = itertools.count()
        self._pending = 0
        self._closed = False
        env = make(env_id, **params)
        self.env_id, self.tools = env_id, tuple(env.tools())
        isolation = env.isolation
        if isolation == "inline" and inline_in_threads:
            isolation = "thread"
        self._host = EnvHost(**self._greeting) if isolation == "inline" else None
        self._threads = EnvThreads(self._greeting) if isolation == "thread" else None

    @property
    def pending(self) -> int:
        """Calls whose answer has not reached its caller yet; 0 for inline environments."""
        return self._pending

    async def open(self, task: Task, *, seed: int, horizon: int) -> EnvSession:
        """Start an episode of `task`. Raises `EnvironmentFailure`."""
        if self._closed:
            raise EnvironmentFailure("the pool of environments is closed")
        key = next(self._keys)
        if self._host is not None:
            return _InlineSession(self._host, key, task, seed, horizon)
        self._pending += 1
        try:
            if self._threads is not None:
                session = _ThreadSession(self, self._threads)
                return await session.start(task, seed, horizon, self._reset_timeout_s)
            return await self._open(key, task, seed, horizon)
        finally:
            self._pending -= 1

    async def aclose(self) -> None:
        """Close the environments and end the workers, within about a second."""
        self._closed = True
        if self._host is not None:
            self._host.shutdown()
        if self._threads is not None:
            self._threads.finish()
        workers, self._workers = self._workers, []
        await end_workers(workers, "the pool was closed")

    async def _open(self, key: int, task: Task, seed: int, horizon: int) -> EnvSession:
        message = ("open", key, pack_task(task), seed, horizon)
        while True:
            worker = self._place()
            worker.load += 1
            try:
                what = f"reset of task {task.id!r}"
                opened = await worker.call(what, self._reset_timeout_s, *message)
                return _RemoteSession(self, worker, key, opened)
            except NotSentError:
                continue  # it fell to another episode's fault: the replacement takes this one
            except BaseException:  # cancelled, too: the worker may be about to open it
                self._release(worker, key)
                raise

    async def _call(self, worker: WorkerProcess, what: str, *message: Any) -> Any:
        self._pending += 1
        try:
            return await worker.call(what, self._turn_timeout_s, *message)
        except NotSentError as error:
            reason = f"its worker process ended: {worker.failure}"
            raise EnvironmentFailure(reason, collateral=True) from error
        finally:
            self._pending -= 1

    def _release(self, worker: WorkerProcess, key: int) -> None:
        worker.load -= 1
        worker.post("close", key)

    def _place(self) -> WorkerProcess:
        """Return the least loaded worker, after starting those that are missing."""
        if self._closed:
            raise EnvironmentFailure("the pool of environments is closed")
        while len(self._workers) < self._num_workers:
            self._workers.append(WorkerProcess(self._greeting, self._replace))
        return min(self._workers, key=lambda worker: worker.load)

    def _replace(self, dead: WorkerProcess) -> None:
        """Start the successor at once; if `dead` could not even start, the next `open` does."""
        self._workers.remove(dead)
        if dead.ready:
            self._workers.append(WorkerProcess(self._greeting, self._replace))
