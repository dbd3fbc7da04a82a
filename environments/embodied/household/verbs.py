"""What each action does to a home, and what the agent is told. Names come as they were written."""

from collections.abc import Iterable
from typing import TypeVar

from environments.embodied.household.catalogue import APPLIANCES, RECEPTACLES, a
from environments.embodied.household.world import HAND, Receptacle, Thing, World
from scalinginter.errors import nearest

Named = TypeVar("Named", Receptacle, Thing)


def look(world: World) -> str:
    """Tell where the agent is: what is here, or which receptacles there are."""
    if world.here is None:
        return world.overview()
    return f"You are at {world.at}. {world.contents()}"


def inventory(world: World) -> str:
    """Tell what the agent carries."""
    return f"You carry {world.held.described if world.held else 'nothing'}."


def go(world: World, name: str) -> str:
    """Walk to a receptacle."""
    receptacle = _pick(world.receptacles.values(), name)
    if receptacle is None:
        return _unknown(name, world.receptacles, "in this home")
    if receptacle.name == world.at:
        return f"You are at {world.at} already. {world.contents()}"
    world.at = receptacle.name
    return look(world)


def open_(world: World, name: str) -> str:
    """Open the receptacle here."""
    return _swing(world, name, opens=True)


def close(world: World, name: str) -> str:
    """Close the receptacle here."""
    return _swing(world, name, opens=False)


def _swing(world: World, name: str, *, opens: bool) -> str:
    here = _arrived(world, name)
    if isinstance(here, str):
        return here
    if not here.lid:
        return f"{here.name.capitalize()} has no door or lid."
    if here.is_open == opens:
        return f"{here.name.capitalize()} is {'open' if opens else 'closed'} already."
    here.is_open = opens
    if opens:
        return f"You open {here.name}. {world.contents()}"
    return f"You close {here.name}."


def take(world: World, name: str, place: str) -> str:
    """Take a thing from the receptacle here."""
    here = _arrived(world, place)
    if isinstance(here, str):
        return here
    if not here.is_open:
        return f"{here.name.capitalize()} is closed."
    if name in world.lamps_here():
        return f"{name.capitalize()} stays where it is; say use {name}."
    thing = _pick(world.seen(), name)
    if thing is None:
        return _unknown(name, [thing.name for thing in world.seen()], f"at {here.name}")
    if world.held is not None:
        return f"Your hand is full: put {world.held.name} somewhere first."
    thing.place = HAND
    return f"You take {thing.name} from {here.name}."


def put(world: World, name: str, place: str) -> str:
    """Put what is carried in or on the receptacle here."""
    thing, here = _carried(world, name), _arrived(world, place)
    if isinstance(thing, str):
        return thing
    if isinstance(here, str):
        return here
    if not here.is_open:
        return f"{here.name.capitalize()} is closed."
    thing.place = here.name
    return f"You put {thing.name} {RECEPTACLES[here.kind].preposition} {here.name}."


def clean(world: World, name: str, place: str) -> str:
    """Wash what is carried in the sinkbasin here."""
    return _treat(world, "clean", name, place)


def heat(world: World, name: str, place: str) -> str:
    """Heat what is carried in the microwave here, which may be closed."""
    return _treat(world, "heat", name, place)


def cool(world: World, name: str, place: str) -> str:
    """Cool what is carried in the fridge here, which may be closed."""
    return _treat(world, "cool", name, place)


def _treat(world: World, treatment: str, name: str, place: str) -> str:
    thing, here = _carried(world, name), _arrived(world, place)
    if isinstance(thing, str):
        return thing
    if isinstance(here, str):
        return here
    if here.kind != APPLIANCES[treatment]:
        return f"You can {treatment} things with {a(APPLIANCES[treatment])}, not with {here.name}."
    if treatment == "clean":
        thing.clean = True
    else:
        thing.warmth = {"heat": "hot", "cool": "cold"}[treatment]
    return f"You {treatment} {thing.name} with {here.name}."


def use(world: World, name: str) -> str:
    """Look at what is carried in the light of the lamp here."""
    lamps = world.lamps_here()
    lamp = next((lamp for lamp in lamps if name in (lamp, lamp.rpartition(" ")[0])), None)
    if lamp is None:
        return _unknown(name, lamps, "to use here")
    thing = world.held
    if thing is None:
        return f"{lamp.capitalize()} shines, but you carry nothing to look at."
    thing.examined = True
    return f"You look at {thing.name} in the light of {lamp}."


def examine(world: World, name: str) -> str:
    """Look closely at the receptacle here, at a thing in it, or at what is carried."""
    here, held = world.here, world.held
    if here is not None and _pick([here], name):
        return world.contents()
    things = [*world.seen(), *([held] if held else [])]
    thing = _pick(things, name)
    if thing is None:
        names = [*(thing.name for thing in things), *([here.name] if here else [])]
        return _unknown(name, names, "in reach")
    state = thing.described.partition(" (")[2].removesuffix(")")
    return f"{thing.name.capitalize()} is {state or 'neither clean nor hot nor cold'}."


def _arrived(world: World, name: str) -> Receptacle | str:
    """Return the receptacle here if it has this name, else what is wrong."""
    here = world.here
    if here is not None and _pick([here], name):
        return here
    if _pick(world.receptacles.values(), name):
        return f"You are not at {name}. Say go to {name} first."
    return _unknown(name, world.receptacles, "in this home")


def _carried(world: World, name: str) -> Thing | str:
    """Return what is carried if it has this name, else what is wrong."""
    held = world.held
    if held is not None and _pick([held], name):
        return held
    return f"You do not carry {name[:40]}. {inventory(world)}"


def _pick(candidates: Iterable[Named], name: str) -> Named | None:
    """Return the candidate of this name, or the first of this kind if the number is left out."""
    return next((one for one in candidates if name in (one.name, one.kind)), None)


def _unknown(name: str, names: Iterable[str], where: str) -> str:
    return f"There is no {name[:40]} {where}{nearest(name[:40], names)}."
