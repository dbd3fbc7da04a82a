"""Attempts to get out of the sandbox, one per entry of `sandbox_escapes.txt`, at every level.

Each entry names the promise that it attacks. Where a level cannot give that promise on this
machine, `describe()` says so and the attempt is skipped. The level `rlimit` never runs as root, so
its attempts run in a forked child that has become an ordinary user.
"""

import ctypes
import functools
import os
import pickle
import re
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import traceback
import warnings
from pathlib import Path

import pytest

from environments.code.sandbox import Limits
from environments.code.sandbox.levels import LEVELS, UIDS, find_plan
from environments.code.sandbox.local import LocalSandbox

ORDINARY_USER = 51_234
SECRET = b"SECRET-f3b1c1d7-of-the-trainer"
KEPT = ctypes.create_string_buffer(SECRET)  # at an address that the attempts are told
LIMITS = Limits(cpu_s=1, wall_s=1.5, memory_mb=256, processes=16, file_mb=4, disk_mb=16)
PRELUDE = """\
import ctypes, os, resource, signal, socket, struct, subprocess, sys, threading, time
from contextlib import suppress
libc = ctypes.CDLL(None, use_errno=True)
def escaped(*found): print("ESC" "APED", *found, flush=True)
"""
TEXT = Path(__file__).with_name("sandbox_escapes.txt").read_text()
ESCAPES = re.findall(r"^=== (\w+): (.*)\n((?:(?!===).*\n)+)", TEXT, re.MULTILINE)


class World:
    """What the attempts are after: a secret file, a helper process, servers."""

    def __init__(self, uid: int | None):
        self.folder = Path(tempfile.mkdtemp(prefix="escape-world-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.secret = self.folder / "secret.txt"
        self.secret.write_bytes(SECRET)
        self.secret.chmod(0o644)
        self.shared = self.folder / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o1777)
        os.environ["TRAINERS_SECRET"] = SECRET.decode()
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        self.unix, self.abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.folder / "socket"))
        self.abstract.bind(f"\0escape-world-{os.getpid()}-{uid}")
        for server in (self.tcp, self.udp, self.unix, self.abstract):
            server.setblocking(False)
        for server in (self.unix, self.abstract):
            server.listen()
        (self.folder / "socket").chmod(0o777)
        if uid is not None:
            os.chown(self.folder, uid, uid)
            os.chown(self.secret, uid, uid)
        self.canary = subprocess.Popen(
            ["sleep", "1000"],
            cwd=self.folder,
            user=uid,
            group=uid,
            extra_groups=[] if uid else None,
        )

    def fill(self, code: str) -> str:
        """Return the attempt with the addresses of this world."""
        places = {
            "SECRET": self.secret,
            "HOME": os.path.expanduser("~"),
            "PACKAGES": sysconfig.get_path("purelib"),
            "SHARED": self.shared,
            "PID": os.getpid(),
            "CANARY": self.canary.pid,
            "ADDRESS": ctypes.addressof(KEPT),
            "PORT": self.port,
            "SOCKET": self.folder / "socket",
            "ABSTRACT": self.abstract.getsockname()[1:].decode(),
        }
        return re.sub(r"@([A-Z]+)@", lambda match: str(places[match[1]]), code)

    def harm(self) -> list[str]:
        """Return what the attempts have done to it."""
        found = []
        if self.secret.read_bytes() != SECRET or self.secret.stat().st_mode & 0o777 != 0o644:
            found.append("the secret file was changed")
        if self.secret.stat().st_mtime < 1_000_000:
            found.append("the secret file's times were changed")
        if self.canary.poll() is not None or os.getpriority(os.PRIO_PROCESS, self.canary.pid) > 10:
            found.append("the helper process was touched")
        if any(self.shared.iterdir()):
            found.append("a file was left in a shared folder")
        for server in (self.tcp, self.unix, self.abstract):
            found += _visitors(server, "accept")
        return found + _visitors(self.udp, "recv", 10)

    def close(self):
        for server in (self.tcp, self.udp, self.unix, self.abstract):
            server.close()
        self.canary.kill()
        self.canary.wait()
        os.environ.pop("TRAINERS_SECRET")
        shutil.rmtree(self.folder)


def _visitors(server: socket.socket, ask: str, *arguments: int) -> list[str]:
    try:
        getattr(server, ask)(*arguments)
    except BlockingIOError:
        return []
    return [f"somebody reached {server.getsockname()!r}"]


def _drops_root(level: str) -> bool:
    return level == "rlimit" and os.geteuid() == 0


def _in_ordinary_child(work):
    """Return `work()` as an ordinary user would get it, from a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(*[ORDINARY_USER] * 3)
            os.setresuid(*[ORDINARY_USER] * 3)
            os.chdir("/")
            find_plan.cache_clear()
            answer = work()
        except BaseException:
            answer = traceback.format_exc()
        os.write(write, pickle.dumps(answer))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pickle.load(pipe)
    os.waitpid(child, 0)
    return answer


def _sandbox(level: str) -> LocalSandbox:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return LocalSandbox(LIMITS, level)


def _promises(level: str) -> object:
    try:
        return set(_sandbox(level).promises)
    except ValueError as error:
        return str(error)


@pytest.fixture(scope="module", params=LEVELS)
def level(request):
    """A level that works here, with what it promises."""
    ask = functools.partial(_promises, request.param)
    held = _in_ordinary_child(ask) if _drops_root(request.param) else ask()
    if not isinstance(held, set):
        pytest.skip(f"the level {request.param} does not work here: {held}")
    return request.param, held


@pytest.fixture(scope="module")
def world(level):
    """What is attacked."""
    made = World(ORDINARY_USER if _drops_root(level[0]) else None)
    yield made
    made.close()


def _attempt(level: str, world: World, code: str) -> tuple[str, str]:
    result = _sandbox(level).run_python(PRELUDE + world.fill(code))
    return result.status, result.output


def _survivors(level: str, world: World) -> list[str]:
    """Return the processes that the sandbox's users, or the ordinary one, still have."""
    users = {ORDINARY_USER} if _drops_root(level) else set(UIDS) if os.geteuid() == 0 else set()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            mine = entry.stat().st_uid in users and int(entry.name) != world.canary.pid
            command = (entry / "cmdline").read_text()
        except OSError:
            continue
        if mine and not dead and str(world.folder) in command + _folder_of(entry):
            found.append(command)
    return found


def _folder_of(entry: Path) -> str:
    try:
        return os.readlink(entry / "cwd")
    except OSError:
        return ""


@pytest.mark.parametrize(("promise", "sentence", "code"), ESCAPES, ids=[e[1] for e in ESCAPES])
def test_it_does_not_get_out_when(level, world, promise: str, sentence: str, code: str):
    name, held = level
    if promise not in held:
        pytest.skip(f"the level {name} cannot promise this here, and says so")
    attempt = functools.partial(_attempt, name, world, code)
    answer = _in_ordinary_child(attempt) if _drops_root(name) else attempt()
    escaped = isinstance(answer, str) or "ESCAPED" in answer[1] or SECRET.decode() in answer[1]
    assert (escaped, world.harm(), _survivors(name, world)) == (False, [], []), answer
    assert len(answer[1]) <= LIMITS.output_bytes
