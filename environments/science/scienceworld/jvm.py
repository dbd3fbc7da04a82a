"""The Java process that simulates: one for each Python process, however many episodes it plays.

Each episode has a simulator object of its own in it; they share nothing that an episode can see.
The JVM reads the pipe that is its standard input and ends with it, so it dies with this process,
however that ends.
"""

import atexit
import functools
import importlib.util
import os
import shutil
from typing import Any

from environments.science.scienceworld.gold import cache_folder
from scalinginter.errors import UserError

OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # episodes are short: starting costs more than slower code
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",  # identity hashes are constant, so hash tables have one order in every run
)
CLOSE_TIMEOUT_S = 5.0


def require() -> None:
    """Raise `UserError` if Java or the package `scienceworld` is missing."""
    missing = [p for p in ("scienceworld", "py4j") if importlib.util.find_spec(p) is None]
    if missing:
        raise UserError(
            "scienceworld needs the package 'scienceworld', which is not installed; "
            "do: pip install 'scalinginter[science]'"
        )
    if shutil.which("java") is None:
        raise UserError(
            "scienceworld needs Java, and there is no 'java' on the PATH; install a runtime of "
            "version 8 or later (on Debian: apt-get install default-jre-headless)"
        )


def new_simulator(heap_mb: int) -> Any:
    """Return a simulator without a task. The first call of a process starts the JVM, which takes a
    second or two; its heap is that of the first call."""
    gateway = _gateway(os.getpid(), heap_mb)
    return gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()


def java_pid() -> int | None:
    """Return the process id of this process's JVM, or None before the first simulator."""
    return _running.pid if _running is not None else None


_running: Any = None  # the JVM as a subprocess.Popen


@functools.lru_cache(maxsize=1)
def _gateway(pid: int, heap_mb: int) -> Any:
    """Start the JVM. `pid` is part of the key: a fork does not share its parent's JVM."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    from scienceworld.constants import JAR_PATH

    global _running
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    port, _running = launch_gateway(
        classpath=JAR_PATH,
        javaopts=[f"-Xmx{heap_mb}m", *OPTIONS],
        cwd=str(folder),  # the simulator writes a table into its working directory
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_field=True))
    atexit.register(_close, gateway, _running)
    return gateway


def _close(gateway: Any, process: Any) -> None:
    """Tell the JVM to end, close the pipe that it reads, and wait for it."""
    gateway.shutdown()
    process.stdin.close()
    process.wait(CLOSE_TIMEOUT_S)
