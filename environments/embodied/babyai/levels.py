"""The levels by short name, and the measured table of their seeds."""

import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from scalinginter.env.base import SPLITS, Split
from scalinginter.errors import UserError, nearest

ActionSet = Literal["high_level", "primitive"]
ACTION_SETS: tuple[ActionSet, ...] = ("high_level", "primitive")
TABLE = Path(__file__).parent / "levels.json"


@dataclass(frozen=True, slots=True)
class Table:
    """What `python -m environments.embodied.babyai.measure` found out about every level."""

    minigrid: str  # the version it was measured with
    turns: Mapping[str, Mapping[ActionSet, tuple[int, ...]]]  # [level][actions][seed]; 0: no task
    splits: Mapping[str, tuple[Split, ...]]  # [level][seed]
    refused: Mapping[str, str]  # level -> why it has no tasks


@functools.cache
def table() -> Table:
    """Return the committed table."""
    stored = json.loads(TABLE.read_text("utf-8"))
    turns = {
        level: {actions: tuple(row[actions]) for actions in ACTION_SETS}
        for level, row in stored["turns"].items()
    }
    splits = {
        level: tuple(SPLITS[int(digit)] for digit in row["split"])
        for level, row in stored["turns"].items()
    }
    return Table(stored["minigrid"], turns, splits, stored["refused"])


@functools.cache
def check_version() -> None:
    """Raise `UserError` if tasks may be others than those that were measured."""
    installed, measured = metadata.version("minigrid"), table().minigrid
    if installed != measured:
        raise UserError(
            f"babyai's tasks were measured with minigrid {measured}, but {installed} is installed, "
            f"which may make other levels; pip install minigrid=={measured}, or measure anew: "
            "python -m environments.embodied.babyai.measure"
        )


def short_name(name: str) -> str:
    """`"BabyAI-GoToLocal-v0"` -> `"GoToLocal"`; a short name stays as it is."""
    name = name.removeprefix("BabyAI-")
    stem, dash, version = name.rpartition("-v")
    return stem if dash and version.isdigit() else name


def check_levels(names: Any) -> tuple[str, ...]:
    """Return the short names of a list of levels, each once.

    Raises `UserError` for what is not a list of names, for an unknown level, and for one without
    tasks.
    """
    listed = isinstance(names, Sequence) and not isinstance(names, str)
    if not listed or not names or not all(isinstance(name, str) for name in names):
        raise UserError(f"levels must be a list of level names, e.g. [GoToLocal], got {names!r}")
    known = table()
    found: dict[str, None] = {}
    for name in names:
        short = short_name(name)
        if short in known.refused:
            raise UserError(
                f"levels: {name!r} has no tasks: {known.refused[short]}; choose another level"
            )
        if short not in known.turns:
            raise UserError(
                f"levels: unknown level {name!r}{nearest(short, known.turns)}; "
                f"there are: {', '.join(known.turns)}"
            )
        found[short] = None
    return tuple(found)


@functools.cache
def gym_ids() -> dict[str, str]:
    """Return `short name -> id` of every BabyAI level that minigrid registers.

    Raises `UserError` if minigrid is not installed.
    """
    import gymnasium

    os.environ.setdefault(
        "PYGAME_HIDE_SUPPORT_PROMPT", "1"
    )  # minigrid imports pygame, which greets
    try:
        from minigrid.envs.babyai.core import roomgrid_level, verifier
    except ImportError as error:
        raise UserError(
            f"babyai needs the package minigrid ({error}); pip install minigrid"
        ) from error
    # Levels are drawn until one fits, and every draw is reported by `print`. Silence their module
    # and no other: standard output belongs to the trainer, and other threads may be writing to it.
    vars(roomgrid_level)["print"] = _say_nothing
    verifier.use_done_actions = False  # an environment variable would change what success is
    return {short_name(i): i for i in sorted(gymnasium.registry) if i.startswith("BabyAI-")}


def _say_nothing(*_: object) -> None:
    pass


def make_level(name: str, seed: int) -> Any:
    """Return minigrid's environment of a level (short name), reset to `seed`.

    It is made anew each time, so nothing of another episode is in it. It has no limit of turns.
    """
    import gymnasium

    level: Any = gymnasium.make(gym_ids()[name], disable_env_checker=True).unwrapped
    level.reset(seed=seed)
    level.max_steps = 2**62  # the rollout limits the turns
    level.gen_obs = dict  # minigrid draws a picture after every action; nobody looks at it
    return level
