"""Environments that misbehave on command; imported by name in the pool's workers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from scalinginter.env.base import Split, TextEnv
from scalinginter.errors import UserError
from scalinginter.types import Task


class Counter(TextEnv):
    """Counts its steps; some actions are faults."""

    isolation = "process"
    instructions = "say anything"

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}/{i}", "counter", {"start": i}) for i in range(4)]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        options = options or {"task": self.tasks("train")[0], "horizon": 0}
        if options["task"].id == "hang":
            time.sleep(3600)
        self.count = options["task"].data.get("start", 0)
        self.seed = seed
        return f"count {self.count} seed {seed} horizon {options.get('horizon')}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        name, _, argument = action.partition(" ")
        if name == "hang":
            time.sleep(3600)
        elif name == "sleep":
            time.sleep(float(argument))
        elif name == "exit":
            os._exit(3)
        elif name == "sys_exit":
            sys.exit(3)
        elif name == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif name == "raise":
            raise ValueError(argument)
        elif name == "print":
            print(argument * 100_000, flush=True)
        elif name == "pid":
            return str(os.getpid()), 0.0, False, False, {}
        elif name == "modules":
            return str("torch" in sys.modules), 0.0, False, False, {}
        elif name == "child":
            child = subprocess.Popen(["sleep", "3600"])
            return str(child.pid), 0.0, False, False, {}
        elif name == "reward":
            return "paid", float(argument), False, False, {}
        elif name == "word":
            return "paid", argument, False, False, {}  # type: ignore[return-value]
        elif name == "echo":
            return argument, 0.0, False, False, {}
        elif name == "win":
            return "won", 1.0, True, False, {"success": True}
        self.count += 1
        return f"count {self.count}", 0.0, False, False, {}

    def admissible_actions(self) -> list[str]:
        return ["count", "win"]


class InlineCounter(Counter):
    isolation: ClassVar = "inline"


class ThreadCounter(Counter):
    isolation: ClassVar = "thread"


class HangingCorpus(Counter):
    def corpus(self) -> list[str]:
        time.sleep(3600)
        return []


class BrokenFromTheStart(Counter):
    """Works in the trainer, not in a worker."""

    def __init__(self) -> None:
        if os.getsid(0) == os.getpid():
            raise RuntimeError("no licence file")


class BrokenCatalog(Counter):
    """One call beside the episodes is broken: `tasks`, `corpus` or `expert_plan`."""

    def __init__(self, *, call: str = "", fault: str = "") -> None:
        self._call, self._fault = call, fault

    def tasks(self, split: Split) -> Sequence[Task]:
        self._break("tasks")
        return super().tasks(split) if split != "test" else []

    def corpus(self) -> list[str]:
        self._break("corpus")
        return ["count win", "naïve \ud800"]

    def expert_plan(self) -> list[str] | None:
        self._break("expert_plan")
        return ["count", "win", "never played"]

    def _break(self, call: str) -> None:
        if call != self._call:
            return
        if self._fault == "hang":
            time.sleep(3600)
        elif self._fault == "crash":
            os._exit(41)
        elif self._fault == "raise":
            raise OSError("no such game file")
        elif self._fault == "user":
            raise UserError("install scalinginter[science]")


class InlineCatalog(BrokenCatalog):
    isolation: ClassVar = "inline"


class BrokenConstructor(Counter):
    def __init__(self) -> None:
        raise OSError("no such data file")
