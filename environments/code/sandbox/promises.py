"""What a level promises on this machine, in words that the security tests use."""

import ctypes
import functools
import platform
import sys

from environments.code.sandbox import confine
from environments.code.sandbox.levels import Plan

PROMISES = {
    "limits": "CPU, wall time, memory, files and output are bounded",
    "processes": "the number of processes is bounded",
    "files": "no file of the trainer can be read or written",
    "network": "no network, and no socket of this machine",
    "memory": "no other process can be read, traced or written to",
    "signals": "no other process can be signalled",
    "leftovers": "no process survives the run",
    "metadata": "no file of the trainer can change its mode, owner or times",
    "own_processes": "the processes of the machine cannot be seen",
}


@functools.cache
def kernel_features() -> frozenset[str]:
    """Return which of `landlock`, `landlock_signals`, `seccomp` this machine has."""
    if sys.platform != "linux":
        return frozenset()
    version = confine.landlock_version(ctypes.CDLL(None, use_errno=True))
    found = {"landlock"} if version else set()
    found |= {"landlock_signals"} if version >= 6 else set()
    found |= {"seccomp"} if platform.machine() in confine.DENIED else set()
    return frozenset(found)


def promises(plan: Plan) -> frozenset[str]:
    """Return the names of `PROMISES` that hold."""
    kernel = kernel_features()
    held = {"limits", "processes"}
    walls = plan.level == "bubblewrap"
    if walls or "landlock" in kernel:
        held.add("files")
    if walls or "seccomp" in kernel:
        held.add("network")
    if walls or plan.own_user or kernel >= {"landlock", "seccomp"}:
        held.add("memory")
    if walls or plan.own_user or "landlock_signals" in kernel:
        held.add("signals")
    if walls or plan.own_user or "seccomp" in kernel:
        held.add("leftovers")
    if walls or plan.own_user:
        held.add("metadata")
    if plan.own_processes or "landlock" in kernel:
        held.add("own_processes")
    return frozenset(held)


def report(plan: Plan) -> str:
    """Return lines for people: the level, what holds, what does not, and why no stronger one."""
    held = promises(plan)
    extras = ", ".join(sorted(kernel_features())) or "nothing"
    lines = [f"sandbox level {plan.level}; the kernel adds {extras}"]
    lines += [f"  holds: {text}" for name, text in PROMISES.items() if name in held]
    lines += [
        f"  CANNOT BE PROMISED: {text}" for name, text in PROMISES.items() if name not in held
    ]
    lines += [f"  not used: {reason}" for reason in plan.refused]
    return "\n".join(lines)
