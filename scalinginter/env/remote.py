"""A worker process as the event loop sees it: calls with deadlines over a socket, no threads."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scalinginter.errors import EnvironmentFailure, UserError

CLOSE_TIMEOUT_S = 0.5  # then the workers that are still there are killed
CLOSE_POLL_S = 0.005
START_TIMEOUT_S = 120.0  # importing a heavy environment from a cold disk takes its time
REAP_TIMEOUT_S = 1.0  # the event loop waits for a killed worker; then a thread does
LOG_LIMIT = 1 << 20  # bytes of a worker's error output that are kept
LAST_WORDS_S = 0.1  # between the end of a worker's stream and its burial
READ_SIZE = 1 << 18
# The trainer's main module is not imported in the worker (multiprocessing's spawn would): it may
# lack a guard, and it may import torch.
BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[3]); " + (
    "from scalinginter.env.worker import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)


class NotSentError(Exception):
    """A worker that had worked ended before this call was sent to it."""


@dataclass(slots=True)
class _Call:
    message: bytes
    what: str  # for messages: "step of task 'x'"
    timeout_s: float
    future: asyncio.Future[Any] | None  # None: the greeting


class WorkerProcess:
    """One process from its start to its death. Calls are sent one at a time, the others wait here,
    so that a deadline counts the time of its own call only.

    `load` is the number of episodes placed on it; `failure` says why it ended, once it has.
    """

    def __init__(
        self, greeting: dict[str, Any], on_death: Callable[["WorkerProcess"], None]
    ) -> None:
        self.load = 0
        self.ready = False
        self.failure: str | None = None
        self._on_death = on_death
        self._waiting: deque[_Call] = deque()
        self._current: _Call | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received = bytearray()
        self._unsent = bytearray()
        self._log = tempfile.TemporaryFile(mode="a+b")  # noqa: SIM115 - closed in kill
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        arguments = [str(theirs.fileno()), str(os.getpid()), json.dumps(sys.path)]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C does not reach it; one signal ends its children
            )
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._on_readable)
        self._dispatch(_Call(_line(greeting), "its start", START_TIMEOUT_S, None))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self, what: str, timeout_s: float, *message: Any) -> Any:
        """Send `message`, return the answer.

        Raises `EnvironmentFailure` when the environment fails, the worker dies, or the answer is
        later than `timeout_s` after the call was sent; `NotSentError` when the worker had worked
        and died before the call was sent; `UserError` for what the environment tells the user.
        """
        self._follow_loop()
        if self.failure is not None:
            reason = f"its worker process ended: {self.failure}"
            raise EnvironmentFailure(reason, collateral=True)
        if os.fstat(self._log.fileno()).st_size > LOG_LIMIT:
            self._log.truncate(0)
        future: asyncio.Future[Any] = self._loop.create_future()
        call = _Call(_line(message), what, timeout_s, future)
        if self._current is None:
            self._dispatch(call)
        else:
            self._waiting.append(call)
        return await future

    def post(self, *message: Any) -> None:
        """Send `message`, which has no answer."""
        if self.failure is None:
            self._follow_loop()
            self._write(_line(message))

    def finish(self) -> None:
        """Let it close its environments and end."""
        if self.failure is None:
            self._follow_loop()
            self._on_death = _ignore
            with contextlib.suppress(OSError):  # it may be dead already; the reader will tell
                self._socket.shutdown(socket.SHUT_WR)

    def kill(self, reason: str, *, timeout: bool = False) -> None:
        """End it and everything it started, now. Every call it holds fails."""
        if self.failure is not None:
            return
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody left in the group
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(timeout=REAP_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # in the kernel, or on a machine with no time for it
            threading.Thread(target=self._process.wait, daemon=True).start()
        self._socket.close()
        self.failure = reason + self._last_words(timeout)
        self._log.close()
        self._fail_calls(timeout)
        self._on_death(self)

    def _fail_calls(self, timeout: bool) -> None:
        current, self._current = self._current, None
        if current is not None and current.future is not None and not current.future.done():
            current.future.set_exception(EnvironmentFailure(str(self.failure), timeout=timeout))
        for call in self._waiting:
            if call.future is not None and not call.future.done():
                message = f"its worker process ended: {self.failure}"
                call.future.set_exception(
                    NotSentError() if self.ready else EnvironmentFailure(message)
                )
        self._waiting.clear()

    def _dispatch(self, call: _Call) -> None:
        self._current = call
        self._timer = self._loop.call_later(call.timeout_s, self._on_deadline)
        self._write(call.message)

    def _dispatch_next(self) -> None:
        self._current = None
        while self._waiting and self._current is None and self.failure is None:
            call = self._waiting.popleft()
            if call.future is not None and not call.future.done():  # else: its caller gave up
                self._dispatch(call)

    def _write(self, message: bytes) -> None:
        self._unsent += message
        self._on_writable()

    def _on_writable(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:  # the reader sees the end of the stream, too, and knows what to do
            return
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._socket, self._on_writable)
        else:
            self._loop.remove_writer(self._socket)

    def _on_readable(self) -> None:
        try:
            chunk = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return
        except ConnectionError:
            chunk = b""
        if not chunk:  # it is about to end; its exit status and last words tell why
            self._loop.remove_reader(self._socket)
            reason = "its worker process died" + self._during()
            self._loop.call_later(LAST_WORDS_S, self.kill, reason)
            return
        self._received += chunk
        while self.failure is None and (end := self._received.find(b"\n")) >= 0:
            line = bytes(self._received[:end])
            del self._received[: end + 1]
            self._on_answer(json.loads(line))

    def _on_answer(self, answer: dict[str, Any]) -> None:
        call, timer = self._current, self._timer
        assert call is not None, "an answer nobody asked for"
        assert timer is not None, "a call without a deadline"
        timer.cancel()
        if call.future is None:
            self.ready = True
        elif not call.future.done():
            if "error" in answer:
                call.future.set_exception(EnvironmentFailure(answer["error"]))
            elif "user_error" in answer:
                call.future.set_exception(UserError(answer["user_error"]))
            else:
                call.future.set_result(answer["ok"])
        self._dispatch_next()

    def _on_deadline(self) -> None:
        assert self._current is not None, "a deadline without a call"
        limit = self._current.timeout_s
        self.kill(f"no answer within {limit:g} s{self._during()}", timeout=True)

    def _during(self) -> str:
        return "" if self._current is None else f" in {self._current.what}"

    def _last_words(self, timeout: bool) -> str:
        code = self._process.returncode
        status = f"signal {signal.Signals(-code).name}" if code and code < 0 else f"status {code}"
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 400))
        tail = self._log.read().decode(errors="replace").strip()
        return ("" if timeout else f" ({status})") + (f"; it said: {tail}" if tail else "")

    def _follow_loop(self) -> None:
        """Move to the running event loop: a pool outlives one `asyncio.run`."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        self._loop = loop
        loop.add_reader(self._socket, self._on_readable)
        if self._unsent:
            loop.add_writer(self._socket, self._on_writable)
        if self._current is not None:
            self._timer = loop.call_later(self._current.timeout_s, self._on_deadline)


async def end_workers(workers: Sequence[WorkerProcess], reason: str) -> None:
    """Let the workers close their environments and end; kill those that take too long."""
    for worker in workers:
        worker.finish()
    deadline = time.monotonic() + CLOSE_TIMEOUT_S
    while any(worker.failure is None for worker in workers) and time.monotonic() < deadline:
        await asyncio.sleep(CLOSE_POLL_S)
    for worker in workers:
        worker.kill(reason)


def _line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _ignore(worker: WorkerProcess) -> None:
    """Nothing replaces a worker that was told to finish."""
