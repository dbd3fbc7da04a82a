"""BabyAI: follow an instruction in rooms that are seen in part (arXiv 1810.08272).

minigrid's levels as text. The high-level actions are in the style of AgentGym's BabyAI
(arXiv 2406.04151), the primitive ones are minigrid's own.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import gymnasium

from environments.embodied.babyai import expert, grammar
from environments.embodied.babyai.levels import (
    ACTION_SETS,
    ActionSet,
    check_levels,
    check_version,
    table,
)
from environments.embodied.babyai.words import describe
from environments.embodied.babyai.world import World
from scalinginter.env.base import Split, TextEnv, check_split
from scalinginter.errors import UserError, nearest
from scalinginter.types import Task, Tool

DEFAULT_LEVELS = (  # from one room to nine, by the turns that they take
    "GoToLocal",
    "PickupLoc",
    "UnlockLocal",
    "OpenTwoDoors",
    "PutNextLocal",
    "UnlockPickup",
    "FindObjS5",
    "GoToSeqS5R2",
    "PutNextS7N4",
    "MoveTwoAcrossS5N2",
    "MiniBossLevel",
    "KeyCorridorS3R1",
    "GoToObjMaze",
    "BlockedUnlockPickup",
    "KeyCorridorS3R2",
    "KeyCorridorS3R3",
    "KeyCorridor",
)


class BabyAI(TextEnv):
    """Reach the goal of a BabyAI level. Reward 1 when it is reached, which ends the episode.

    Args:
        levels: BabyAI levels of minigrid, by short name ("GoToLocal") or id
            ("BabyAI-GoToLocal-v0"); None: a mix of levels that take from 1 to more than 40 turns.
        actions: "high_level" (walk to what is in view, pick it up, go through doors) or
            "primitive" (turn, step, pick up, drop, toggle).
    """

    isolation: ClassVar[Literal["inline", "process"]] = "inline"

    def __init__(
        self, *, levels: Sequence[str] | None = None, actions: ActionSet = "high_level"
    ) -> None:
        if actions not in ACTION_SETS:
            hint = nearest(str(actions), ACTION_SETS)
            raise UserError(f"actions must be one of {ACTION_SETS}, got {actions!r}{hint}")
        self._levels = check_levels(DEFAULT_LEVELS if levels is None else levels)
        self._actions: ActionSet = actions
        self.instructions = grammar.INSTRUCTIONS[actions]
        self._world: World | None = None

    @property
    def rules(self) -> str:
        return grammar.RULES

    def tools(self) -> Sequence[Tool]:
        return grammar.TOOLS[self._actions]

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split; the levels take turns as long as they have tasks."""
        check_split(split)
        columns = [self._column(level, split) for level in self._levels]
        longest = max(map(len, columns))
        return [column[row] for row in range(longest) for column in columns if row < len(column)]

    def _column(self, level: str, split: Split) -> list[Task]:
        splits = table().splits[level]
        return [
            Task(f"{split}/{level}/{seed:04d}", "babyai", {"level": level, "seed": seed}, turns)
            for seed, turns in enumerate(table().turns[level][self._actions])
            if turns and splits[seed] == split
        ]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`. There is no chance in an episode: `seed` changes nothing.

        Raises `UserError` for a task that is not in the table of levels, and where the installed
        minigrid is not the one that the table was made with.
        """
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        level, number = task.data["level"], task.data["seed"]
        known = table().turns.get(level, {}).get(self._actions, ())
        if type(number) is not int or not 0 <= number < len(known) or not known[number]:
            raise UserError(f"task {task.id!r}: level {level!r} has no task with seed {number!r}")
        check_version()
        self._world = World(level, number)
        self._played = (level, number)
        observation = f"Goal: {self._world.level.mission}.\n{describe(self._world)}"
        return observation, {"task_id": task.id, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end of the episode."""
        world = self._world
        if world is None or world.over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        said = grammar.act(world, action, self._actions)
        if world.success:
            said = "The goal is reached."
        elif world.over:
            said = "That was wrong: the goal is out of reach now."
        observation = " ".join(part for part in (said, describe(world)) if part)
        return (
            observation,
            float(world.success),
            world.over,
            False,
            {"success": world.success},
        )

    def admissible_actions(self) -> list[str] | None:
        """Return the actions that change something now, and the question for them."""
        if self._world is None or self._world.over:
            return []
        return grammar.admissible(self._world, self._actions)

    def expert_plan(self) -> list[str] | None:
        """Return the walk of minigrid's bot, which sees what the agent sees and explores.

        With high-level actions it is told in as few of them as possible. It takes some 10 ms for a
        room and up to a second for a maze; no plan of the table passes the bounds.
        """
        level, seed = self._played
        taken = expert.walk(level, seed)
        if self._actions == "primitive":
            return expert.primitive_plan(taken)
        return expert.high_level_plan(level, seed, taken)

    def corpus(self) -> list[str]:
        """Return every word that this environment can say or understand."""
        openings = [self.reset(options={"task": task})[0] for task in self.tasks("train")[:64]]
        return [self.instructions, self.rules, grammar.VOCABULARY, *openings]
