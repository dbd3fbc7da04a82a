"""Environments in threads: for calls that block on a service; a slow one holds up no other.

A thread cannot be killed. A call that misses its deadline is abandoned with its thread and its
instance; what it still does is nobody's business, and the thread ends when the call does. Abandoned
threads are counted, and too many of them stop the pool from opening more.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from scalinginter.env.host import EnvHost
from scalinginter.errors import EnvironmentFailure

T = TypeVar("T")

MAX_ABANDONED = 64  # threads of one pool that hang


class EnvThread:
    """A thread and the host of the one episode at a time that it plays."""

    def __init__(self, greeting: dict[str, Any], on_end: Callable[["EnvThread"], None]) -> None:
        self._waiting: asyncio.Future[Any] | None = None  # for the call in progress
        self._greeting = greeting
        self._on_end = on_end
        self._host: EnvHost | None = None
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Not a ThreadPoolExecutor: the interpreter waits for its threads, and one that hangs would
        # keep the trainer from ending.
        threading.Thread(target=self._serve, name="environment", daemon=True).start()

    async def call(self, what: str, timeout_s: float, question: Callable[[EnvHost], T]) -> T:
        """Ask the host in the thread.

        Raises `EnvironmentFailure` when the environment fails or takes longer than `timeout_s`; the
        thread is of no use after the latter.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting = future

        def settle(set_it: Callable[[Any], None], value: Any) -> None:
            self._waiting = None
            if not future.done():
                set_it(value)

        def answer() -> None:
            try:
                outcome = (settle, future.set_result, question(self._own_host()))
            except BaseException as error:  # whatever it is, its caller must not wait for ever
                outcome = (settle, future.set_exception, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(*outcome)

        self._calls.put(answer)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            message = f"no answer within {timeout_s:g} s in {what}"
            raise EnvironmentFailure(message, timeout=True) from None

    @property
    def busy(self) -> bool:
        """Is a call in progress, whether or not somebody still waits for it?"""
        return self._waiting is not None

    def end_episode(self) -> None:
        """Have the host close its episode; nobody waits for that."""
        self._calls.put(lambda: self._own_host().close(0))

    def abandon(self) -> None:
        """Fail the call in progress and leave the thread to end when that call does."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(EnvironmentFailure("its episode was closed"))
        self.finish()

    def finish(self) -> None:
        """Close the environment and end, once the call in progress is over."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
        if self._host is not None:
            self._host.shutdown()
        self._on_end(self)

    def _own_host(self) -> EnvHost:
        """Make the environment in its own thread: some libraries insist on staying in one."""
        if self._host is None:
            self._host = EnvHost(**self._greeting)
        return self._host


class EnvThreads:
    """The threads of a pool: one per episode, kept for the next one."""

    def __init__(self, greeting: dict[str, Any]) -> None:
        self._greeting = greeting
        self._idle: list[EnvThread] = []
        self._playing: set[EnvThread] = set()
        self._abandoned: set[EnvThread] = set()

    def take(self) -> EnvThread:
        """Return an idle thread, or a new one. Raises `EnvironmentFailure` if too many hang."""
        if len(self._abandoned) >= MAX_ABANDONED:
            raise EnvironmentFailure(
                f"{len(self._abandoned)} calls of {self._greeting['reference']} hang in threads, "
                "which cannot be killed: no more are started"
            )
        idle = self._idle
        thread = idle.pop() if idle else EnvThread(self._greeting, self._abandoned.discard)
        self._playing.add(thread)
        return thread

    def give_back(self, thread: EnvThread) -> None:
        """Keep a thread for the next episode; one whose call is not over is left behind."""
        if thread not in self._playing:  # the pool was closed
            return
        self._playing.remove(thread)
        if thread.busy:
            self._leave_behind(thread)
        else:
            thread.end_episode()
            self._idle.append(thread)

    def finish(self) -> None:
        """End all threads; those that hang, once their calls are over."""
        for thread in [*self._idle, *self._playing]:
            if thread.busy:
                self._leave_behind(thread)
            else:
                thread.finish()
        self._idle.clear()
        self._playing.clear()

    def _leave_behind(self, thread: EnvThread) -> None:
        self._abandoned.add(thread)
        thread.abandon()
