"""Coin Collector (Yuan et al., arXiv 1806.11525): find a coin in a maze of rooms."""

from typing import Any, ClassVar, Literal

from environments.game.textworld.play import TextWorldEnv
from scalinginter.env.base import Split
from scalinginter.errors import UserError

MAX_ROOMS = 100  # of a game that compiles
MODES = ("simple", "random")


class CoinCollector(TextWorldEnv):
    """Walk to the coin and take it: level N needs exactly N actions.

    Args:
        min_level, max_level: levels of the tasks, one after another; 1 to 100.
        distractors: rooms beside the way, for every room on it; 0, 1, 2 or 3.
        mode: where those rooms are; `simple`: off the way, `random`: off any room.
        num_train, num_validation, num_test: tasks per split.
    """

    family = "coin"
    environment = "textworld_coin"
    verbs: ClassVar[frozenset[str]] = frozenset(
        {"go", "take", "drop", "look", "inventory", "examine"}
    )
    instructions = """\
You walk through rooms in search of a coin. Every turn you answer with one action:
go DIRECTION - north, south, east or west
take THING - pick it up; drop THING - put it down
examine THING - look at it closely
look - describe the room; inventory - list what you carry"""

    def __init__(
        self,
        *,
        min_level: int = 2,
        max_level: int = 9,
        distractors: int = 1,
        mode: Literal["simple", "random"] = "random",
        num_train: int = 64,
        num_validation: int = 16,
        num_test: int = 16,
    ) -> None:
        super().__init__(num_train, num_validation, num_test)
        if not 1 <= min_level <= max_level:
            raise UserError(
                f"levels go from min_level to max_level, from 1 up; got {min_level} to {max_level}"
            )
        if distractors not in range(4):
            raise UserError(f"distractors must be 0, 1, 2 or 3, got {distractors}")
        if max_level * (1 + distractors) > MAX_ROOMS:
            raise UserError(
                f"max_level {max_level} with {distractors} distractors makes "
                f"{max_level * (1 + distractors)} rooms; at most {MAX_ROOMS} can be compiled"
            )
        if mode not in MODES:
            raise UserError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        self._levels = range(min_level, max_level + 1)
        self._distractors = distractors
        self._mode = mode

    def _settings(self, split: Split, index: int) -> tuple[str, dict[str, Any]]:
        level = self._levels[index % len(self._levels)]
        name = f"level{level}-{self._mode}{self._distractors}"
        return name, {"level": level, "distractors": self._distractors, "mode": self._mode}

    def _required_turns(self, task_id: str, settings: dict[str, Any]) -> int:
        return settings["level"]
