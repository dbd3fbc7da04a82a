"""What happens by itself, turn by turn: heat, cold, growth."""

from environments.science.laboratory.world import STAGES, Device, Plant, Pot, Sample, World

HEATING = 20  # degrees a turn
COOLING = 15
HOTTEST, COLDEST = 300, -60
WATERING = 8  # turns that a pot stays wet

CHANGES = {
    ("solid", "liquid"): "melts",
    ("liquid", "gas"): "turns to gas",
    ("gas", "liquid"): "condenses",
    ("liquid", "solid"): "freezes",
}


def tick(world: World) -> str:
    """Let a turn pass. Returns what the agent sees of it."""
    seen = []
    for thing in world.changing:
        if isinstance(thing, Sample):
            seen.append(_exchange_heat(world, thing))
        elif isinstance(thing, Pot):
            seen.append(_grow(world, thing))
    return " ".join(text for text in seen if text)


def _exchange_heat(world: World, sample: Sample) -> str:
    """Heat on a stove that is on, cool in a closed freezer; elsewhere it keeps its temperature.

    On its way through a melting or boiling point a sample stays there for a turn.
    """
    source = world.things.get(sample.place)
    before = sample.state
    if isinstance(source, Device) and source.active:
        following = min(sample.degrees + HEATING, HOTTEST)
        crossed = [p for p in _points(sample) if sample.degrees < p <= following]
        sample.degrees = min(crossed, default=following)
    elif source is not None and source.role == "freezer" and not source.is_open:
        following = max(sample.degrees - COOLING, COLDEST)
        # One degree below a point is on its other side.
        crossed = [p - 1 for p in _points(sample) if following < p <= sample.degrees]
        sample.degrees = max(crossed, default=following)
    if sample.state == before:
        return ""
    world.events.append(("state", sample.name, sample.state))
    change = CHANGES[before, sample.state]
    return f"The {sample.name} {change}." if world.in_reach(sample) else ""


def _points(sample: Sample) -> tuple[int, ...]:
    return (sample.melts_at, sample.boils_at) if sample.melts_at is not None else ()


def _grow(world: World, pot: Pot) -> str:
    """Grow what stands in wet soil; a flower waits for its pollination."""
    if not pot.moisture:
        return ""
    pot.moisture -= 1
    inside = world.inside(pot.name)
    plant = next((thing for thing in inside if isinstance(thing, Plant)), None)
    soil = any(thing.role == "soil" for thing in inside)
    if plant is None or not soil:
        return ""
    if plant.state == "fruit" or (plant.state == "flower" and not plant.pollinated):
        return ""
    plant.grown += 1
    if plant.grown < plant.turns[plant.stage]:
        return ""
    plant.stage, plant.grown = plant.stage + 1, 0
    world.events.append(("stage", plant.name, STAGES[plant.stage]))
    return f"The {plant.name} is a {plant.state} now." if world.in_reach(plant) else ""
