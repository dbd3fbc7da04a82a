"""What the TextWorld environments share: playing a game file turn by turn, as text."""

import json
import re
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from environments.game.textworld.games import GameSpec, ensure, game_file, seed_of
from scalinginter.env.base import SPLITS, Split, TextEnv
from scalinginter.errors import UserError
from scalinginter.types import Task

WON, LOST = "You have won.", "You have lost."
_STATUS_LINE = re.compile(r"\n>\s*-= .* =-\S*\s*$")
_THE_END = re.compile(r"\s*\*\*\* (The End|You lost!) \*\*\*.*", re.DOTALL)
_BLANK_LINES = re.compile(r"\s*\n\s*\n\s*")
_PLAIN_WORDS = re.compile(r"[a-z0-9' -]+")
# One turn is one action: TextWorld's parser would take several, joined by these words.
_JOINING_WORDS = frozenset({"then", "and", "all", "everything", "everywhere", "both", "except"})
CORPUS_TASKS = 64  # as many as `TextEnv.corpus` plays
MAX_ACTION = 200  # characters
LENGTHS = Path(__file__).with_name("lengths.json")


class TextWorldEnv(TextEnv):
    """Plays generated games. Reward: the share of the game's points that an action earned.

    A game that is not in the cache is generated at its first reset, in 3 to 10 s.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "process"
    family: ClassVar[str]
    environment: ClassVar[str]  # registry id
    verbs: ClassVar[frozenset[str]]  # first words of the accepted actions

    def __init__(self, num_train: int, num_validation: int, num_test: int) -> None:
        self._counts = {"train": num_train, "validation": num_validation, "test": num_test}
        for split, count in self._counts.items():
            if count < 1:
                raise UserError(f"num_{split} must be at least 1, got {count}")
        self._game: Any = None
        self._state: Any = None
        self._plan: list[str] = []
        self._points = 0
        self._over = True

    @abstractmethod
    def _settings(self, split: Split, index: int) -> tuple[str, dict[str, Any]]:
        """Return a name of the settings of one task, and the settings for `generate`."""

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split; generates nothing."""
        return [self._task(split, index) for index in range(self._counts[split])]

    def _task(self, split: Split, index: int) -> Task:
        name, settings = self._settings(split, index)
        task_id = f"{split}/{name}/{index:06d}"
        seed = seed_of(f"{self.environment}/{task_id}")
        data = {"settings": settings, "seed": seed}
        return Task(task_id, self.environment, data, self._required_turns(task_id, settings))

    def _required_turns(self, task_id: str, settings: dict[str, Any]) -> int | None:
        return known_lengths().get(f"{self.environment}/{task_id}")

    def game_spec(self, task: Task) -> GameSpec:
        """Return what the game of a task is made from."""
        return GameSpec(self.family, task.data["settings"], task.data["seed"])

    def prepare(self, splits: Sequence[Split] = SPLITS, limit: int | None = None) -> int:
        """Generate the games of the first `limit` tasks of each split; return how many were made.

        Quicker than at their resets: one process makes several. Raises `RuntimeError` as `ensure`.
        """
        return ensure(
            self.game_spec(task) for split in splits for task in self.tasks(split)[:limit]
        )

    def corpus(self) -> list[str]:
        """Return the texts of the experts' games on the first training tasks."""
        self.prepare(["train"], CORPUS_TASKS)
        return super().corpus()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start a game; it has no chance in it, so `seed` changes nothing."""
        task = (options or {}).get("task") or self._task("train", 0)
        spec = self.game_spec(task)
        ensure([spec])
        self.close()
        path = game_file(spec)
        self._plan = json.loads(path.with_name("plan.json").read_text())
        self._game = _start(path)
        self._state = self._game.reset()
        self._points = 0
        self._over = False
        _, goal, rest = self._state.feedback.partition(self._state.objective)
        return _clean(goal + rest), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. What is not one of the accepted forms does not reach the game."""
        if self._over:
            return "The game is over.", 0.0, True, False, {"success": False}
        command = self._command(action)
        if command is None:
            return self._help(), 0.0, False, False, {"success": False}
        self._state, points, self._over = self._game.step(command)
        reward = (points - self._points) / self._state.max_score
        self._points = points
        text = _clean(self._state.feedback)
        if self._over:
            text += f"\n{WON if self._state.won else LOST}"
        return text, reward, self._over, False, {"success": bool(self._state.won)}

    def _command(self, action: str) -> str | None:
        """Return the game's form of one accepted action, or None."""
        command = " ".join(action.lower().split()).removesuffix(".")
        words = command.split()
        if command in self._state.admissible_commands:
            return command
        sound = len(command) <= MAX_ACTION and _PLAIN_WORDS.fullmatch(command)
        if not sound or words[0] not in self.verbs or not _JOINING_WORDS.isdisjoint(words):
            return None
        return command

    def _help(self) -> str:
        return f"That is not understood. Start with one of: {', '.join(sorted(self.verbs))}."

    def admissible_actions(self) -> list[str]:
        """Return what the game accepts now, in alphabetical order."""
        return [] if self._over else list(self._state.admissible_commands)

    def expert_plan(self) -> list[str]:
        """Return TextWorld's own walkthrough, without needless moves."""
        return list(self._plan)

    def close(self) -> None:
        """End the game's interpreter."""
        if self._game is not None:
            self._game.close()
            self._game = None


@cache
def known_lengths() -> dict[str, int]:
    """Return the turns of the expert plans of some tasks, by "environment/task id"."""
    return json.loads(LENGTHS.read_text())


def _start(path: Path) -> Any:
    import textworld  # takes a second; the trainer's own process lists tasks and never plays

    wanted = textworld.EnvInfos(
        feedback=True,
        won=True,
        lost=True,
        score=True,
        max_score=True,
        objective=True,
        admissible_commands=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # the interpreter knows no score of our games; TextWorld does
        game = textworld.start(str(path), wanted)
    game.seed(0)  # else the interpreter draws from the clock
    return game


def _clean(feedback: str) -> str:
    """Drop the status line, the questions after the end, and blank lines."""
    text = _STATUS_LINE.sub("", feedback)
    return _BLANK_LINES.sub("\n", _THE_END.sub("", text)).strip()
