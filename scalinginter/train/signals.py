"""Ctrl-C, SIGTERM and SIGHUP: the first asks for a checkpoint, the second ends at once."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):  # noqa: N818 (not an error)
    """The user asked to stop; what was in flight is abandoned, what was done is saved."""


class StopSignal:
    """Context manager that turns the first signal into a request and runs coroutines under it."""

    def __init__(self) -> None:
        self.requested = False
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
            sys.stderr.write("\nStopped at once; the last checkpoint stands.\n")
            sys.stderr.flush()
            os._exit(130)
        self.requested = True
        if self._task is not None:
            self._task.cancel()
