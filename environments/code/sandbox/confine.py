"""Runs inside the sandbox, before any code that nobody trusts: gives up rights, then goes on.

python -I -S -c "<this file>" '<settings as JSON>' [command ...]

It is handed over as text, since the package may lie where an unused user cannot read. It imports
the standard library only and runs under any Python from 3.9. What it gives up needs no privilege:

- resource limits (setrlimit);
- Landlock: no file outside the listed folders, no signal to processes outside (Linux 5.13, 6.12);
- seccomp: no sockets, no ptrace, no namespaces, no mounts, no kernel keys, no shared memory, no
  priority or limit of another process.

Settings: `limits` (resource name to [soft, hard]), `read` and `write` (paths that Landlock allows),
`keep_group` (forbid leaving the process group), `ready` (line printed once all is done),
`program` (Python source to run in this interpreter; else the command is executed).
"""

import ctypes
import json
import os
import platform
import resource
import signal
import struct
import sys

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 1, 38, 22, 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446  # one number on all machines
READ_RIGHTS = 0b1101  # execute, read a file, read a folder
FILE_RIGHTS = 0b100000000000111  # execute, write, read, truncate: what means something for a file
# Bits of the access mask by version of Landlock: 13 rights, then refer, truncate, ioctl
FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
NEW_NAMESPACES = 0x7E020000  # the CLONE_NEW* flags

# System calls that no program of ours needs, by machine. `clone` is looked at, `clone3` cannot be.
DENIED = {
    "x86_64": {
        "arch": 0xC000003E,
        "clone": 56,
        "group": (109, 112),  # setpgid, setsid
        "calls": (
            *(29, 41, 64, 68, 101, 134, 155, 161, 165, 166, 167, 169, 175, 176, 240),
            *(246, 248, 249, 250, 272, 298, 304, 308, 310, 311, 312, 313, 319, 320, 321, 323),
            *(141, 142, 144, 203, 251, 256, 279, 314),
        ),
        "prlimit": 302,
    },
    "aarch64": {
        "arch": 0xC00000B7,
        "clone": 220,
        "group": (154, 157),
        "calls": (
            *(39, 40, 41, 51, 97, 104, 105, 106, 117, 142, 180, 186, 190, 194, 198),
            *(217, 218, 219, 224, 241, 265, 268, 270, 271, 272, 273, 279, 280, 282, 294),
            *(30, 118, 119, 122, 140, 238, 239, 274),
        ),
        "prlimit": 261,
    },
}
# io_uring, the new mount calls, pidfd_open, pidfd_getfd, process_madvise, memfd_secret: one number
DENIED_EVERYWHERE = (*range(425, 434), 434, 438, 440, 442, 447)
CLONE3, ENOSYS, EPERM = 435, 38, 1


def limit_resources(limits: dict[str, list[int]]) -> None:
    """Set limits such as {"CPU": [5, 6]}; a hard limit that is lower already stays."""
    for name, (soft, hard) in limits.items():
        number = getattr(resource, "RLIMIT_" + name, None)
        if number is None:
            continue
        ceiling = resource.getrlimit(number)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(number, (soft, hard))


def landlock_version(libc: ctypes.CDLL) -> int:
    """Return the version of Landlock that the kernel offers, 0 if none."""
    return max(0, libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


def landlock(libc: ctypes.CDLL, read: list[str], write: list[str]) -> None:
    """Allow files below `read` to be read and executed, below `write` everything."""
    version = landlock_version(libc)
    if not version:
        return
    every = (1 << FS_RIGHTS.get(version, 16)) - 1
    attributes = struct.pack("=QQQ", every, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    for paths, rights in ((read, READ_RIGHTS), (write, every)):
        for path in paths:
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            of_this = rights if os.path.isdir(path) else rights & FILE_RIGHTS
            rule = struct.pack("=Qi", of_this, descriptor)
            libc.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0)
            os.close(descriptor)
    if libc.syscall(LANDLOCK_RESTRICT, ruleset, 0):
        raise OSError("Landlock refused")
    os.close(ruleset)


def statement(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one instruction of the classic BPF machine."""
    return struct.pack("=HBBI", code, if_true, if_false, value)


def seccomp_program(machine: str, keep_group: bool) -> bytes:
    """Return the filter as bytes: denied calls fail with EPERM, calls of another ABI kill."""
    load, equal, at_least, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill = 0x7FFF0000, 0x80000000
    table = DENIED[machine]
    calls = (*table["calls"], *DENIED_EVERYWHERE, *(table["group"] if keep_group else ()))
    program = [
        statement(load, 4),  # the ABI
        statement(equal, table["arch"], 1, 0),
        statement(answer, kill),
        statement(load, 0),  # the call's number
        statement(at_least, 0x40000000, 0, 1),  # the x32 ABI
        statement(answer, kill),
        statement(equal, CLONE3, 0, 1),
        statement(answer, 0x50000 | ENOSYS),  # the C library then uses clone
    ]
    for call in calls:
        program += [statement(equal, call, 0, 1), statement(answer, 0x50000 | EPERM)]
    program += [
        statement(equal, table["prlimit"], 0, 4),
        statement(load, 16),  # whose limits; 0: its own
        statement(equal, 0, 0, 1),
        statement(answer, allow),
        statement(answer, 0x50000 | EPERM),
        statement(equal, table["clone"], 0, 3),
        statement(load, 16),  # its flags, lower half
        statement(any_bit, NEW_NAMESPACES, 0, 1),
        statement(answer, 0x50000 | EPERM),
        statement(answer, allow),
    ]
    return b"".join(program)


def seccomp(libc: ctypes.CDLL, keep_group: bool) -> None:
    """Install the filter where the kernel and the machine have one."""
    if platform.machine() not in DENIED:
        return
    program = seccomp_program(platform.machine(), keep_group)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(header), 0, 0):
        raise OSError("seccomp refused")


def confine(settings: dict) -> None:
    """Give up everything that the settings do not allow."""
    limit_resources(settings["limits"])
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")  # short of memory, the kernel ends us and not the trainer
        except OSError:
            pass
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # nothing outlives the trainer
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        landlock(libc, settings["read"], settings["write"])
        seccomp(libc, settings["keep_group"])


def become_init() -> None:
    """Go on in a child. The first process of a namespace would be spared by limits and signals."""
    child = os.fork()
    if child:
        while True:
            pid, status = os.wait()
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    confine(given)
    if os.getpid() == 1:
        become_init()
    os.write(1, given["ready"].encode() + b"\n")
    if "program" in given:
        sys.argv = [""]
        source = compile(given["program"], "<driver>", "exec")
        exec(source, {"__name__": "__main__"})  # noqa: S102 (our driver, inside the sandbox)
    else:
        os.execvp(sys.argv[2], sys.argv[2:])
