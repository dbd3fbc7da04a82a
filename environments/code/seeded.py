"""What the environments of this family share: task lists drawn from seeds, and sandboxed code."""

import functools
import json
import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import gymnasium

from environments.code.sandbox import Limits, Result, Sandbox, make_sandbox
from scalinginter.env.base import SPLITS, Split, TextEnv, check_split
from scalinginter.errors import UserError
from scalinginter.types import Task

Drawn = tuple[dict[str, Any], int, str]  # data, required turns, and a short name of the kind
MAX_TASKS = 100_000
ATTEMPTS = 200  # redraws of a task that is already in the list


def draw_tasks(
    environment: str, sizes: Sequence[int], seed: int, draw: Callable[[random.Random, int], Drawn]
) -> dict[Split, tuple[Task, ...]]:
    """Return the tasks of the three splits. No content occurs twice, so the splits are disjoint.

    `draw(random, index)` makes a task from the generator it is given; the index within the split
    lets kinds and lengths take turns. Raises `UserError` if there are too few different ones.
    """
    seen: set[str] = set()
    found: dict[Split, tuple[Task, ...]] = {}
    for split, size in zip(SPLITS, sizes, strict=True):
        tasks = []
        for index in range(size):
            for attempt in range(ATTEMPTS):
                key = f"{environment}/{seed}/{split}/{index}/{attempt}"
                data, turns, kind = draw(random.Random(key), index)
                content = json.dumps(data, sort_keys=True)
                if content not in seen:
                    break
            else:
                raise UserError(
                    f"{environment}: too few different tasks for {sum(sizes)}; ask for fewer, "
                    "or for a wider range of lengths"
                )
            seen.add(content)
            tasks.append(Task(f"{split}/{kind}/{index:06d}", environment, data, turns))
        found[split] = tuple(tasks)
    return found


class SeededEnv(TextEnv):
    """An environment whose tasks are drawn from seeds.

    Args:
        num_train, num_validation, num_test: tasks per split.
        task_seed: which tasks.
    """

    env_id: ClassVar[str]

    def __init__(self, num_train: int, num_validation: int, num_test: int, task_seed: int) -> None:
        sizes = {"num_train": num_train, "num_validation": num_validation, "num_test": num_test}
        for name, size in sizes.items():
            check_int(name, size, 1, MAX_TASKS)
        check_int("task_seed", task_seed, 0)
        self._sizes = tuple(sizes.values())
        self._task_seed = task_seed
        self._over = True

    def tasks(self, split: Split) -> Sequence[Task]:
        check_split(split)
        return self._all_tasks[split]

    @functools.cached_property
    def _all_tasks(self) -> dict[Split, tuple[Task, ...]]:
        return draw_tasks(self.env_id, self._sizes, self._task_seed, self._draw)

    @abstractmethod
    def _draw(self, chance: random.Random, index: int) -> Drawn:
        """Draw one task; depends on nothing but the arguments and the parameters."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`; the seed changes nothing."""
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        self._task = task
        self._over = False
        return self._begin(task), {"task_id": task.id, "success": False}

    @abstractmethod
    def _begin(self, task: Task) -> str:
        """Set the episode up; return the first observation."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end of the episode."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        observation, reward, terminated, success = self._act(action)
        self._over = terminated
        return observation, reward, terminated, False, {"success": success}

    @abstractmethod
    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        """Return the observation, the reward, whether it is over, and whether it was solved."""


class PartsEnv(SeededEnv):
    """An environment whose tasks have parts: the next is shown when the one before is solved. Code
    of the agent runs in the sandbox.

    Each part earns an equal share of the reward, so a task earns 1 when all are solved.

    Args:
        parts: how many parts the tasks have; the entries take turns over the task list.
        num_train, num_validation, num_test: tasks per split.
        task_seed: which tasks.
        max_output: characters of output that are shown.
        sandbox_level: `auto`, `bubblewrap`, `setpriv` or `rlimit`.
        wall_s, memory_mb: limits of one run.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "process"
    turns_per_part: ClassVar[int] = 2  # of the expert
    usual_parts: ClassVar[tuple[int, ...]] = (1, 1, 2, 3, 5, 8, 12, 20)

    def __init__(
        self,
        *,
        parts: Sequence[int] | None = None,
        num_train: int = 2048,
        num_validation: int = 128,
        num_test: int = 256,
        task_seed: int = 0,
        max_output: int = 2000,
        sandbox_level: str = "auto",
        wall_s: float = 10.0,
        memory_mb: int = 256,
    ) -> None:
        super().__init__(num_train, num_validation, num_test, task_seed)
        check_int("max_output", max_output, 10)
        self._max_output = max_output
        if not isinstance(wall_s, int | float) or not 0 < wall_s <= 3600:
            raise UserError(f"wall_s must be above 0 and at most 3600 seconds, got {wall_s!r}")
        self._level = sandbox_level
        self._limits = Limits(cpu_s=max(1, int(wall_s)), wall_s=wall_s, memory_mb=memory_mb)
        parts = self.usual_parts if parts is None else parts
        if not isinstance(parts, Sequence) or isinstance(parts, str) or not parts:
            raise UserError(
                f"parts must be a list of whole numbers such as [1, 2, 4], got {parts!r}"
            )
        for number in parts:
            check_int("an entry of parts", number, 1, 200)
        self._parts = list(parts)
        self._part = 0

    def _solved(self, praise: str) -> tuple[str, float, bool, bool]:
        """Count the part as solved; show the next one, or end."""
        self._part += 1
        share = 1.0 / self._count
        if self._part == self._count:
            return f"{praise} All done.", 1.0 - share * (self._count - 1), True, True
        return f"{praise}\n\n{self._show()}", share, False, False

    @property
    @abstractmethod
    def _count(self) -> int:
        """How many parts this task has."""

    @abstractmethod
    def _show(self) -> str:
        """Return the text of the part that is due."""

    def _title(self) -> str:
        return f"Part {self._part + 1} of {self._count}: " if self._count > 1 else ""


class SandboxParams:
    """The parameters by which an environment chooses its sandbox.

    Args of the environments that use it:
        sandbox_level: `auto`, `bubblewrap`, `setpriv` or `rlimit`.
        sandbox_url: a SandboxFusion server that runs the code instead; None: this machine.
        wall_s: seconds that one run may take.
        memory_mb: memory of one process.
    """

    def __init__(self, level: str, url: str | None, limits: Limits) -> None:
        self._arguments = (limits, level, url)

    @functools.cached_property
    def sandbox(self) -> Sandbox:
        """The sandbox, looked for when it is first needed."""
        limits, level, url = self._arguments
        return make_sandbox(limits, level=level, url=url)


ENDED = {
    "time": "[ended: it ran longer than allowed{lost}]",
    "output": "[ended: it printed more than allowed{lost}]",
    "disk": "[ended: it stored more than allowed{lost}]",
}


def told(result: Result, most: int, lost: str = "") -> str:
    """Return what the agent is told of a run: its output, cut in the middle, and how it ended."""
    text = result.output.strip("\n")
    if len(text) > most:
        half = most // 2
        text = (
            f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
        )
    if result.status in ENDED:
        return f"{text}\n{ENDED[result.status].format(lost=lost)}".strip("\n")
    if result.status == "error":
        return f"{text}\n[exit code {result.exit_code}{lost}]".strip("\n")
    return text


def check_int(name: str, value: object, least: int, most: int = 2**31) -> None:
    """Raise `UserError` unless `value` is a whole number in the range."""
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
