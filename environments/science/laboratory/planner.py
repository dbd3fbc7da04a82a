"""The expert: it knows the whole state, and still makes the observations that a goal asks for.

It plays on a world of its own, one action after another, so that a plan is what really happens.
"""

from collections.abc import Callable, Iterable

from environments.science.laboratory.grammar import act
from environments.science.laboratory.world import HAND, Thing, World

MOST_WAITS = 60


class Planner:
    """Collects the actions that it takes in `plan`."""

    def __init__(self, world: World, forms: tuple[str, ...]) -> None:
        self.world = world
        self.plan: list[str] = []
        self._forms = forms

    def do(self, action: str) -> None:
        """Take one action."""
        act(self.world, action, self._forms)
        self.plan.append(action)

    def distance(self, name: str) -> int:
        """Return how many rooms away a thing is."""
        return len(self._way(self.world.room_of(name)))

    def nearest(self, names: Iterable[str]) -> Iterable[str]:
        """Yield every name once, the nearest to the agent of those that are left each time."""
        left = list(names)
        while left:
            name = min(left, key=self.distance)
            left.remove(name)
            yield name

    def reach(self, name: str) -> None:
        """Walk to a thing and open what it is shut away in."""
        for room in self._way(self.world.room_of(name)):
            self.do(f"go to {room}")
        place = self.world.things[name].place
        if place in self.world.things and not self.world.things[place].is_open:
            self.do(f"open {place}")

    def take(self, *names: str) -> None:
        """Fetch things, the nearest first."""
        for name in self.nearest(n for n in names if self.thing(n).place != HAND):
            self.reach(name)
            self.do(f"pick up {name}")

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Wait until something has happened. Raises `RuntimeError` if it does not."""
        for _ in range(MOST_WAITS):
            if done():
                return
            self.do("wait")
        raise RuntimeError(f"waited {MOST_WAITS} turns in vain after {self.plan}")

    def thing(self, name: str) -> Thing:
        """Return a thing of the planner's world."""
        return self.world.things[name]

    def _way(self, room: str) -> list[str]:
        """Return the rooms on the shortest way from here to a room, without this one."""
        came_from = {self.world.here: ""}
        queue = [self.world.here]
        for place in queue:
            if place == room:
                break
            for beside in self.world.rooms[place]:
                if beside not in came_from:
                    came_from[beside] = place
                    queue.append(beside)
        way = []
        while came_from[room]:
            way.append(room)
            room = came_from[room]
        return way[::-1]
