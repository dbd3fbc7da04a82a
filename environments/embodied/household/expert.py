"""The expert: it knows where everything is, or has to look for it.

It plays on a home of its own, so that a plan is what really happens.
"""

from collections.abc import Sequence

from environments.embodied.household.catalogue import APPLIANCES
from environments.embodied.household.errand import Errand
from environments.embodied.household.grammar import act
from environments.embodied.household.world import Receptacle, Thing, World


def solve(world: World, errands: Sequence[Errand], search: bool = False) -> list[str]:
    """Return actions that do all errands, and leave the world as they do.

    The next thing is the one that takes the fewest actions to fetch. Errands with a lamp come last,
    for what was looked at has to be put down before the next thing. Not proved shortest. With
    `search` only what was seen is known, and the receptacles are looked into one after the other.
    """
    return _Expert(world, search).solve(errands)


class _Expert:
    """Collects the actions that it takes in `plan`."""

    def __init__(self, world: World, search: bool) -> None:
        self.world = world
        self.plan: list[str] = []
        self.unseen = list(world.receptacles) if search else []

    def solve(self, errands: Sequence[Errand]) -> list[str]:
        left = [errand for errand in errands if errand.kind != "examine"]
        lamp = [errand for errand in errands if errand.kind == "examine"]
        for waiting in (left, lamp):
            while waiting:
                while not (known := [e for e in waiting if self._known(e)]):
                    self._look_further()
                errand = min(known, key=lambda e: self._cost(self._nearest(e)))
                waiting.remove(errand)
                self._do(errand)
        return self.plan

    def _do(self, errand: Errand) -> None:
        target = ""
        for _ in range(errand.num_things):
            while not self._known(errand, but=target):
                self._look_further()
            thing = self._nearest(errand, but=target)
            self._fetch(thing)
            if errand.kind == "examine":
                self._examine(thing)
                return
            if errand.kind in APPLIANCES:
                appliance = self._nearest_place(APPLIANCES[errand.kind])
                self._reach(appliance.name)
                self._say(f"{errand.kind} {thing.name} with {appliance.name}")
            target = target or self._nearest_place(errand.target).name
            self._reach(target)
            self._open(target)
            self._say(f"put {thing.name} in/on {target}")

    def _fetch(self, thing: Thing) -> None:
        """Put down what is carried (something that was looked at), and take a thing."""
        held = self.world.held
        if held is not None:
            self._open(self.world.at)
            self._say(f"put {held.name} in/on {self.world.at}")
        place = thing.place
        self._reach(place)
        self._open(place)
        self._say(f"take {thing.name} from {place}")

    def _examine(self, thing: Thing) -> None:
        lamps = self.world.lamps
        while not set(lamps.values()) - set(self.unseen):
            self._look_further()
        lamps = {lamp: place for lamp, place in lamps.items() if place not in self.unseen}
        lamp = min(lamps, key=lambda name: lamps[name] != self.world.at)
        self._reach(lamps[lamp])
        self._say(f"use {lamp}")

    def _nearest(self, errand: Errand, but: str = "") -> Thing:
        """Return the thing for an errand, outside the receptacle `but`, that is fetched soonest."""
        return min(self._known(errand, but), key=self._cost)

    def _known(self, errand: Errand, but: str = "") -> list[Thing]:
        return [
            thing
            for thing in self.world.things.values()
            if thing.kind == errand.thing and thing.place not in (but, *self.unseen)
        ]

    def _look_further(self) -> None:
        """Look into the next receptacle that was not looked into."""
        place = self.unseen[0]
        self._reach(place)
        self._open(place)

    def _nearest_place(self, kind: str) -> Receptacle:
        return min(
            (r for r in self.world.receptacles.values() if r.kind == kind),
            key=lambda r: (r.name != self.world.at) + (not r.is_open),
        )

    def _cost(self, thing: Thing) -> int:
        """Return the actions that it takes to reach a thing."""
        return (thing.place != self.world.at) + (not self.world.receptacles[thing.place].is_open)

    def _reach(self, place: str) -> None:
        if self.world.at != place:
            self._say(f"go to {place}")

    def _open(self, place: str) -> None:
        if not self.world.receptacles[place].is_open:
            self._say(f"open {place}")

    def _say(self, action: str) -> None:
        act(self.world, action)
        self.plan.append(action)
        here = self.world.here
        if here is not None and here.is_open and here.name in self.unseen:
            self.unseen.remove(here.name)
