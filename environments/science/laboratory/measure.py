"""Measuring: a temperature, a weight, a melting point. The answer is a number."""

from environments.science.laboratory.goal import Goal, Milestone
from environments.science.laboratory.planner import Planner
from environments.science.laboratory.setup import SAMPLES, Draw, Experiment, spoken
from environments.science.laboratory.world import Device, Event, Sample, Thing

FORMS = ("put on", "use", "activate", "deactivate", "answer")
HEATABLE = ("wax", "butter", "resin", "tar", "sulphur", "lard", "cocoa", "pitch")


def build(draw: Draw) -> Experiment:
    """Make one of the three; a melting point takes a stove and at least two rooms."""
    kinds = [_temperature, _weight, _melting_point]
    return draw.one(kinds if draw.level.rooms > 1 else kinds[:2])(draw)


def _goal(text: str, evidence: list[Event], answer: int) -> Goal:
    last = Milestone(("answer", str(answer)), frozenset(evidence))
    return Goal(text, (*map(Milestone, evidence), last))


def _temperature(draw: Draw) -> Experiment:
    names = draw.some(SAMPLES, draw.level.subjects)
    degrees = dict(zip(names, draw.some(range(0, 100, 5), len(names)), strict=True))
    draw.tool("thermometer")
    for name in names:
        draw.hide(Sample, name, "sample", degrees=degrees[name])
    draw.world.answers = tuple(map(str, range(0, 100, 5)))
    of = "temperature" if len(names) == 1 else "highest temperature"
    text = f"Find the {of} of {spoken(names)} with the thermometer and answer it in degrees."

    def solve(planner: Planner) -> None:
        planner.take("thermometer")
        for name in planner.nearest(names):
            planner.reach(name)
            planner.do(f"use thermometer on {name}")
        planner.do(f"answer {max(degrees.values())}")

    evidence: list[Event] = [("thermometer", n, str(degrees[n])) for n in names]
    return Experiment(draw.world, _goal(text, evidence, max(degrees.values())), solve)


def _weight(draw: Draw) -> Experiment:
    names = draw.some(SAMPLES, draw.level.subjects)
    grams = {name: draw.number(1, 20) * 10 for name in names}
    draw.fix(Thing, "scale", "scale")
    for name in names:
        draw.hide(Sample, name, "sample", grams=grams[name])
    draw.world.answers = tuple(str(10 * n) for n in range(1, 20 * len(names) + 1))
    of = "weight" if len(names) == 1 else "weight together"
    text = f"Find the {of} of {spoken(names)} with the scale and answer it in grams."

    def solve(planner: Planner) -> None:
        planner.take(*names)
        planner.reach("scale")
        for name in names:
            planner.do(f"put {name} on scale")
        planner.do(f"answer {sum(grams.values())}")

    evidence: list[Event] = [("scale", name) for name in names]
    return Experiment(draw.world, _goal(text, evidence, sum(grams.values())), solve)


def _melting_point(draw: Draw) -> Experiment:
    names = draw.some(HEATABLE, draw.level.subjects)
    points = dict(zip(names, draw.some(range(30, 160, 5), len(names)), strict=True))
    draw.tool("thermometer")
    draw.fix(Device, "stove", "stove")
    for name in names:
        draw.hide(Sample, name, "sample", melts_at=points[name], boils_at=280)
    draw.world.answers = tuple(map(str, range(30, 160, 5)))
    of = "melting point" if len(names) == 1 else "highest melting point"
    text = (
        f"Find the {of} of {spoken(names)} and answer it in degrees. A sample stays at its melting "
        "point for the turn after it melts."
    )

    def solve(planner: Planner) -> None:
        planner.take("thermometer", *names)
        planner.reach("stove")
        planner.do("activate stove")
        for name in names:
            planner.do(f"put {name} on stove")
            planner.wait_for(lambda name=name: planner.thing(name).state == "liquid")
            planner.do(f"use thermometer on {name}")
        planner.do(f"answer {max(points.values())}")

    evidence: list[Event] = [("thermometer", n, str(points[n])) for n in names]
    return Experiment(draw.world, _goal(text, evidence, max(points.values())), solve)
