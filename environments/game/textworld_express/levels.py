"""The levels: a game of TextWorld-Express and its parameters, from 2 to 40 turns and more.

Two games of the simulator are left out, `sorting` and `twc`: there the things of one game are
those of the next, so that an episode changes others that run beside it or after it.
"""

import functools
import gzip
import json
from collections.abc import Iterable
from importlib import resources
from typing import NamedTuple

from scalinginter.env.base import Split
from scalinginter.errors import UserError, nearest


class Level(NamedTuple):
    """A game and how it is generated, in the simulator's own words."""

    game: str
    parameters: str


def _coin(rooms: int) -> Level:
    return Level(
        "coin", f"numLocations={rooms},numDistractorItems=0,includeDoors=1,limitInventorySize=0"
    )


def _map(rooms: int, distance: int) -> Level:
    return Level(
        "mapreader",
        f"numLocations={rooms},maxDistanceApart={distance},includeDoors=0,"
        "maxDistractorItemsPerLocation=0",
    )


def _cook(rooms: int, ingredients: int) -> Level:
    return Level(
        "cookingworld",
        f"numLocations={rooms},numIngredients={ingredients},numDistractorItems={ingredients},"
        "includeDoors=0,limitInventorySize=0",
    )


def _simon(length: int, memory: bool = False) -> Level:
    shown = "memorization=1,verbose=0" if memory else "memorization=0"
    return Level("simonsays", f"gameLength={length},numDistractors=3,{shown}")


LEVELS: dict[str, Level] = {
    **{f"simon-{n}": _simon(n) for n in (2, 5, 10, 20, 40)},
    **{f"memory-{n}": _simon(n, memory=True) for n in (3, 6)},
    **{f"coin-{n}": _coin(n) for n in (3, 6, 11)},
    **{f"map-{distance}": _map(2 * distance + 1, distance) for distance in (2, 4)},
    "arithmetic": Level("arithmetic", ""),
    "peckingorder": Level("peckingorder", ""),
    **{f"cook-{n}": _cook(rooms, n) for n, rooms in ((1, 1), (2, 3), (4, 8))},
}

FIRST_SEED: dict[Split, int] = {"train": 0, "validation": 10_000, "test": 20_000}
"""The simulator's folds: it takes these seeds from the first on, a thousand of each."""

FOLD: dict[Split, str] = {"train": "train", "validation": "dev", "test": "test"}
MEASURED: dict[Split, int] = {"train": 60, "validation": 10, "test": 10}
"""Games of a level in each split whose plan was made; those are the tasks."""


def chosen_levels(levels: Iterable[str] | None) -> list[str]:
    """Return the names of the levels. Raises `UserError` for an unknown one, or none."""
    names = list(LEVELS) if levels is None else list(levels)
    for name in names:
        if name not in LEVELS:
            raise UserError(
                f"unknown level {name!r}{nearest(name, LEVELS)}; there are: {', '.join(LEVELS)}"
            )
    if not names:
        raise UserError(f"levels is empty; name some of: {', '.join(LEVELS)}")
    return names


@functools.cache
def plans() -> dict[str, dict[str, list[list[str]]]]:
    """Return what solves each game: `{level: {split: [actions of the i-th game]}}`.

    They ship with the package, because the simulator's own paths differ from call to call.
    """
    file = resources.files("environments.game.textworld_express").joinpath("plans.json.gz")
    return json.loads(gzip.decompress(file.read_bytes()))
