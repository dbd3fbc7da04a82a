"""What there is in the laboratory and where: rooms, things, what is in reach, what one sees."""

from dataclasses import dataclass, field

HAND = "hand"  # the place of what the agent carries
ROOM_DEGREES = 20

Event = tuple[str, ...]
"""Something that happened and that a goal may ask for, e.g. `("thermometer", "brine", "35")`."""


@dataclass(slots=True)
class Thing:
    """Anything with a name. `place` is a room, another thing's name, or `HAND`."""

    name: str
    role: str  # what it is for: "tool", "stove", "box", "storage", ...
    place: str
    portable: bool = True
    lid: bool = False
    is_open: bool = True

    @property
    def state(self) -> str:
        """What one sees of its state; empty if there is nothing to see."""
        return ("open" if self.is_open else "closed") if self.lid else ""


@dataclass(slots=True)
class Device(Thing):
    """A thing that is switched on and off."""

    active: bool = False

    @property
    def state(self) -> str:
        return "on" if self.active else "off"


@dataclass(slots=True)
class Sample(Thing):
    """A piece of matter. What the instruments tell of it is drawn from the task's seed."""

    degrees: int = ROOM_DEGREES
    grams: int = 0
    melts_at: int | None = None  # degrees; None: it stays as it is, and its state is not shown
    boils_at: int = 1000  # degrees
    light: str = "dark"  # how the bulb shines through it: bright, dim, dark
    pull: str = "ignores"  # what the magnet does with it: pulls, pushes, ignores

    @property
    def state(self) -> str:
        if self.melts_at is None:
            return ""
        if self.degrees < self.melts_at:
            return "solid"
        return "liquid" if self.degrees < self.boils_at else "gas"


STAGES = ("seed", "sprout", "flower", "fruit")


@dataclass(slots=True)
class Plant(Thing):
    """A plant from seed to fruit. `turns[i]`: turns of growth that stage i takes."""

    turns: tuple[int, ...] = (2, 2, 2)
    stage: int = 0  # index into STAGES
    grown: int = 0  # turns of growth in this stage
    pollinated: bool = False

    @property
    def state(self) -> str:
        return STAGES[self.stage]


@dataclass(slots=True)
class Vessel(Thing):
    """A beaker. Its contents are names of substances."""

    contents: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        return " and ".join(self.contents)


@dataclass(slots=True)
class Pot(Thing):
    """A pot for plants: soil and seed are put in it. `moisture`: turns until it is dry."""

    moisture: int = 0

    @property
    def state(self) -> str:
        return "wet" if self.moisture else "dry"


def together(*names: str) -> tuple[str, ...]:
    """Return names as the key of a recipe or a wire."""
    return tuple(sorted(names))


@dataclass
class World:
    """The whole state of an experiment.

    `rooms` maps each room to the rooms beside it, `recipes` substances to what they become
    together. Names that belong together are in alphabetical order (`together`).
    """

    rooms: dict[str, list[str]]
    here: str
    things: dict[str, Thing] = field(default_factory=dict)
    recipes: dict[tuple[str, ...], str] = field(default_factory=dict)
    note: str = ""  # what the note says
    answers: tuple[str, ...] = ()  # what may be answered; empty: nothing is asked
    asks_focus: bool = False
    wires: list[tuple[str, ...]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)  # of this turn
    changing: list[Thing] = field(default_factory=list)  # what may change by itself

    def add(self, thing: Thing) -> None:
        """Put a new thing into the world. Raises `ValueError` if its name is taken."""
        if thing.name in self.things or thing.name in self.rooms:
            raise ValueError(f"{thing.name!r} is there already")
        self.things[thing.name] = thing
        if isinstance(thing, Pot) or (isinstance(thing, Sample) and thing.melts_at is not None):
            self.changing.append(thing)

    def room_of(self, name: str) -> str:
        """Return the room that a thing is in; the agent's for what it carries."""
        place = self.things[name].place
        while place in self.things:
            place = self.things[place].place
        return self.here if place == HAND else place

    def in_reach(self, thing: Thing) -> bool:
        """Is it in the room or in hand, and not shut away?"""
        place = thing.place
        while place in self.things:
            if not self.things[place].is_open:
                return False
            place = self.things[place].place
        return place in (HAND, self.here)

    def reach(self) -> list[Thing]:
        """Return what is in reach."""
        return [thing for thing in self.things.values() if self.in_reach(thing)]

    def find(self, name: str) -> Thing | None:
        """Return the thing of this name if it is in reach."""
        thing = self.things.get(name)
        return thing if thing is not None and self.in_reach(thing) else None

    def held(self) -> list[Thing]:
        """Return what the agent carries."""
        return [thing for thing in self.things.values() if thing.place == HAND]

    def inside(self, place: str) -> list[Thing]:
        """Return what lies directly in a room or in a thing."""
        return [thing for thing in self.things.values() if thing.place == place]

    def products(self) -> list[str]:
        """Return the substances in the vessels in reach."""
        vessels = (thing for thing in self.reach() if isinstance(thing, Vessel))
        return sorted({name for vessel in vessels for name in vessel.contents})

    def describe(self, thing: Thing) -> str:
        """Return the name of a thing with what one sees of its state and in it."""
        seen = [thing.state] if thing.state else []
        if thing.is_open:
            seen += [self.describe(inner) for inner in self.inside(thing.name)]
        return f"{thing.name} ({', '.join(seen)})" if seen else thing.name

    def listed(self, things: list[Thing]) -> str:
        """Return the descriptions of things as one text; `nothing` for none."""
        return ", ".join(map(self.describe, things)) or "nothing"

    def look(self) -> str:
        """Return what one sees in the room."""
        text = f"You are in the {self.here}. You see {self.listed(self.inside(self.here))}."
        exits = self.rooms[self.here]
        return f"{text} Exits: {', '.join(exits)}." if exits else text
