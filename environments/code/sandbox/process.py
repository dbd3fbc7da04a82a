"""One confined process tree: started, read with bounds, frozen, ended to the last process."""

import contextlib
import functools
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from environments.code.sandbox.base import Limits, Status
from environments.code.sandbox.levels import BOX, PATH, READY, UIDS, Plan, confined, settings
from scalinginter.errors import EnvironmentFailure

POLL_S = 0.05  # how often a running program's disk use is looked at
START_TIMEOUT_S = 30.0  # on a busy machine
MAX_ENTRIES = 5_000  # files and folders that the throw-away folder may hold
MB = 2**20
PREFIX = "scalinginter-box-"  # the owner's process id follows

_Why = Literal["end", "gone", "time", "output", "disk"]  # reading stopped


class User:
    """A user id that no other sandbox of this machine has, as long as this object is open.

    The id is held by an abstract Unix socket: it is free again as soon as its process is gone.
    """

    def __init__(self) -> None:
        for uid in UIDS:
            holder = socket.socket(socket.AF_UNIX)
            try:
                holder.bind(f"\0scalinginter-sandbox-user-{uid}")
            except OSError:
                holder.close()
                continue
            self.uid, self._holder = uid, holder
            return
        raise EnvironmentFailure(f"all {len(UIDS)} user ids of the sandbox are in use")

    def signal(self, name: str) -> None:
        """Send a signal to every process of this user: none can leave in time, even by forking."""
        subprocess.run(
            [
                *("setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"),
                *("sh", "-c", f"kill -{name} -1"),
            ],
            env={"PATH": PATH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,  # fails where no process is left
        )

    def close(self) -> None:
        """End this user's processes and give the id back."""
        self.signal("KILL")
        self._holder.close()


@functools.cache
def sweep(place: str) -> None:
    """Remove, once per process, the folders of processes that were killed before they could."""
    for path in Path(place).glob(f"{PREFIX}*"):
        owner = path.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            subprocess.run(["rm", "-rf", "--", str(path)], capture_output=True, check=False)


class Folder:
    """The throw-away folder of a run, owned by the user who runs."""

    def __init__(self, user: User | None) -> None:
        sweep(tempfile.gettempdir())
        self.path = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
        self._user = user
        if user:
            os.chown(self.path, user.uid, user.uid)

    def write(self, name: str, content: str, mode: int = 0o644) -> None:
        """Write a file, and the folders above it, before anything has run here."""
        path = Path(self.path, name)
        for parent in reversed(path.relative_to(self.path).parents[:-1]):
            self.make_folder(str(parent))
        path.write_text(content)
        self._hand_over(path, mode)

    def make_folder(self, name: str) -> None:
        """Make a folder if it is not there."""
        path = Path(self.path, name)
        if not path.is_dir():
            path.mkdir()
            self._hand_over(path, 0o755)

    def _hand_over(self, path: Path, mode: int) -> None:
        path.chmod(mode)
        if self._user:
            os.chown(path, self._user.uid, self._user.uid)

    def is_over(self, disk_bytes: int) -> bool:
        """Does it hold more than it may? Never follows a link; stops counting at the limit."""
        used, entries, waiting = 0, 0, [self.path]
        while waiting:
            try:
                with os.scandir(waiting.pop()) as listed:
                    for entry in listed:
                        entries += 1
                        status = entry.stat(follow_symlinks=False)
                        used += status.st_blocks * 512
                        if entries > MAX_ENTRIES or used > disk_bytes:
                            return True
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
            except FileNotFoundError:
                continue  # removed while we looked
            except OSError:
                return True  # longer than a path may be, or closed to us: it cannot be counted
        return False

    def close(self) -> None:
        """Remove it; may be called twice. `rm` takes trees too deep for a recursive function."""
        if not os.path.lexists(self.path):
            return
        remove = ["rm", "-rf", "--", self.path]
        if subprocess.run(remove, capture_output=True, check=False).returncode:
            subprocess.run(["chmod", "-R", "u+rwx", self.path], capture_output=True, check=False)
            subprocess.run(remove, capture_output=True, check=False)


class Confined:
    """A running process tree in a sandbox. Its stdout and stderr come through one pipe.

    Args:
        plan: the level.
        limits: of this run.
        user: whose processes they are; None where the level has no user of its own.
        folder: the throw-away folder, also the working directory.
        command: what to execute; empty if `program` is given.
        program: Python source to run in the interpreter that confined itself.
        stdin: text for it.
        interactive: leave stdin open for `send`.

    Raises `EnvironmentFailure` if the sandbox does not come up.
    """

    def __init__(
        self,
        plan: Plan,
        limits: Limits,
        user: User | None,
        folder: Folder,
        command: list[str],
        program: str | None = None,
        interactive: bool = False,
        extra_env: Mapping[str, str] | None = None,
    ) -> None:
        given = settings(plan, limits, folder.path)
        if program is not None:
            given["program"] = program
        self._plan, self._limits, self._user, self._folder = plan, limits, user, folder
        home = BOX if plan.level == "bubblewrap" else folder.path
        uid = user.uid if user else os.getuid()
        try:
            self._process = subprocess.Popen(
                [*confined(plan, uid, folder.path, given), *command],
                env={
                    "PATH": PATH,
                    "HOME": home,
                    "TMPDIR": home,
                    "LANG": "C.UTF-8",
                    "PYTHONHASHSEED": "0",
                    "PYTHONDONTWRITEBYTECODE": "1",
                    **(extra_env or {}),
                },
                cwd=None if plan.level == "bubblewrap" else folder.path,
                stdin=subprocess.PIPE if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise EnvironmentFailure(f"the sandbox cannot start: {error}") from error
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._buffer = b""
        self._await_start()

    def _await_start(self) -> None:
        line = READY.encode() + b"\n"
        status, output = self._read(START_TIMEOUT_S, 10_000, line)
        if status != "end":
            self.kill()
            raise EnvironmentFailure(
                f"the sandbox ({self._plan.level}) did not come up: "
                f"{output.decode(errors='replace').strip()[-300:] or status}"
            )

    def send(self, data: bytes) -> bool:
        """Write to its stdin; False if it is gone or does not read."""
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        os.set_blocking(descriptor, False)
        deadline = time.monotonic() + self._limits.wall_s
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                select.select([], [descriptor], [], POLL_S)
            except OSError:
                return False
        return True

    def read(self, end: bytes | None = None) -> tuple[Status, str, int | None]:
        """Return how the program, or this call of it, ended, its output, and its exit code.

        `end`: the line that closes a call; None: read until the program is gone.
        """
        status, output = self._read(self._limits.wall_s, self._limits.output_bytes, end)
        text = output[: self._limits.output_bytes].decode(errors="replace")
        if status == "end":
            return "ok", text, 0
        if status == "time" or status == "output" or status == "disk":
            return status, text, None
        code = self._exit_code()
        if code == 128 + signal.SIGXCPU:
            return "time", text, None
        return ("ok" if code == 0 and end is None else "error"), text, code

    def _exit_code(self) -> int:
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def _read(self, seconds: float, most: int, end: bytes | None) -> tuple[_Why, bytes]:
        """Read until `end`, the end of the process, or a limit; the answer names which."""
        deadline = time.monotonic() + seconds
        next_look = time.monotonic() + POLL_S
        at_end = False  # of its output: it may close it and run on
        while True:
            if end is not None and (place := self._buffer.find(end)) >= 0:
                output, self._buffer = self._buffer[:place], self._buffer[place + len(end) :]
                return "end", output
            if len(self._buffer) > most:
                return "output", self._buffer
            now = time.monotonic()
            if now >= deadline:
                return "time", self._buffer
            if now >= next_look:
                if self._folder.is_over(self._limits.disk_mb * MB):
                    return "disk", self._buffer
                next_look = time.monotonic() + POLL_S
            ended = self._process.poll() is not None
            open_outputs = [] if at_end else [self._out]
            ready, _, _ = select.select(open_outputs, [], [], 0 if ended else POLL_S)
            chunk = os.read(self._out, 65536) if ready else b""
            at_end = at_end or (bool(ready) and not chunk)
            self._buffer += chunk
            if ended and not chunk:  # children that hold the pipe open are not waited for
                over = self._folder.is_over(self._limits.disk_mb * MB)
                return ("disk" if over else "gone"), self._buffer

    def freeze(self) -> None:
        """Stop all its processes: between two calls nothing runs."""
        self._signal_all("STOP")

    def thaw(self) -> None:
        """Let them run again."""
        self._signal_all("CONT")

    def _signal_all(self, name: str) -> None:
        if self._user:
            self._user.signal(name)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, getattr(signal, f"SIG{name}"))

    def kill(self) -> None:
        """End every process of the tree. May be called twice."""
        if self._user and not self._plan.own_processes:
            self._user.signal("KILL")
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()


@functools.cache
def driver_source() -> str:
    """Return the source of the interpreter that keeps its state."""
    return Path(__file__).with_name("driver.py").read_text()
