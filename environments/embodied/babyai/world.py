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
_SIDE = VIEW // 2


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
        from minigrid.core.world_object import Wall

        self._outside = Wall()
        self.over = False
        self.success = False
        self.seen: set[Cell] = set()
        self.lit: list[Cell] = []  # the cells in view
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
        (x, y), (dx, dy) = self.position, DIRECTIONS[self.direction]
        rows = [
            [
                (x + dx * forward - dy * right, y + dy * forward + dx * right)
                for right in range(-_SIDE, _SIDE + 1)
            ]
            for forward in range(VIEW)
        ]
        width, height = self.level.grid.width, self.level.grid.height
        things = [
            [
                self.level.grid.get(*cell)
                if 0 <= cell[0] < width and 0 <= cell[1] < height
                else self._outside
                for cell in row
            ]
            for row in rows
        ]
        found: list[tuple[int, int, Cell, Any]] = []
        self.walls, self.lit = set(), []
        for forward, lit in enumerate(_lit(things)):
            for column, is_lit in enumerate(lit):
                if not is_lit:
                    continue
                cell, thing = rows[forward][column], things[forward][column]
                if thing is not self._outside:
                    self.lit.append(cell)
                if thing is None or cell == (x, y):
                    continue
                if thing.type == "wall":
                    self.walls.add((forward, column - _SIDE))
                else:
                    found.append((forward, column - _SIDE, cell, thing))
        self.seen.update(self.lit)
        found.sort(key=lambda item: (item[0] + abs(item[1]), item[1]))
        self.in_view = [
            Sighting(thing, self.name(thing), cell, forward, right)
            for forward, right, cell, thing in found
        ]


def _lit(things: list[list[Any]]) -> list[list[bool]]:
    """Return which cells of the view can be seen: rows from the agent's own to the farthest.

    minigrid's rule (`Grid.process_vis`): light spreads from the agent along its row, first to the
    right and then to the left, and on to the next row; walls and closed doors are lit but stop it.
    """
    lit = [[False] * VIEW for _ in range(VIEW)]
    lit[0][_SIDE] = True
    for forward, row in enumerate(lit):
        clear = [thing is None or thing.see_behind() for thing in things[forward]]
        following = lit[forward + 1] if forward + 1 < VIEW else [False] * VIEW
        for side, columns in ((1, range(VIEW - 1)), (-1, range(VIEW - 1, 0, -1))):
            for column in columns:
                if row[column] and clear[column]:
                    row[column + side] = True
                    following[column] = following[column + side] = True
    return lit


def ahead(cell: Cell, direction: int, steps: int = 1) -> Cell:
    """Return the cell that lies so many steps in a direction."""
    dx, dy = DIRECTIONS[direction]
    return cell[0] + dx * steps, cell[1] + dy * steps


def is_free(thing: Any | None) -> bool:
    """Can the agent walk over what is in a cell?"""
    return thing is None or (thing.type == "door" and thing.is_open)
