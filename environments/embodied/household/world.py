"""The state of a home: receptacles, things, lamps, where the agent is, and what it sees there."""

from dataclasses import dataclass, field

from environments.embodied.household.catalogue import RECEPTACLES

HAND = "hand"  # the place of what the agent carries


@dataclass(slots=True)
class Receptacle:
    """A place where things are kept, such as `fridge 1`."""

    name: str
    kind: str
    room: str
    is_open: bool = True

    @property
    def lid(self) -> bool:
        """Can it be opened and closed?"""
        return RECEPTACLES[self.kind].lid


@dataclass(slots=True)
class Thing:
    """A thing that can be carried, such as `mug 2`. `place`: a receptacle's name, or `HAND`."""

    name: str
    kind: str
    place: str
    clean: bool = False
    warmth: str = ""  # "hot", "cold", or "" for neither
    examined: bool = False  # looked at in the light

    @property
    def described(self) -> str:
        """Its name, with what has been done to it: `mug 2 (clean, hot)`."""
        states = [word for word in ("clean" if self.clean else "", self.warmth) if word]
        return f"{self.name} ({', '.join(states)})" if states else self.name


@dataclass
class World:
    """The whole state of a home. `lamps` maps each lamp to the receptacle that it stands on."""

    rooms: tuple[str, ...]
    receptacles: dict[str, Receptacle] = field(default_factory=dict)
    things: dict[str, Thing] = field(default_factory=dict)
    lamps: dict[str, str] = field(default_factory=dict)
    at: str = ""  # the receptacle that the agent stands at; "" at the start

    @property
    def here(self) -> Receptacle | None:
        """The receptacle that the agent stands at."""
        return self.receptacles.get(self.at)

    @property
    def held(self) -> Thing | None:
        """What the agent carries."""
        return next((thing for thing in self.things.values() if thing.place == HAND), None)

    def inside(self, place: str) -> list[Thing]:
        """Return what lies in a receptacle."""
        return [thing for thing in self.things.values() if thing.place == place]

    def seen(self) -> list[Thing]:
        """Return the things that can be taken here."""
        here = self.here
        return self.inside(here.name) if here and here.is_open else []

    def lamps_here(self) -> list[str]:
        """Return the lamps that can be used here."""
        return [lamp for lamp, place in self.lamps.items() if place == self.at]

    def contents(self) -> str:
        """Return what one sees of the receptacle here, as a sentence."""
        here = self.here
        assert here is not None
        if not here.is_open:
            return f"{here.name.capitalize()} is closed."
        listed = [*self.lamps_here(), *(thing.described for thing in self.seen())]
        word = RECEPTACLES[here.kind].preposition.capitalize()
        return f"{word} {here.name}: {', '.join(listed) or 'nothing'}."

    def overview(self) -> str:
        """Return the rooms with their receptacles, a line each."""
        return "\n".join(
            f"In the {room}: "
            f"{', '.join(r.name for r in self.receptacles.values() if r.room == room)}."
            for room in self.rooms
        )
