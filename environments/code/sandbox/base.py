"""What every sandbox offers: limits, results, one-shot runs and sessions that keep their state."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from scalinginter.errors import UserError

Status = Literal["ok", "error", "time", "output", "disk"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use. Memory, files and CPU are per process, the rest is for the run."""

    cpu_s: int = 5  # CPU seconds of a process; a session's process: of all its calls together
    wall_s: float = 10.0  # seconds of a run, or of one call of a session
    memory_mb: int = 256  # address space of a process
    processes: int = 16  # processes and threads at one time
    open_files: int = 64  # of a process
    file_mb: int = 8  # one file
    disk_mb: int = 32  # the throw-away folder
    output_bytes: int = 8192  # what is read of stdout and stderr together; more ends the run

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise UserError(f"limit {field.name} must be a positive number, got {value!r}")


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended, and what it wrote to stdout and stderr (in order, cut at the limit)."""

    status: Status  # error: a non-zero exit; time, output, disk: that limit ended the run
    output: str
    exit_code: int | None  # None: it was ended

    @property
    def ok(self) -> bool:
        """True if the program ended by itself with exit code 0."""
        return self.status == "ok"


class Session(ABC):
    """A Python interpreter that keeps its variables from call to call."""

    @abstractmethod
    def run(self, code: str) -> Result:
        """Execute code; the value of a last expression is printed, as at a Python prompt.

        A call that a limit ends loses the variables: the next one starts from nothing.
        Raises `EnvironmentFailure` if the sandbox itself fails.
        """

    @abstractmethod
    def close(self) -> None:
        """End the interpreter and drop its folder. May be called twice."""


class Sandbox(ABC):
    """A place to run code. Instances are cheap and may be shared."""

    level: str
    """How it confines: `bubblewrap`, `setpriv`, `rlimit`, or `fusion`."""

    @abstractmethod
    def describe(self) -> str:
        """Return, as lines of text, what this sandbox promises and what it cannot promise."""

    @abstractmethod
    def run_python(self, code: str, files: Mapping[str, str] | None = None) -> Result:
        """Run a whole program in a folder of its own that holds `files` (name to content).

        Raises `EnvironmentFailure` if the sandbox itself fails.
        """

    @abstractmethod
    def session(self) -> Session:
        """Return an interpreter that has not started yet; its first call starts it."""
