"""Ctrl-C, SIGTERM and SIGHUP: the first asks for a checkpoint, the second ends at once."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

STOPPING = "stopping… (the same again stops at once)"


class Interrupted(Exception):  # noqa: N818 (not an error)
    """The user asked to stop; what was in flight is abandoned, what was done is saved."""


class StopSignal:
    """Context manager that turns the first signal into a request and runs coroutines under it.

    `at_once` is called when the second signal comes, before the process ends, and returns what the
    user is told. Of several processes of a run all but one are `quiet`.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.requested, self._quiet = False, quiet
        self.at_once: Callable[[], str] = nothing_saved
        self._task: asyncio.Task[Any] | None = None
        self._runner = asyncio.Runner()
        self._old: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        self._runner.close()
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise `Interrupted` if a signal came."""
        if self.requested:
            raise Interrupted

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. Raises `Interrupted` if a signal came before or during."""
        if self.requested:
            coroutine.close()
            raise Interrupted
        try:
            return self._runner.run(self._watch(coroutine))
        except asyncio.CancelledError:
            raise Interrupted from None
        finally:
            self._task = None

    def finish(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that must run even after a signal (closing things)."""
        return self._runner.run(coroutine)

    async def _watch(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._task = asyncio.current_task()
        return await coroutine

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            told = self.at_once()
            self._tell(told)
            os._exit(130)
        self.requested = True
        self._tell(STOPPING)
        if self._task is not None:
            # Wakes the event loop, too: it may wait for an environment that has hung.
            self._runner.get_loop().call_soon_threadsafe(self._task.cancel)

    def _tell(self, text: str) -> None:
        if not self._quiet:
            notice(text)


def nothing_saved() -> str:
    """What a second signal tells before a run has begun."""
    return "Stopped at once; nothing was saved yet."


def notice(text: str) -> None:
    """Write a line to standard error from a signal handler, where a stream may be half-way through
    a write of its own; the terminal may be gone."""
    with contextlib.suppress(OSError):
        os.write(2, f"\n{text}\n".encode())
