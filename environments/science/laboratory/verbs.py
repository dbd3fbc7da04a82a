"""What the agent can do: each verb changes the world and returns what the agent is told.

A verb that cannot do what it is asked changes nothing and says why.
"""

from environments.science.laboratory.physics import WATERING
from environments.science.laboratory.world import (
    HAND,
    Device,
    Plant,
    Pot,
    Sample,
    Thing,
    Vessel,
    World,
    together,
)
from scalinginter.errors import nearest

SLUDGE = "sludge"
WHAT_THE_MAGNET_DOES = {
    "pulls": "The magnet pulls the {}.",
    "pushes": "The magnet pushes the {} away.",
    "ignores": "The magnet ignores the {}.",
}
HOW_THE_BULB_SHINES = {
    "bright": "The bulb is bright.",
    "dim": "The bulb is dim.",
    "dark": "The bulb stays dark.",
}


def missing(world: World, name: str) -> str:
    """Return what is said of a name that is not in reach."""
    names = [thing.name for thing in world.reach()] + world.products()
    return f"There is no {name[:40]} in reach{nearest(name[:40], names)}."


def wait(world: World) -> str:
    return "You wait."


def look(world: World) -> str:
    return world.look()


def inventory(world: World) -> str:
    return f"You carry {world.listed(world.held())}."


def go(world: World, room: str) -> str:
    exits = world.rooms[world.here]
    if room not in exits:
        return f"There is no way to {room[:40]} from here{nearest(room[:40], exits)}."
    world.here = room
    held = {thing.name for thing in world.held()}  # a wire is as long as a room
    world.wires = [wire for wire in world.wires if held.isdisjoint(wire)]
    return world.look()


def open_(world: World, name: str) -> str:
    thing = world.find(name)
    if thing is None:
        return missing(world, name)
    if not thing.lid or thing.is_open:
        return f"The {name} is open." if thing.lid else f"The {name} cannot be opened."
    thing.is_open = True
    return f"You open the {name}. In it: {world.listed(world.inside(name))}."


def close(world: World, name: str) -> str:
    thing = world.find(name)
    if thing is None:
        return missing(world, name)
    if not thing.lid or not thing.is_open:
        return f"The {name} is closed." if thing.lid else f"The {name} cannot be closed."
    thing.is_open = False
    return f"You close the {name}."


def can_take(world: World, thing: Thing) -> bool:
    """Can this thing, which is in reach, be picked up? A box keeps what it got, a pot as well."""
    around = world.things.get(thing.place)
    stuck = around is not None and around.role in ("box", "pot")
    return thing.portable and thing.place != HAND and not stuck


def pick_up(world: World, name: str) -> str:
    thing = world.find(name)
    if thing is None:
        return missing(world, name)
    if not can_take(world, thing):
        return f"You carry the {name}." if thing.place == HAND else f"You cannot take the {name}."
    thing.place = HAND
    return f"You take the {name}."


def preposition(target: Thing) -> str:
    """Return how things are put there."""
    return "on" if target.role in ("stove", "scale") else "in"


def can_put(world: World, thing: Thing, target: Thing) -> bool:
    """Is `target` made for `thing`?"""
    if target.role == "pot":
        inside = world.inside(target.name)
        if isinstance(thing, Plant):
            return any(i.role == "soil" for i in inside) and not any(
                isinstance(i, Plant) for i in inside
            )
        return thing.role == "soil" and not any(i.role == "soil" for i in inside)
    return isinstance(thing, Sample) and target.role in ("stove", "freezer", "scale", "box")


def put(world: World, name: str, target_name: str) -> str:
    thing, target = world.find(name), world.find(target_name)
    if thing is None or target is None:
        return missing(world, name if thing is None else target_name)
    if thing.place != HAND:
        return f"You do not carry the {name}."
    if not target.is_open:
        return f"The {target_name} is closed."
    if not can_put(world, thing, target):
        bare = isinstance(thing, Plant) and target.role == "pot"
        why = " It needs soil, and room for one plant." if bare else ""
        return f"The {target_name} is not for the {name}.{why}"
    thing.place = target_name
    world.wires = [wire for wire in world.wires if name not in wire]
    said = f"You put the {name} {preposition(target)} the {target_name}."
    if target.role == "box":
        world.events.append(("box", name, target_name))
    elif target.role == "scale":
        on_it = [thing for thing in world.inside(target_name) if isinstance(thing, Sample)]
        world.events.append(("scale", name))
        return f"{said} It reads {sum(sample.grams for sample in on_it)} grams."
    elif isinstance(thing, Plant):
        world.events.append(("planted", name))
    return said


def pour(world: World, name: str, target_name: str) -> str:
    thing, target = world.find(name), world.find(target_name)
    if thing is None or target is None:
        return missing(world, name if thing is None else target_name)
    if thing.role != "substance":
        return f"The {name} cannot be poured."
    if thing.place != HAND:
        return f"You do not carry the {name}."
    if isinstance(target, Pot) and name == "water":
        target.moisture = WATERING
        world.events.extend(("watered", t.name) for t in world.inside(target_name))
        return f"You water the {target_name}."
    if not isinstance(target, Vessel):
        return f"The {target_name} is not for {name}."
    if name not in target.contents:
        target.contents.append(name)
    return f"You pour {name} into the {target_name}. In it: {target.state}."


def mix(world: World, name: str) -> str:
    vessel = world.find(name)
    if not isinstance(vessel, Vessel):
        return missing(world, name) if vessel is None else f"The {name} is not a vessel."
    if len(vessel.contents) < 2:
        return f"There is nothing to mix in the {name}."
    product = world.recipes.get(together(*vessel.contents), SLUDGE)
    vessel.contents = [product]
    world.events.append(("made", product))
    return f"You get {product}."


def empty(world: World, name: str) -> str:
    vessel = world.find(name)
    if not isinstance(vessel, Vessel):
        return missing(world, name) if vessel is None else f"The {name} is not a vessel."
    vessel.contents = []
    return f"The {name} is empty."


def activate(world: World, name: str) -> str:
    return _switch(world, name, True)


def deactivate(world: World, name: str) -> str:
    return _switch(world, name, False)


def _switch(world: World, name: str, active: bool) -> str:
    device = world.find(name)
    if not isinstance(device, Device):
        return missing(world, name) if device is None else f"The {name} has no switch."
    device.active = active
    world.events.append(("switched", name, device.state))
    return f"The {name} is {device.state}."


def can_use(tool: Thing, thing: Thing) -> bool:
    """Is the tool made for the thing?"""
    kinds = {"thermometer": Sample, "magnet": Sample, "brush": Plant}
    return isinstance(thing, kinds.get(tool.name, ()))


def use(world: World, name: str, target_name: str) -> str:
    tool, thing = world.find(name), world.find(target_name)
    if tool is None or thing is None:
        return missing(world, name if tool is None else target_name)
    if tool.place != HAND:
        return f"You do not carry the {name}."
    if not can_use(tool, thing):
        return f"The {name} is not for the {target_name}."
    if isinstance(thing, Plant):
        return _brush(thing)
    assert isinstance(thing, Sample)
    if name == "thermometer":
        world.events.append((name, target_name, str(thing.degrees)))
        return f"The thermometer reads {thing.degrees} degrees."
    world.events.append((name, target_name))
    return WHAT_THE_MAGNET_DOES[thing.pull].format(target_name)


def _brush(plant: Plant) -> str:
    if plant.state != "flower":
        return f"The {plant.name} has no flower."
    plant.pollinated = True
    return f"You pollinate the {plant.name}."


def read(world: World, name: str) -> str:
    thing = world.find(name)
    if thing is None:
        return missing(world, name)
    if thing.role != "note":
        return f"There is nothing to read on the {name}."
    world.events.append(("read", name))
    return f"The {name} says: {world.note}"


def can_connect(one: Thing, other: Thing) -> bool:
    """A wire goes from the battery or the bulb to the other one, or to a sample."""
    ends = [isinstance(thing, Sample) for thing in (one, other)]
    electric = [thing.role in ("battery", "bulb") for thing in (one, other)]
    return one is not other and any(electric) and all(map(bool.__or__, ends, electric))


def connect(world: World, name: str, other_name: str) -> str:
    one, other = world.find(name), world.find(other_name)
    if one is None or other is None:
        return missing(world, name if one is None else other_name)
    if not can_connect(one, other):
        return f"The {name} cannot be connected to the {other_name}."
    if together(name, other_name) not in world.wires:
        world.wires.append(together(name, other_name))
    return f"You connect the {name} to the {other_name}. {_shine(world)}".strip()


def _shine(world: World) -> str:
    """Return what the bulb does. Only a sample that bridges the circuit alone is tested."""
    if together("battery", "bulb") not in world.wires:
        return ""
    bridges = [
        thing
        for thing in world.reach()
        if isinstance(thing, Sample)
        and all(together(thing.name, end) in world.wires for end in ("battery", "bulb"))
    ]
    if not bridges:
        return ""
    if len(bridges) == 1:
        world.events.append(("circuit", bridges[0].name))
    order = list(HOW_THE_BULB_SHINES)
    return HOW_THE_BULB_SHINES[min((b.light for b in bridges), key=order.index)]


def disconnect(world: World, name: str) -> str:
    if world.find(name) is None:
        return missing(world, name)
    if not any(name in wire for wire in world.wires):
        return f"The {name} is not connected."
    world.wires = [wire for wire in world.wires if name not in wire]
    return f"You disconnect the {name}."


def focus(world: World, name: str) -> str:
    thing = world.find(name)
    if not world.asks_focus:
        return "This task asks for no focus."
    if thing is None and name not in world.products():
        return missing(world, name)
    world.events.append(("focus", name, thing.state if thing is not None else ""))
    return f"You focus on the {name}."


def answer(world: World, text: str) -> str:
    number = text.split()[0]
    if not world.answers:
        return "This task asks for no answer."
    if not number.removeprefix("-").isdecimal() or len(number) > 6:
        return "Answer with a whole number."
    world.events.append(("answer", str(int(number))))
    return f"Your answer is {int(number)}."
