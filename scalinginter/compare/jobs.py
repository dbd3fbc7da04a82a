"""Several jobs at a time, each in a process of its own that starts warm.

A fork server imports torch and transformers once; every job is a fork of it and starts in
milliseconds instead of after a dozen CPU-seconds of imports. The server itself runs no torch code
and has one thread, so the forks are sound.

    this process --pipe--> fork server --fork--> job --SIGINT--> its own handler: checkpoint, end

Jobs live in sessions of their own: a Ctrl-C at the terminal reaches this process only, which hands
it on once. A job whose parent dies is told to stop in the same way.
"""

import faulthandler
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
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

from scalinginter.errors import LostProcessError, RunFailedError, UserError, tell

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TICK_S = 0.5
GRACE_S = 20.0  # that the other processes of a job have to end when one has failed
STORE = "SCALINGINTER_STORE"  # `train.ranks`, which brings torch, has the same


@dataclass(frozen=True, slots=True)
class Job:
    """One call in a process of its own, or in several that find each other (`train.ranks`)."""

    name: str
    arguments: Mapping[str, Any]  # of the function; picklable
    log: Path | None  # what it prints, errors too; None: where this process prints
    processes: int = 1


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
        self._running: list[_Running] = []

    def run(self, waiting: list[Job], parallel: int) -> None:
        while self._running or (waiting and not self.signals):
            while waiting and len(self._running) < parallel and not self.signals:
                self._start(waiting.pop(0))
            alive = [process for running in self._running for process in running.alive()]
            connection.wait([process.sentinel for process in alive], timeout=_TICK_S)
            if self.signals and not self._told:
                self._told = True
                self.events.stopping([running.job for running in self._running])
            for running in [r for r in self._running if r.has_ended()]:
                self._running.remove(running)
                self.events.ended(running.job, running.exit_code())
            self.events.tick([running.job for running in self._running])

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take a signal: ask the jobs to stop, the second time kill them."""
        self.signals += 1
        if self.signals == 1:
            for running in self._running:
                running.interrupt()
        else:
            self.kill()

    def kill(self) -> None:
        """End every job at once."""
        for running in self._running:
            running.kill()

    def _start(self, job: Job) -> None:
        running = _Running(job)
        self._running.append(running)
        running.start(self.function)
        if self.signals:  # one came while the processes were being made
            running.interrupt()
        self.events.started(job)


class _Running:
    """A job and its processes. When one of several fails the others are asked to end, then made to:
    first with a signal that prints where they stand."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._processes: list[ForkServerProcess] = []
        self._meeting: tempfile.TemporaryDirectory[str] | None = None
        self._failed_at: float | None = None

    def start(self, function: str) -> None:
        job, context = self.job, multiprocessing.get_context("forkserver")
        if job.processes > 1:
            self._meeting = tempfile.TemporaryDirectory(prefix="scalinginter-")
        for rank in range(job.processes):
            process = context.Process(
                target=_child,
                args=(function, dict(job.arguments), job.log, self._environment(rank)),
                name=job.name,
            )
            process.start()
            self._processes.append(process)

    def _environment(self, rank: int) -> dict[str, str]:
        if self._meeting is None:
            return {}
        size = str(self.job.processes)
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        sizes = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        return ranks | sizes | {STORE: f"{self._meeting.name}/store"}

    def alive(self) -> list[ForkServerProcess]:
        return [process for process in self._processes if process.is_alive()]

    def has_ended(self) -> bool:
        """Whether all processes have; sees to it that they do where one has failed."""
        alive = self.alive()
        if not alive:
            for process in self._processes:
                process.join()
            if self._meeting is not None:
                self._meeting.cleanup()
            return True
        if self._failed_at is None and self._failures():
            self._failed_at = time.monotonic()
            self.interrupt()
        elif self._failed_at is not None:
            waited = time.monotonic() - self._failed_at
            for process in alive if waited > GRACE_S else ():
                os.kill(
                    process.pid or 0, signal.SIGKILL if waited > 2 * GRACE_S else signal.SIGABRT
                )
        return False

    def exit_code(self) -> int:
        """Return what the job came to: the failure that was not a mere consequence of another."""
        causes = [code for code in self._failures() if code != LostProcessError.exit_code]
        codes = [process.exitcode or 0 for process in self._processes]
        return (sorted(causes) or sorted(self._failures()) or [max(codes)])[0]

    def _failures(self) -> list[int]:
        codes = [process.exitcode for process in self._processes]
        return [code for code in codes if code not in (None, 0, 130)]  # type: ignore[misc]

    def interrupt(self) -> None:
        for process in self._processes:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGINT)

    def kill(self) -> None:
        for process in self._processes:
            process.kill()


def _start_server(preload: Sequence[str]) -> None:
    """Start the fork server with both signals blocked, which its forks inherit.

    A Ctrl-C during its imports would end it; a signal to a job that is not ready yet waits.
    """
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # CUDA must not start in the server
    resource_tracker.ensure_running()  # first: starting it unblocks the two signals
    forkserver.set_forkserver_preload(list(preload))
    old = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    forkserver.ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _child(
    function: str, arguments: dict[str, Any], log: Path | None, environment: dict[str, str]
) -> None:
    """Run the job in this process and exit with its result."""
    os.setsid()
    os.environ.update(environment)
    if log is not None:
        _redirect(log)
    faulthandler.enable()  # SIGABRT prints where this process stands
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        threading.Thread(target=_stop_with_parent, daemon=True).start()
        module, _, name = function.partition(":")
        code = getattr(importlib.import_module(module), name)(**arguments)
    except UserError as error:
        tell(error)
        code = 2
    except RunFailedError as error:
        tell(error)
        code = error.exit_code
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
    if STORE in os.environ:  # it may wait for another process, and hear no signal meanwhile
        time.sleep(2 * GRACE_S)
        os.kill(os.getpid(), signal.SIGKILL)
