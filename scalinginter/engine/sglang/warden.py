"""Runs a server and ends it when the trainer is gone, however that went.

The trainer starts this file with a pipe as standard input. When the pipe closes (the trainer stops
the server, or died, even by SIGKILL), the server's whole process group is ended: a server that lost
its client can keep a core busy. Only the standard library: `python -I -S warden.py PID_FILE
GRACE_S COMMAND...`
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_POLL_S = 0.2


def main() -> int:
    """Run the command; return its exit code, or 0 if it was ended from here."""
    pid_file, grace_s, *command = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the pipe alone says when to end
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    Path(pid_file).write_text(f"{child.pid}\n")
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], _POLL_S)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            break
    code = child.poll()
    _end_group(child, float(grace_s))
    Path(pid_file).unlink(missing_ok=True)
    return 0 if code is None else abs(code)


def _end_group(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGTERM to the group, SIGKILL to what is left of it after the grace."""
    for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process would never see the first
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and _group_lives(child):
        time.sleep(_POLL_S / 4)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _group_lives(child: subprocess.Popen[bytes]) -> bool:
    child.poll()  # reaps it
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
