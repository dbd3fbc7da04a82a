"""Java simulators: one JVM for each Python process, however many episodes it plays.

Each episode has a simulator object of its own in it; they share nothing that an episode can see.
The JVM reads the pipe that is its standard input and ends with it, so it dies with this process,
however that ends.
"""

import atexit
import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scalinginter.errors import UserError

OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # episodes are short: starting costs more than slower code
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",  # identity hashes are constant, so hash tables have one order in every run
)
CLOSE_TIMEOUT_S = 5.0


class JavaSimulator:
    """The JVM of this process for one simulator's jar. It starts with the first use.

    Args:
        package: Python package that brings the jar, and that is missing where it is not installed.
        extra: of `scalinginter`, that installs it.
        jar: returns the path of the jar; called when the JVM starts.
        folder: returns the JVM's working directory; called when the JVM starts.
    """

    def __init__(
        self, package: str, extra: str, jar: Callable[[], str], folder: Callable[[], Path]
    ) -> None:
        self._package, self._extra = package, extra
        self._jar, self._folder = jar, folder
        self._started_by = -1  # process id: a fork does not share its parent's JVM
        self._gateway: Any = None
        self._process: Any = None

    @property
    def pid(self) -> int | None:
        """The JVM's process id, or None before it started."""
        return None if self._process is None else self._process.pid

    def require(self) -> None:
        """Raise `UserError` if Java or the package is missing."""
        if any(importlib.util.find_spec(p) is None for p in (self._package, "py4j")):
            raise UserError(
                f"the package {self._package!r} is not installed; "
                f"do: pip install 'scalinginter[{self._extra}]'"
            )
        if shutil.which("java") is None:
            raise UserError(
                f"{self._package} needs Java, and there is no 'java' on the PATH; install a "
                "runtime of version 8 or later (on Debian: apt-get install default-jre-headless)"
            )

    def jvm(self, heap_mb: int) -> Any:
        """Return py4j's view of the JVM. The first call starts it, which takes a second or two; its
        heap is that of the first call, in MB."""
        if self._started_by != os.getpid():
            self._start(heap_mb)
        return self._gateway.jvm

    def _start(self, heap_mb: int) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

        port, self._process = launch_gateway(
            classpath=self._jar(),
            javaopts=[f"-Xmx{heap_mb}m", *OPTIONS],
            cwd=str(self._folder()),
            die_on_exit=True,
            return_proc=True,
        )
        parameters = GatewayParameters(port=port, auto_field=True)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        self._started_by = os.getpid()
        atexit.register(_close, self._gateway, self._process)


def _close(gateway: Any, process: Any) -> None:
    """Tell the JVM to end, close the pipe that it reads, and wait for it."""
    gateway.shutdown()
    process.stdin.close()
    process.wait(CLOSE_TIMEOUT_S)
