"""Furnishing a laboratory: rooms, containers, things in places that the task's seed draws."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from environments.science.laboratory.goal import Goal
from environments.science.laboratory.planner import Planner
from environments.science.laboratory.world import HAND, Thing, World

T = TypeVar("T")

ROOMS = ("kitchen", "workshop", "greenhouse", "cellar", "office", "attic", "hall", "storeroom")
STORES = ("cupboard", "drawer", "chest", "crate", "locker", "trunk")
JUNK = ("cork", "spoon", "rope", "mirror", "brick", "candle", "towel", "comb")
SAMPLES = (
    "amber", "basalt", "chalk", "copper", "flint", "gallium", "glass", "granite", "graphite",
    "ivory", "jet", "lead", "marble", "nickel", "onyx", "pearl", "quartz", "rubber", "silver",
    "slate", "steel", "tin", "topaz", "zinc",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Level:
    """How large a task is. `subjects`: samples, plants or steps that the goal is about."""

    rooms: int
    subjects: int
    junk: int
    stores: int
    tools_at_hand: bool = False


LEVELS: tuple[Level, ...] = (
    Level(rooms=1, subjects=1, junk=0, stores=0, tools_at_hand=True),
    Level(rooms=1, subjects=1, junk=1, stores=0),
    Level(rooms=2, subjects=1, junk=1, stores=1),
    Level(rooms=3, subjects=2, junk=2, stores=1),
    Level(rooms=4, subjects=2, junk=2, stores=2),
    Level(rooms=5, subjects=3, junk=3, stores=3),
    Level(rooms=6, subjects=4, junk=4, stores=4),
    Level(rooms=7, subjects=5, junk=4, stores=5),
    Level(rooms=8, subjects=6, junk=4, stores=6),
    Level(rooms=8, subjects=8, junk=4, stores=6),
)
"""Levels 1 to 10."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A world at its start, its goal, and how the expert goes about it."""

    world: World
    goal: Goal
    solve: Callable[[Planner], None]


class Draw:
    """Draws everything about one task from its key, and furnishes the world."""

    def __init__(self, key: str, level: Level) -> None:
        self._random = random.Random(key)  # seeded with a text: SHA-512, no hash seed
        self.level = level
        rooms = self.some(ROOMS, level.rooms)
        beside: dict[str, list[str]] = {room: [] for room in rooms}
        for place in range(1, len(rooms)):  # a tree: one way between any two rooms
            other = rooms[self.number(0, place - 1)]
            beside[rooms[place]].append(other)
            beside[other].append(rooms[place])
        self.world = World(beside, here=rooms[0])
        for store in self.some(STORES, level.stores):
            self.world.add(Thing(store, "storage", self.room(), False, lid=True, is_open=False))
        for junk in self.some(JUNK, level.junk):
            self.hide(Thing, junk, "junk")

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def one(self, pool: Sequence[T]) -> T:
        return pool[self._random.randrange(len(pool))]

    def some(self, pool: Sequence[T], count: int) -> list[T]:
        """Return `count` different members in a drawn order."""
        return self._random.sample(pool, count)

    def room(self) -> str:
        return self.one(list(self.world.rooms))

    def fix(self, cls: type[Any], name: str, role: str, room: str = "", **rest: Any) -> Any:
        """Add something that cannot be carried, in a room."""
        thing = cls(name, role, room or self.room(), False, **rest)
        self.world.add(thing)
        return thing

    def hide(self, cls: type[Any], name: str, role: str, **rest: Any) -> Any:
        """Add something that can be carried: in a room, or shut away."""
        stores = [thing.name for thing in self.world.things.values() if thing.role == "storage"]
        shut_away = bool(stores) and self.number(0, 1)
        thing = cls(name, role, self.one(stores) if shut_away else self.room(), **rest)
        self.world.add(thing)
        return thing

    def tool(self, name: str) -> None:
        """Add a tool: in hand at the easiest level, else somewhere."""
        tool = self.hide(Thing, name, "tool")
        if self.level.tools_at_hand:
            tool.place = HAND


def spoken(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
