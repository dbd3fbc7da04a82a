"""A level as its inhabitant knows it: what is in view, what was seen, what things are called."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from environments.embodied.babyai.levels import make_level

Cell = tuple[int, int]

LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)
"""minigrid's actions, by its numbers."""

DIRECTIONS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""The unit vectors of minigrid's directions, clockwise: x grows to the right, y down."""

VIEW = 7  # the agent sees a square of this side; it stands at the middle of the near side


@dataclass(frozen=True, slots=True)
class Sighting:
    """A thing in view."""

    thing: Any  # minigrid's WorldObj
    name: str  # "red ball 1"
    cell: Cell
    forward: int  # steps ahead, 0 to 6
    right: int  # steps to the right, -3 to 3


class World:
    """One episode of a level.

    Things are numbered in the order in which they come into view (nearest first), per colour and
    kind, and keep their number. Remembered are the cells that were ever in view: ways lead through
    these only.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.level = make_level(name, seed)
        self.over = False
        self.success = False
        self.seen: set[Cell] = set()
        self.in_view: list[Sighting] = []
        self.walls: set[tuple[int, int]] = set()  # in view, as (forward, right)
        self._names: dict[Any, str] = {}  # things are equal to themselves only
        self._counts: Counter[str] = Counter()
        self.things = [thing for thing in self.level.grid.grid if thing and thing.type != "wall"]
        self._look()

    @property
    def position(self) -> Cell:
        x, y = self.level.agent_pos
        return int(x), int(y)

    @property
    def direction(self) -> int:
        return int(self.level.agent_dir)

    @property
    def carrying(self) -> Any | None:
        """The thing in hand."""
        return self.level.carrying

    @property
    def front(self) -> Any | None:
        """What is in the cell ahead: a thing, a wall, or None."""
        return self.at(ahead(self.position, self.direction))

    def at(self, cell: Cell) -> Any | None:
        """What is in a cell: a thing, a wall, or None. The cell must lie on the grid."""
        return self.level.grid.get(*cell)

    def name(self, thing: Any) -> str:
        """Return what a thing is called; it gets a number when it is first named."""
        if thing not in self._names:
            kind = f"{thing.color} {thing.type}"
            self._counts[kind] += 1
            self._names[thing] = f"{kind} {self._counts[kind]}"
        return self._names[thing]

    def step(self, primitive: int) -> None:
        """Take one of minigrid's actions. Nothing happens once the episode is over."""
        if self.over:
            return
        _, reward, self.over, _, _ = self.level.step(primitive)
        self.success = bool(self.over and reward > 0)
        self._look()

    def _look(self) -> None:
        grid, visible = self.level.gen_obs_grid()
        (x, y), (dx, dy) = self.position, DIRECTIONS[self.direction]
        found: list[tuple[int, int, Cell, Any]] = []
        self.walls = set()
        for i in range(VIEW):
            for j in range(VIEW):
                if not visible[i, j]:
                    continue
                forward, right = VIEW - 1 - j, i - VIEW // 2
                cell = x + dx * forward - dy * right, y + dy * forward + dx * right
                self.seen.add(cell)
                thing = grid.get(i, j)
                if (forward, right) == (0, 0) or thing is None:
                    continue
                if thing.type == "wall":
                    self.walls.add((forward, right))
                else:
                    found.append((forward, right, cell, thing))
        found.sort(key=lambda item: (item[0] + abs(item[1]), item[1]))
        self.in_view = [
            Sighting(thing, self.name(thing), cell, forward, right)
            for forward, right, cell, thing in found
        ]


def ahead(cell: Cell, direction: int, steps: int = 1) -> Cell:
    """Return the cell that lies so many steps in a direction."""
    dx, dy = DIRECTIONS[direction]
    return cell[0] + dx * steps, cell[1] + dy * steps


def is_free(thing: Any | None) -> bool:
    """Can the agent walk over what is in a cell?"""
    return thing is None or (thing.type == "door" and thing.is_open)
