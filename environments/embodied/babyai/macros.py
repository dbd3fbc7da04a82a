"""High-level actions as sequences of minigrid's primitive ones.

The ways are planned before the first move, through cells that were seen, and walked blindly:
nothing else in these worlds moves.
"""

from collections import deque
from dataclasses import dataclass

from environments.embodied.babyai.world import (
    DIRECTIONS,
    FORWARD,
    LEFT,
    PICK_UP,
    RIGHT,
    TOGGLE,
    Cell,
    Sighting,
    World,
    is_free,
)

GO_TO, PICK, THROUGH, OPEN_THROUGH = (
    "go to",
    "pick up",
    "go through",
    "toggle and go through",
)


@dataclass(frozen=True, slots=True)
class Macro:
    """What a high-level action does, if nothing ends the episode on the way."""

    walk: tuple[int, ...]  # turns and steps that lead to the thing, facing it
    tail: tuple[int, ...]  # what is done there
    end: tuple[Cell, int]  # position and direction after the walk

    @property
    def primitives(self) -> tuple[int, ...]:
        return self.walk + self.tail


_ORDER = ((0, 1, 3, 2), (1, 0, 2, 3), (2, 3, 1, 0), (3, 2, 0, 1))
"""Per direction: straight on, the two sides, back. As the expert's bot searches: among ways of one
length both then take the same."""


class Ways:
    """Shortest ways from where the agent stands to what is in view, through seen and free cells.

    Breadth first; among ways of one length, the one that goes straight on is preferred.
    """

    def __init__(self, world: World) -> None:
        self._start = world.position, world.direction
        self._from: dict[Cell, Cell | None] = {world.position: None}
        grid, seen = world.level.grid, world.seen
        wanted = {sighting.cell for sighting in world.in_view}
        queue = deque([self._start])
        while queue and wanted:
            (x, y), direction = queue.popleft()
            for way in _ORDER[direction]:
                dx, dy = DIRECTIONS[way]
                following = x + dx, y + dy
                if following not in self._from:
                    self._from[following] = x, y  # a way may end there; it leads on if free
                    wanted.discard(following)
                    if following in seen and is_free(grid.grid[(y + dy) * grid.width + x + dx]):
                        queue.append((following, way))

    def to(self, target: Cell) -> tuple[tuple[int, ...], tuple[Cell, int]] | None:
        """Return the moves that end in front of `target`, facing it, and position and direction
        then; None if there is no way."""
        if target == self._start[0] or target not in self._from:
            return None
        cells: list[Cell] = []
        cell: Cell | None = target
        while cell is not None:
            cells.append(cell)
            cell = self._from[cell]
        position, direction = self._start
        moves: list[int] = []
        for following in reversed(cells[:-1]):
            step = following[0] - position[0], following[1] - position[1]
            moves += turns(direction, DIRECTIONS.index(step))
            direction = DIRECTIONS.index(step)
            if following != target:
                moves.append(FORWARD)
                position = following
        return tuple(moves), (position, direction)


def turns(direction: int, wanted: int) -> list[int]:
    """Return the turns that lead from one direction to another."""
    return ([], [RIGHT], [RIGHT, RIGHT], [LEFT])[(wanted - direction) % 4]


def expand(world: World, ways: Ways, verb: str, target: Sighting) -> Macro | str:
    """Return what `verb target` does now, or a sentence that says why it cannot be done."""
    thing, name = target.thing, target.name
    if verb == PICK and thing.type == "door":
        return f"You cannot pick up {name}."
    if verb == PICK and world.carrying is not None:
        return f"Your hands are full: you carry {world.name(world.carrying)}."
    if verb in (THROUGH, OPEN_THROUGH) and thing.type != "door":
        return f"You cannot go through {name}."
    if verb == THROUGH and not thing.is_open:
        return f"{name} is {door_state(thing)}."
    if verb == OPEN_THROUGH and thing.is_open:
        return f"{name} is open: you can go through it."
    if verb == OPEN_THROUGH and thing.is_locked and not _has_key(world, thing):
        return f"{name} is locked: carry a {thing.color} key to unlock it."
    way = ways.to(target.cell)
    if way is None:
        return f"You know no way to {name}."
    walk, end = way
    if verb == GO_TO:
        return Macro(walk, (), end)
    if verb == PICK:
        return Macro(walk, (PICK_UP,), end)
    tail = (FORWARD, FORWARD) if verb == THROUGH else (TOGGLE, FORWARD, FORWARD)
    return Macro(walk, tail, end)


def door_state(door: object) -> str:
    """Return `"open"`, `"closed"` or `"locked"`."""
    if getattr(door, "is_open", False):
        return "open"
    return "locked" if getattr(door, "is_locked", False) else "closed"


def can_toggle(world: World) -> bool:
    """Would `toggle` change anything now?"""
    thing = world.front
    if thing is None or thing.type not in ("door", "box"):
        return False
    return thing.type == "box" or not thing.is_locked or _has_key(world, thing)


def _has_key(world: World, door: object) -> bool:
    held = world.carrying
    return bool(held and held.type == "key" and held.color == getattr(door, "color", None))


def possible(world: World) -> list[tuple[str, Sighting, Macro]]:
    """Return the high-level actions on things that change something now."""
    ways = Ways(world)
    found = []
    for target in world.in_view:
        for verb in (GO_TO, PICK, THROUGH, OPEN_THROUGH):
            macro = expand(world, ways, verb, target)
            if isinstance(macro, Macro) and macro.primitives:
                found.append((verb, target, macro))
    return found
