"""ScienceWorld: 30 tasks of elementary science in a house (Wang et al., arXiv 2203.07540)."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import gymnasium

from environments.science.scienceworld import jvm
from environments.science.scienceworld.gold import gold_plan, has_plan
from environments.science.scienceworld.variations import (
    checked_simplification,
    chosen_tasks,
    known_lengths,
    variations,
)
from scalinginter.env.base import SPLITS, Split, TextEnv, check_split
from scalinginter.errors import UserError
from scalinginter.types import Task

MAX_ACTION = 200  # characters; the longest sensible action has about 100
LEAST_HEAP_MB = 128
RULES = """\
You are in a house with a workshop, a greenhouse and more, and solve a task of elementary science. \
Focus only on what the task names: a wrong focus, or a thing in the wrong box, ends the episode \
without success. If an action could mean several things you get a numbered list: answer with the \
number."""
FORMS = (
    "look around", "look at X", "look in X", "go to PLACE", "open X", "close X", "pick up X",
    "put down X", "move X to Y", "activate X", "deactivate X", "use X", "use X on Y",
    "connect X to Y", "disconnect X", "pour X in Y", "dunk X in Y", "mix X", "read X", "eat X",
    "flush X", "focus on X", "wait", "wait1", "inventory", "task", "0",
)  # fmt: skip
GRAMMAR = """
Every turn you answer with one action: {forms}. wait takes ten turns of the world's time, wait1 \
one; task repeats the task; 0 is a number of a list."""
UNKNOWN = "No known action matches that input."


class ScienceWorld(TextEnv):
    """Elementary science in a house. Reward: the share of the score that an action added.

    Args:
        tasks: names or ids of the tasks, such as `boil` and `1-1`; None: all 30.
        simplification: `easy`, or names such as `teleportAction,openDoors`; none by default.
        max_variations: at most so many of a task in each split; None: all.
        heap_mb: memory that the JVM of a process may take for its objects, in MB.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "process"

    def __init__(
        self,
        *,
        tasks: Sequence[str | float] | str | None = None,
        simplification: str = "",
        max_variations: int | None = None,
        heap_mb: int = 384,
    ) -> None:
        self._names = chosen_tasks(tasks)
        self._simplification = checked_simplification(simplification)
        for label, value, least in (
            ("max_variations", 1 if max_variations is None else max_variations, 1),
            ("heap_mb", heap_mb, LEAST_HEAP_MB),
        ):
            if type(value) is not int or value < least:
                raise UserError(f"{label} must be a whole number from {least}, got {value!r}")
        electrical = [n for n in self._names if "conductivity" in n or "power-component" in n]
        if electrical and "noElectricalAction" in self._simplification:
            raise UserError(
                f"the task {electrical[0]!r} needs electrical actions; leave noElectricalAction "
                "out of simplification, or name other tasks"
            )
        jvm.JAVA.require()
        self._most = max_variations
        self._heap_mb = heap_mb
        forms = [*FORMS, "teleport to PLACE"] if "teleport" in self._simplification else FORMS
        self.instructions = RULES + GRAMMAR.format(forms=", ".join(forms))
        self._simulator: Any = None
        self._over = True

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the official split; dev is called validation. The 30 tasks take turns."""
        check_split(split)
        columns = [
            [self._task(split, name, number) for number in variations(name, split)[: self._most]]
            for name in self._names
        ]
        longest = max(map(len, columns))
        return [column[row] for row in range(longest) for column in columns if row < len(column)]

    def _task(self, split: Split, name: str, number: int) -> Task:
        known = {} if self._simplification else known_lengths().get(name, {})
        data = {"task": name, "variation": number}
        return Task(f"{split}/{name}/{number}", "scienceworld", data, known.get(str(number)))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`. There is no chance in an episode: the seed changes nothing.

        The score that a task starts with is not counted: it earns nothing.
        """
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        if self._simulator is None:
            self._simulator = jvm.new_simulator(self._heap_mb)
        self._data = (task.data["task"], task.data["variation"], self._simplification)
        self._simulator.load(*self._data, False)
        seen = self._simulator.step("look around")
        self._first_score = self._simulator.getScore()
        self._earned = 0.0
        self._over = False
        description = self._simulator.getTaskDescription()
        return f"{description}\n{seen}", {"task_id": task.id, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end of the episode.

        A score that falls below its start, as a wrong focus makes it do, takes back what was
        earned: an episode earns between 0 and 1 in all.
        """
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        command = " ".join(action.lower().split()).removesuffix(".")
        if not _sound(command):
            return f"{UNKNOWN} {self._help()}", 0.0, False, False, {"success": False}
        observation = self._simulator.step(command)
        score = self._simulator.getScore()
        self._over = bool(self._simulator.getCompleted()) or score < 0
        success = self._over and score >= 1
        share = (score - self._first_score) / (1 - self._first_score)
        reward, self._earned = max(share, 0.0) - self._earned, max(share, 0.0)
        if observation == UNKNOWN:
            observation = f"{UNKNOWN} {self._help()}"
        elif self._over:
            observation += "\nThe task is done." if success else "\nThe task has failed."
        return observation, reward, self._over, False, {"success": success}

    def _help(self) -> str:
        return f"Say one of: {', '.join(FORMS)}; name things as you see them."

    def expert_plan(self) -> list[str] | None:
        """Return the simulator's gold path, from the cache or made on the spot in seconds to
        minutes; None where it does not solve the task."""
        return gold_plan(jvm.new_simulator(self._heap_mb), *self._data)

    def prepare(self, splits: Sequence[Split] = SPLITS, limit: int | None = None) -> int:
        """Make the gold paths of the first `limit` tasks of each split."""
        wanted = [
            (task.data["task"], task.data["variation"], self._simplification)
            for split in splits
            for task in self.tasks(split)[:limit]
        ]
        missing = [data for data in wanted if not has_plan(*data)]
        for data in missing:
            gold_plan(jvm.new_simulator(self._heap_mb), *data)
        return len(missing)

    def corpus(self) -> list[str]:
        """Return the words of the simulator: the start of every task, its things and actions."""
        texts = [self.instructions, " ".join(map(str, range(100)))]
        for name in self._names:
            task = self._task("train", name, variations(name, "train")[0])
            texts.append(self.reset(options={"task": task})[0])
            texts += list(self._simulator.getPossibleObjects())
            texts += list(self._simulator.getPossibleActions())
        return texts

    def close(self) -> None:
        """Give the simulator up; the JVM stays for the next one until the process ends."""
        self._simulator = None
        self._over = True


def _sound(command: str) -> bool:
    """May this text reach the simulator? Its own `reset task` would undo a focus."""
    readable = command.isascii() and command.isprintable()
    return readable and 0 < len(command) <= MAX_ACTION and command != "reset task"
