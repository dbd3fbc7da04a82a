"""Growing: soil, seed, water, time, and pollination where a fruit is wanted."""

from environments.science.laboratory.goal import Goal, Milestone
from environments.science.laboratory.planner import Planner
from environments.science.laboratory.setup import Draw, Experiment, spoken
from environments.science.laboratory.world import STAGES, Event, Plant, Pot, Thing

FORMS = ("put in", "pour", "use", "focus")
PLANTS = ("bean", "melon", "pea", "pepper", "poppy", "pumpkin", "squash", "tomato")


def build(draw: Draw) -> Experiment:
    """Grow one plant or two to a sprout, a flower or a fruit."""
    level = draw.level
    names = draw.some(PLANTS, 1 if level.rooms < 6 else 2)
    target = STAGES[1 if level.rooms == 1 else min(level.subjects, 2) + draw.number(0, 1)]
    place = draw.room()
    pots = dict(zip(names, ("red pot", "blue pot"), strict=False))
    for name in names:
        draw.fix(Pot, pots[name], "pot", place)
        turns = tuple(draw.number(2, 4) for _ in range(3))
        draw.hide(Plant, name, "plant", turns=turns)
        soil = draw.hide(Thing, _soil(pots[name]), "soil")
        if level.tools_at_hand:
            soil.place = pots[name]
    for name in draw.some([n for n in PLANTS if n not in names], min(level.junk, 2)):
        draw.hide(Plant, name, "plant")
    draw.hide(Thing, "water", "substance")
    if target == "fruit":
        draw.tool("brush")
    draw.world.asks_focus = True
    each = "it" if len(names) == 1 else "each"
    text = (
        f"Grow {spoken([f'a {target} of the {name}' for name in names])} from its seed, in soil, "
        f"in a pot. Keep the soil wet.{_by_brush(target)} Then focus on {each}."
    )

    def solve(planner: Planner) -> None:
        soils = [_soil(pot) for pot in pots.values() if planner.thing(_soil(pot)).place != pot]
        planner.take(*names, "water", *soils, *(["brush"] if target == "fruit" else []))
        planner.reach(pots[names[0]])
        for name in names:
            if _soil(pots[name]) in soils:
                planner.do(f"put {_soil(pots[name])} in {pots[name]}")
            planner.do(f"put {name} in {pots[name]}")
        _tend(planner, pots, target)

    return Experiment(draw.world, Goal(text, _milestones(names, target)), solve)


def _soil(pot: str) -> str:
    return pot.replace("pot", "soil")


def _by_brush(target: str) -> str:
    return " A flower turns to fruit after you use the brush on it." if target == "fruit" else ""


def _milestones(names: list[str], target: str) -> tuple[Milestone, ...]:
    stages = STAGES[1 : STAGES.index(target) + 1]
    events: list[Event] = []
    for name in names:
        events += [("planted", name), ("watered", name)]
        events += [("stage", name, stage) for stage in stages]
        events += [("focus", name, target)]
    return tuple(map(Milestone, events))


def _tend(planner: Planner, pots: dict[str, str], target: str) -> None:
    """Water what is dry, pollinate what flowers, focus on what is there, else wait."""
    left = list(pots)
    while left:
        planner.do(_next(planner, pots, left, target))
        left = [name for name in left if planner.plan[-1] != f"focus on {name}"]


def _next(planner: Planner, pots: dict[str, str], left: list[str], target: str) -> str:
    for name in left:
        plant, pot = planner.thing(name), planner.thing(pots[name])
        assert isinstance(plant, Plant)
        if plant.state == target:
            return f"focus on {name}"
        if pot.state == "dry":
            return f"pour water into {pots[name]}"
        if plant.state == "flower" and not plant.pollinated:
            return f"use brush on {name}"
    return "wait"
