"""TextWorld-Express (Jansen and Côté, arXiv 2208.01174): small text games, in Java."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from gymnasium.error import ResetNeeded

from environments.game.textworld_express.levels import FIRST_SEED, chosen_levels, plans
from environments.game.textworld_express.simulator import JAVA, Simulator
from scalinginter.env.base import Split, TextEnv, check_split
from scalinginter.errors import UserError
from scalinginter.types import Task

MAX_ACTION = 200  # characters; the longest sensible action has about 60
INSTRUCTIONS = """\
You play a text game: walk through rooms, use what is there, and reach the goal that you are told. \
Every turn you answer with one command, for example: look around, inventory, task (repeats the \
goal), move north, open X, close X, take X, put X in Y, read X, examine X, eat X, cook X in Y, \
chop X, slice X, dice X, smell X, touch X, prepare meal. Where Simon says so, also: clap your \
hands, do a backflip, hop on one foot, jump up and down, meow like a cat, quack like a duck, sit \
down, turn around, wave your hand, wiggle your toes. What does not follow from the goal can lose \
the game."""


class TextWorldExpress(TextEnv):
    """Small text games. Reward: the share of the game's score that an action added.

    Args:
        levels: names of levels (`levels.py`), such as `coin-6`; None: all of them.
        heap_mb: memory that the JVM of a process may take for its objects, in MB.
    """

    isolation: ClassVar[Literal["inline", "thread", "process"]] = "process"
    instructions = INSTRUCTIONS

    def __init__(self, *, levels: Sequence[str] | None = None, heap_mb: int = 256) -> None:
        self._levels = chosen_levels(levels)
        if type(heap_mb) is not int or heap_mb < 64:
            raise UserError(f"heap_mb must be a whole number from 64, got {heap_mb!r}")
        JAVA.require()
        self._heap_mb = heap_mb
        self._simulator: Simulator | None = None
        self._game: tuple[str, Split, int] | None = None  # None: no episode

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the games of the chosen levels, which take turns."""
        check_split(split)
        rows = zip(*(plans()[level][split] for level in self._levels), strict=True)
        return [
            Task(
                f"{split}/{level}/{number}",
                "textworld_express",
                {"level": level, "split": split, "seed": FIRST_SEED[split] + number},
                len(plan),
            )
            for number, row in enumerate(rows)
            for level, plan in zip(self._levels, row, strict=True)
        ]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`. There is no chance in an episode: `seed` changes nothing."""
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        simulator = self._open()
        self._game = (task.data["level"], task.data["split"], task.data["seed"])
        self._state = simulator.start(*self._game)
        self._earned = 0.0
        return f"{simulator.description()}\n{self._state['observation']}", {"success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end of the episode.

        A score that falls takes back what was earned.
        """
        if self._game is None or self._simulator is None:
            raise ResetNeeded("the episode is over: call reset first")
        command = " ".join(action.lower().split())
        if not command.isascii() or not command.isprintable() or len(command) > MAX_ACTION:
            command = ""
        if command == "task":
            return self._simulator.description(), 0.0, False, False, {"success": False}
        self._state = self._simulator.step(command)
        success, failure = self._state["tasksuccess"], self._state["taskfailure"]
        total = 1.0 if success else 0.0 if failure else min(max(self._state["score"], 0.0), 1.0)
        reward, self._earned = total - self._earned, total
        observation = self._state["observation"]
        if success or failure:
            self._game = None
            observation += "\nThe game is won." if success else "\nThe game is lost."
        return observation, reward, success or failure, False, {"success": success}

    def admissible_actions(self) -> list[str] | None:
        """Return the simulator's valid actions, in alphabetical order."""
        return sorted({*self._state["validActions"]})

    def expert_plan(self) -> list[str] | None:
        """Return the plan of the task that ships with the package."""
        if self._game is None:
            raise ResetNeeded("an expert needs an episode: call reset first")
        level, split, seed = self._game
        return list(plans()[level][split][seed - FIRST_SEED[split]])

    def close(self) -> None:
        """Give the simulator up; the JVM stays for the next one until the process ends."""
        self._simulator = self._game = None

    def _open(self) -> Simulator:
        if self._simulator is None:
            self._simulator = Simulator(self._heap_mb)
        return self._simulator
