"""Drawing a home and its errands from a key."""

import functools
import random
from collections import Counter
from collections.abc import Sequence

from environments.embodied.household.catalogue import (
    APPLIANCES,
    CLASS_OF,
    CLASSES,
    LAMP,
    LAMP_SPOTS,
    RECEPTACLES,
    ROOMS,
)
from environments.embodied.household.errand import Errand
from environments.embodied.household.world import Receptacle, Thing, World

KINDS = ("place", "examine", "clean", "heat", "cool", "two")
"""The kinds of errand."""

_CHANCE_OF_ANOTHER = 0.5  # that a home has one more thing of a kind than its errand takes


def build(
    kinds: Sequence[str], rooms: int, copies: int, clutter: int, key: str
) -> tuple[World, tuple[Errand, ...]]:
    """Make a home and its errands: a pure function of the arguments.

    Args:
        kinds: the kinds of errand, one each.
        rooms: rooms of the home at least; it has more where the errands need them.
        copies: most receptacles of a kind in a room.
        clutter: things that no errand asks for.
        key: what all that is open is drawn from.
    """
    dice = random.Random(f"{','.join(kinds)}/{rooms}/{copies}/{clutter}/{key}")
    world = World(_rooms(dice, kinds, rooms))
    _furnish(dice, world, copies)
    errands: list[Errand] = []
    spots: list[tuple[str, str]] = []  # kind of thing, receptacle
    for kind in kinds:
        errand = _errand(dice, world, kind, {errand.thing for errand in errands})
        number = errand.num_things + (dice.random() < _CHANCE_OF_ANOTHER)
        starts = _starts(world, errand.thing, errand.target)
        spots += [(errand.thing, dice.choice(starts)) for _ in range(number)]
        errands.append(errand)
    used = {errand.thing for errand in errands}
    others = [kind for kind in _kinds_of(world.rooms, "place") if kind not in used]
    for kind in dice.sample(others, min(clutter, len(others))):
        spots.append((kind, dice.choice(_starts(world, kind))))
    dice.shuffle(spots)  # the order in which things are seen tells nothing about the errands
    numbers: Counter[str] = Counter()
    for kind, place in spots:
        name = _numbered(kind, numbers)
        world.things[name] = Thing(name, kind, place)
    return world, tuple(errands)


def _numbered(kind: str, numbers: Counter[str]) -> str:
    """Return the next name of a kind: `mug 1`, `mug 2`, ..."""
    numbers[kind] += 1
    return f"{kind} {numbers[kind]}"


def _rooms(dice: random.Random, kinds: Sequence[str], least: int) -> tuple[str, ...]:
    """Draw the rooms: those that the errands cannot do without, and others up to the number."""
    chosen: set[str] = set()
    if {"heat", "cool"} & set(kinds) or kinds.count("clean") > 2:
        chosen.add("kitchen")
    elif "clean" in kinds:
        chosen.add(dice.choice(("kitchen", "bathroom")))
    if "examine" in kinds:
        chosen.add(dice.choice(("bedroom", "livingroom")))
    number = max(least, 1 + (len(kinds) - 1) // 3, len(chosen))
    others = [room for room in ROOMS if room not in chosen]
    chosen.update(dice.sample(others, number - len(chosen)))
    return tuple(room for room in ROOMS if room in chosen)


def _furnish(dice: random.Random, world: World, copies: int) -> None:
    numbers: Counter[str] = Counter()
    for room in world.rooms:
        for kind, most in ROOMS[room].items():
            for _ in range(dice.randint(1, min(copies, most))):
                name = _numbered(kind, numbers)
                is_open = not RECEPTACLES[kind].lid
                world.receptacles[name] = Receptacle(name, kind, room, is_open)
        spots = [
            name
            for name, receptacle in world.receptacles.items()
            if receptacle.room == room and receptacle.kind in LAMP_SPOTS
        ]
        if spots:
            world.lamps[_numbered(LAMP, numbers)] = dice.choice(spots)


@functools.cache
def _kinds_of(rooms: tuple[str, ...], errand: str) -> tuple[str, ...]:
    """Return the kinds of things that the rooms have and a kind of errand suits."""
    return tuple(
        kind
        for kind, name in CLASS_OF.items()
        if set(CLASSES[name].rooms) & set(rooms)
        and (errand in ("place", "two") or errand in CLASSES[name].kinds[kind])
    )


def _errand(dice: random.Random, world: World, kind: str, used: set[str]) -> Errand:
    """Draw the thing and the target of an errand. Every room has a free one for every kind."""
    free = [thing for thing in _kinds_of(world.rooms, kind) if thing not in used]
    thing = dice.choice(free)
    if kind == "examine":
        return Errand(kind, thing)
    targets = {
        receptacle.kind
        for receptacle in world.receptacles.values()
        if CLASS_OF[thing] in RECEPTACLES[receptacle.kind].takes
    }
    starts = {world.receptacles[name].kind for name in _starts(world, thing)}
    fitting = [t for t in sorted(targets) if t != APPLIANCES.get(kind) and starts - {t}]
    return Errand(kind, thing, dice.choice(fitting))


def _starts(world: World, thing: str, target: str = "") -> list[str]:
    """Return the receptacles where a thing may be at the start, none of them a target."""
    name = CLASS_OF[thing]
    rooms = CLASSES[name].rooms
    return [
        receptacle.name
        for receptacle in world.receptacles.values()
        if receptacle.kind != target
        and receptacle.room in rooms
        and name in RECEPTACLES[receptacle.kind].takes
    ]
