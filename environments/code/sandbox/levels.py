"""How a command is wrapped so that it is confined: three levels, tried from the strongest down.

bubblewrap   a root of its own (read-only system folders and one writable folder), namespaces of
             its own (processes, network, IPC, host name); started by root it also gets a user of
             its own, started by others a user namespace
setpriv      root only: a user of its own without any capability; process, network and IPC
             namespaces where the kernel lets us
rlimit       neither: the caller's own user

Each level then runs `confine.py` (resource limits, Landlock, seccomp), where the kernel has them.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from environments.code.sandbox.base import Limits

Level = Literal["bubblewrap", "setpriv", "rlimit"]
LEVELS: tuple[Level, ...] = ("bubblewrap", "setpriv", "rlimit")
INSIDE = Path(__file__).parent
PATH = "/usr/local/bin:/usr/bin:/bin"
READY = "sandbox is ready"
BOX = "/box"  # where the throw-away folder is seen under bubblewrap
PROBE_TIMEOUT_S = 20.0
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
NAMESPACES = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts")
MB = 2**20


@dataclass(frozen=True, slots=True)
class Plan:
    """A level that works on this machine."""

    level: Level
    python: str  # the interpreter that the confined user can run
    own_user: bool  # processes run under a user that nobody else has
    own_processes: bool  # a process namespace: killing its first process kills all
    refused: tuple[str, ...] = ()  # why the stronger levels are not there

    @property
    def prefix(self) -> str:
        """The folder that holds the interpreter and its library."""
        return str(Path(self.python).parent.parent)


def wrap(plan: Plan, uid: int, folder: str) -> list[str]:
    """Return the words to put before a command. `folder` is the throw-away folder on the host."""
    as_user = [
        "setpriv",
        f"--reuid={uid}",
        f"--regid={uid}",
        "--clear-groups",
        "--no-new-privs",
        "--inh-caps=-all",
        "--ambient-caps=-all",
        "--bounding-set=-all",
        "--",
    ]
    if plan.level == "rlimit":
        return []
    if plan.level == "setpriv":
        spaces = ["--net", "--ipc", "--uts", "--pid", "--mount", "--mount-proc", "--fork"]
        own = ["unshare", *spaces, "--kill-child", "--"] if plan.own_processes else []
        return [*own, *as_user]
    return [*_bubblewrap(plan, folder), *(as_user if plan.own_user else [])]


def _bubblewrap(plan: Plan, folder: str) -> list[str]:
    words = ["bwrap", *NAMESPACES, "--die-with-parent"]
    if not plan.own_user:
        words += ["--unshare-user", "--cap-drop", "ALL"]
    for path in SYSTEM:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    for path in ETC:
        words += ["--ro-bind-try", path, path]
    if not plan.prefix.startswith("/usr"):
        for parent in reversed(Path(plan.prefix).parents[:-1]):
            words += ["--perms", "0755", "--dir", str(parent)]  # the host's may be closed to others
        words += ["--ro-bind", plan.prefix, plan.prefix]
    for hidden in _trainers_folders():
        words += ["--perms", "0700", "--tmpfs", hidden]
    words += ["--proc", "/proc", "--dev", "/dev", "--bind", folder, BOX, "--chdir", BOX]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--"]


def _trainers_folders() -> list[str]:
    """Return folders of the trainer that lie in a system folder and would be seen there."""
    own = {str(Path.cwd()), str(INSIDE.parents[2])}
    shown = [path + "/" for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    packages = ("/site-packages", "/dist-packages")
    return sorted(
        path
        for path in own
        if path.startswith(tuple(shown)) and not path.endswith(packages) and len(path) > 8
    )


def settings(plan: Plan, limits: Limits, folder: str) -> dict[str, object]:
    """Return what `confine.py` is told, except the program."""
    processes = limits.processes
    if not plan.own_user and plan.level == "rlimit":
        processes += _threads_of_this_user()  # the kernel counts the user's others as well
    inside = BOX if plan.level == "bubblewrap" else folder
    return {
        "limits": {
            "CPU": [limits.cpu_s, limits.cpu_s + 1],
            "AS": [limits.memory_mb * MB] * 2,
            "NPROC": [processes] * 2,
            "NOFILE": [limits.open_files] * 2,
            "FSIZE": [limits.file_mb * MB] * 2,
            "CORE": [0, 0],
            "MEMLOCK": [0, 0],
            "MSGQUEUE": [0, 0],
        },
        "read": [*SYSTEM, *ETC, plan.prefix, *(["/proc"] if plan.own_processes else [])],
        "write": [inside, *DEVICES],
        "keep_group": not plan.own_user,
        "ready": READY,
    }


def _threads_of_this_user() -> int:
    """Return how many threads the caller's user has; 0 where /proc is not there."""
    count, me = 0, os.getuid()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if entry.stat().st_uid == me:
                count += len(os.listdir(entry / "task"))
        except OSError:
            continue  # it ended meanwhile
    return count


def confined(plan: Plan, uid: int, folder: str, given: dict[str, object]) -> list[str]:
    """Return the whole command up to the confined program's own words."""
    source = (INSIDE / "confine.py").read_text()
    python = [plan.python, "-I", "-S", "-c", source, json.dumps(given)]
    return [*wrap(plan, uid, folder), *python]


@functools.cache
def find_plan(level: Level | None = None) -> Plan:
    """Return the strongest level that works here, or `level` itself if it does.

    Tried by running a command under it; the answer is remembered for the process.
    Raises `LookupError` with the reasons if none does.
    """
    refused: list[str] = []
    for name in LEVELS if level is None else (level,):
        for plan in _candidates(name):
            error = _probe(plan)
            if error is None:
                return Plan(name, plan.python, plan.own_user, plan.own_processes, tuple(refused))
            refused.append(f"{name}: {error}")
        if not _candidates(name):
            refused.append(f"{name}: {_missing(name)}")
    raise LookupError("; ".join(refused))


def _candidates(level: Level) -> list[Plan]:
    root = os.geteuid() == 0
    own = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    system = shutil.which("python3", path=PATH)
    if level == "bubblewrap":
        if not shutil.which("bwrap") or (root and not shutil.which("setpriv")):
            return []
        return [Plan(level, own, own_user=root, own_processes=True)]
    if level == "setpriv":
        if not root or not shutil.which("setpriv"):
            return []
        pythons = [own] if _reachable(own) else []
        pythons += [os.path.realpath(system)] if system else []
        return [
            Plan(level, python, own_user=True, own_processes=spaces)
            for spaces in (True, False)
            for python in pythons
        ]
    pythons = [own] if os.access(own, os.X_OK) else []
    pythons += [os.path.realpath(system)] if system else []
    return [] if root else [Plan(level, python, False, False) for python in pythons]


def _reachable(path: str) -> bool:
    """Can any user go there? An interpreter often lies under a home of mode 0700."""
    return all(parent.stat().st_mode & 0o001 for parent in Path(path).parents)


def _missing(level: Level) -> str:
    if level == "bubblewrap":
        return "bwrap (Debian package bubblewrap) is not installed"
    if level == "setpriv":
        return "needs root and setpriv (util-linux)"
    return "root would run the code as root"


def _probe(plan: Plan) -> str | None:
    """Run nothing under the plan; return None if that works, else what went wrong."""
    uid = UIDS.start if plan.own_user else os.getuid()
    given = settings(plan, Limits(), "/") | {"program": ""}
    folder = "/usr"  # any folder that exists; the probe writes nothing
    try:
        done = subprocess.run(
            confined(plan, uid, folder, given),
            env={"PATH": PATH},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0 and READY.encode() in done.stdout:
        return None
    return (done.stderr or done.stdout).decode(errors="replace").strip()[-200:]


# Debian leaves 30000 to 59999 to nobody. Containers that map few users make the probe fail.
UIDS = range(52000, 60000)
