"""Several jobs at a time, each in a process of its own that starts warm.

A fork server imports torch and transformers once; every job is a fork of it and starts in
milliseconds instead of after a dozen CPU-seconds of imports. The server itself runs no torch code
and has one thread, so the forks are sound.

    this process --pipe--> fork server --fork--> job --SIGINT--> its own handler: checkpoint, end

Jobs live in sessions of their own: a Ctrl-C at the terminal reaches this process only, which hands
it on once. A job whose parent dies is told to stop in the same way.
"""

import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import FrameType
from typing import Any

from scalinginter.errors import RunFailedError, UserError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TICK_S = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """One call in a process of its own."""

    name: str
    arguments: Mapping[str, Any]  # of the function; picklable
    log: Path  # what it prints; errors too


@dataclass(frozen=True, slots=True)
class Events:
    """What the caller wants to hear; each is called in the parent, never in a job."""

    started: Callable[[Job], None]
    ended: Callable[[Job, int], None]  # exit code; negative: killed by that signal
    tick: Callable[[Sequence[Job]], None]  # about twice a second, with the running jobs
    stopping: Callable[[Sequence[Job]], None]  # once after a first signal, with those it asked


def run_jobs(
    jobs: Sequence[Job], function: str, parallel: int, preload: Sequence[str], events: Events
) -> bool:
    """Run `function` ("module:name") once per job, `parallel` at a time, in the order given.

    The function's result is the exit code of its process. A job that fails does not stop the
    others. Returns False when a signal stopped the lot: the first one asks running jobs to end
    (SIGINT, once each) and starts no more, the second one kills them.
    """
    _start_server(preload)
    supervisor = _Supervisor(function, events)
    old = {number: signal.signal(number, supervisor.handle) for number in _SIGNALS}
    try:
        supervisor.run(list(jobs), parallel)
    finally:
        supervisor.kill()  # nothing is left running when an event handler raised
        for number, handler in old.items():
            signal.signal(number, handler)
    return supervisor.signals == 0


class _Supervisor:
    """The running jobs and the signals that came."""

    def __init__(self, function: str, events: Events) -> None:
        self.function, self.events = function, events
        self.signals = 0
        self._told = False  # that it stops; not in the handler, which can interrupt a print
        self._running: dict[ForkServerProcess, Job] = {}

    def run(self, waiting: list[Job], parallel: int) -> None:
        while self._running or (waiting and not self.signals):
            while waiting and len(self._running) < parallel and not self.signals:
                self._start(waiting.pop(0))
            sentinels = [process.sentinel for process in self._running]
            connection.wait(sentinels, timeout=_TICK_S)
            if self.signals and not self._told:
                self._told = True
                self.events.stopping(list(self._running.values()))
            for process in [p for p in self._running if not p.is_alive()]:
                process.join()
                self.events.ended(self._running.pop(process), process.exitcode or 0)
            self.events.tick(list(self._running.values()))

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take a signal: ask the jobs to stop, the second time kill them."""
        self.signals += 1
        if self.signals == 1:
            for process in self._running:
                _interrupt(process)
        else:
            self.kill()

    def kill(self) -> None:
        """End every job at once."""
        for process in self._running:
            process.kill()

    def _start(self, job: Job) -> None:
        context = multiprocessing.get_context("forkserver")
        process = context.Process(
            target=_child, args=(self.function, dict(job.arguments), job.log), name=job.name
        )
        process.start()
        self._running[process] = job
        if self.signals:  # one came while the process was being made
            _interrupt(process)
        self.events.started(job)


def _interrupt(process: ForkServerProcess) -> None:
    if process.is_alive() and process.pid is not None:
        os.kill(process.pid, signal.SIGINT)


def _start_server(preload: Sequence[str]) -> None:
    """Start the fork server with both signals blocked, which its forks inherit.

    A Ctrl-C during its imports would end it; a signal to a job that is not ready yet waits.
    """
    resource_tracker.ensure_running()  # first: starting it unblocks the two signals
    forkserver.set_forkserver_preload(list(preload))
    old = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    forkserver.ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _child(function: str, arguments: dict[str, Any], log: Path) -> None:
    """Run the job in this process and exit with its result."""
    os.setsid()
    _redirect(log)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        threading.Thread(target=_stop_with_parent, daemon=True).start()
        module, _, name = function.partition(":")
        code = getattr(importlib.import_module(module), name)(**arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except RunFailedError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    except Exception:
        traceback.print_exc()
        code = 1
    sys.exit(code)


def _redirect(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    print(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}", flush=True)


def _stop_with_parent() -> None:
    """Ask this process to stop when the one that wanted it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGINT)
