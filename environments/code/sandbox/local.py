"""The sandbox of this machine."""

import json
import os
import warnings
import weakref
from collections.abc import Mapping

from environments.code.sandbox.base import Limits, Result, Sandbox, Session
from environments.code.sandbox.levels import BOX, Level, Plan, find_plan
from environments.code.sandbox.process import Confined, Folder, User, driver_source
from environments.code.sandbox.promises import promises, report
from scalinginter.errors import UserError

MARK_BYTES = 12


class LocalSandbox(Sandbox):
    """Runs code in confined processes of this machine.

    Args:
        limits: of every run.
        level: `auto` takes the strongest that works here; a named one is taken or refused.

    The level `rlimit` warns: it shares the caller's user. Raises `UserError` if the level does not
    work here; as root, `rlimit` never does.
    """

    def __init__(self, limits: Limits | None = None, level: Level | str = "auto") -> None:
        self.limits = limits or Limits()
        try:
            self.plan: Plan = find_plan(None if level == "auto" else level)  # pyrefly: ignore
        except LookupError as error:
            raise UserError(
                f"no sandbox works here (asked for {level!r}): {error}. Install bubblewrap "
                "(apt-get install bubblewrap), run as an ordinary user, or give the address of a "
                "SandboxFusion server"
            ) from error
        self.level = self.plan.level
        if self.level == "rlimit":
            warnings.warn(f"weak sandbox: {self.describe()}", RuntimeWarning, stacklevel=2)

    @property
    def promises(self) -> frozenset[str]:
        """What holds at this level on this machine: names of `promises.PROMISES`."""
        return promises(self.plan)

    def describe(self) -> str:
        return report(self.plan)

    def run_python(self, code: str, files: Mapping[str, str] | None = None) -> Result:
        parts = Parts(self.plan)
        try:
            for name, content in {**(files or {}), "main.py": code}.items():
                parts.folder.write(name, content)
            command = [self.plan.python, "-I", "-S", "main.py"]
            return self._run(command, parts.user, parts.folder)
        finally:
            parts.close()

    def _run(self, command: list[str], user: User | None, folder: Folder) -> Result:
        process = Confined(self.plan, self.limits, user, folder, command)
        try:
            status, output, code = process.read()
        finally:
            process.kill()
        return Result(status, output, code)

    def session(self) -> Session:
        return LocalSession(self)

    def box(self) -> "Box":
        """Return a folder in which commands run one after the other."""
        return Box(self)


class Parts:
    """A folder, its user, and the process that lives there: closed together, at the latest when
    their owner is forgotten or this process ends."""

    def __init__(self, plan: Plan) -> None:
        self.user = User() if plan.own_user else None
        self.folder = Folder(self.user)
        self.process: Confined | None = None

    def close(self) -> None:
        """End what runs, give the user back and remove the folder. May be called twice."""
        if self.process:
            self.process.kill()
        if self.user:
            self.user.close()
        self.folder.close()
        self.process = self.user = None


class Box:
    """A throw-away folder that outlives its commands; between commands nothing runs."""

    def __init__(self, sandbox: LocalSandbox) -> None:
        self._sandbox = sandbox
        self._parts = Parts(sandbox.plan)
        self.folder = self._parts.folder
        weakref.finalize(self, self._parts.close)

    @property
    def inside(self) -> str:
        """The folder's path as commands see it."""
        return BOX if self._sandbox.level == "bubblewrap" else self.folder.path

    def run(self, script: str, where: str = ".") -> Result:
        """Run a bash script in the folder `where` below the box.

        Raises `EnvironmentFailure` if the sandbox itself fails.
        """
        command = ["bash", "--norc", "--noprofile", "-c", f'cd -- "$0" && {{ {script}\n}}', where]
        return self._sandbox._run(command, self._parts.user, self.folder)

    def close(self) -> None:
        """End what runs and remove the folder. May be called twice."""
        self._parts.close()


class LocalSession(Session):
    """A confined interpreter that waits, frozen, between its calls."""

    def __init__(self, sandbox: LocalSandbox) -> None:
        self._sandbox = sandbox
        self._parts: Parts | None = None

    def _start(self) -> Confined:
        plan, limits = self._sandbox.plan, self._sandbox.limits
        parts = self._parts = Parts(plan)
        weakref.finalize(self, parts.close)
        parts.process = Confined(
            plan, limits, parts.user, parts.folder, [], driver_source(), interactive=True
        )
        return parts.process

    def run(self, code: str) -> Result:
        if self._parts is None or self._parts.process is None:
            process = self._start()
        else:
            process = self._parts.process
            process.thaw()
        mark = os.urandom(MARK_BYTES).hex()
        call = json.dumps({"code": code, "end": mark})
        sent = process.send(call.encode() + b"\n")
        status, output, exit_code = process.read(f"\n{mark}\n".encode())
        if status == "ok" and sent:
            process.freeze()
        else:
            self.close()
        return Result(status, output, exit_code)

    def close(self) -> None:
        if self._parts:
            self._parts.close()
            self._parts = None
