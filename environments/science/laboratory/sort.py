"""Sorting into boxes: by conductivity, tested in a circuit, and by what a magnet does."""

from collections.abc import Sequence

from environments.science.laboratory.goal import Goal, Milestone
from environments.science.laboratory.planner import Planner
from environments.science.laboratory.setup import SAMPLES, Draw, Experiment, spoken
from environments.science.laboratory.world import Event, Sample, Thing, together

CIRCUIT_FORMS = ("put in", "connect", "disconnect")
MAGNET_FORMS = ("put in", "use")
BOXES = ("red box", "green box", "blue box")
LIGHTS = ("bright", "dim", "dark")
PULLS = ("pulls", "pushes", "ignores")
MEANS = {
    "bright": "gives a bright bulb",
    "dim": "gives a dim bulb",
    "dark": "gives a dark bulb",
    "pulls": "is pulled",
    "pushes": "is pushed away",
    "ignores": "is ignored",
}


def build_circuit(draw: Draw) -> Experiment:
    """Test samples in a circuit of battery, sample and bulb; then sort them by the bulb's light."""
    names, boxes, place = _samples(draw, LIGHTS, "light")
    draw.fix(Thing, "battery", "battery", place)
    draw.fix(Thing, "bulb", "bulb", place)
    wired = draw.level.rooms == 1
    if wired:
        draw.world.wires.append(together("battery", "bulb"))
    how = "battery to bulb is connected" if wired else "and battery to bulb"
    text = (
        f"Test {spoken(names)} in a circuit: sample to battery, sample to bulb, {how}. "
        f"Then put {_meaning(boxes)}."
    )

    def solve(planner: Planner) -> None:
        planner.take(*names)
        planner.reach("battery")
        if not wired:
            planner.do("connect battery to bulb")
        for name in names:
            planner.do(f"connect battery to {name}")
            planner.do(f"connect bulb to {name}")
            sample = planner.thing(name)
            assert isinstance(sample, Sample)
            planner.do(f"put {name} in {boxes[sample.light]}")

    placed = {name: boxes[_sample(draw, name).light] for name in names}
    return Experiment(draw.world, Goal(text, _milestones("circuit", placed)), solve)


def build_magnet(draw: Draw) -> Experiment:
    """Try the magnet on samples; then sort them by what it does."""
    names, boxes, _ = _samples(draw, PULLS, "pull")
    draw.tool("magnet")
    text = f"Use the magnet on {spoken(names)}. Then put {_meaning(boxes)}."

    def solve(planner: Planner) -> None:
        planner.take("magnet")
        for name in planner.nearest(names):
            planner.take(name)
            planner.do(f"use magnet on {name}")
        planner.reach("red box")
        for name in names:
            sample = planner.thing(name)
            assert isinstance(sample, Sample)
            planner.do(f"put {name} in {boxes[sample.pull]}")

    placed = {name: boxes[_sample(draw, name).pull] for name in names}
    return Experiment(draw.world, Goal(text, _milestones("magnet", placed)), solve)


def _samples(
    draw: Draw, values: Sequence[str], field: str
) -> tuple[list[str], dict[str, str], str]:
    """Add samples and boxes. Return the samples' names, value -> box, and the boxes' room."""
    names = draw.some(SAMPLES, draw.level.subjects + draw.level.junk)
    for name in names:
        draw.hide(Sample, name, "sample", **{field: draw.one(values)})
    place = draw.room()
    for box in BOXES:
        draw.fix(Thing, box, "box", place)
    return names[: draw.level.subjects], dict(zip(values, draw.some(BOXES, 3), strict=True)), place


def _sample(draw: Draw, name: str) -> Sample:
    sample = draw.world.things[name]
    assert isinstance(sample, Sample)
    return sample


def _meaning(boxes: dict[str, str]) -> str:
    return spoken([f"what {MEANS[value]} in the {box}" for value, box in boxes.items()])


def _milestones(test: str, placed: dict[str, str]) -> tuple[Milestone, ...]:
    milestones = []
    for name, box in placed.items():
        tested: Event = (test, name)
        milestones += [Milestone(tested), Milestone(("box", name, box), frozenset([tested]))]
    return tuple(milestones)
