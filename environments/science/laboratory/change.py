"""Changes of state: melt, boil, freeze."""

from environments.science.laboratory.goal import Goal, Milestone
from environments.science.laboratory.planner import Planner
from environments.science.laboratory.setup import Draw, Experiment, spoken
from environments.science.laboratory.world import Device, Sample, Thing

FORMS = ("put in", "put on", "activate", "deactivate", "focus")
SAMPLES = (
    "acetone", "benzene", "brine", "butter", "ether", "glycol", "honey", "mercury", "naphtha",
    "oil", "paraffin", "resin", "syrup", "tar", "vinegar", "wax",
)  # fmt: skip
TARGETS = {"melt": "liquid", "boil": "gas", "freeze": "solid"}


def build(draw: Draw) -> Experiment:
    """Change the state of some samples, each to the one that it is wanted in."""
    names = draw.some(SAMPLES, (draw.level.subjects + 1) // 2)
    wanted = {name: draw.one(list(TARGETS)) for name in names}
    draw.fix(Device, "stove", "stove")
    draw.fix(Thing, "freezer", "freezer", lid=True, is_open=False)
    others = draw.some([n for n in SAMPLES if n not in names], draw.level.junk)
    for name in (*names, *others):
        _sample(draw, name, wanted.get(name) or draw.one(list(TARGETS)))
    draw.world.asks_focus = True
    orders = spoken([f"{verb} the {name}" for name, verb in wanted.items()])
    which = "it" if len(names) == 1 else "each"
    text = f"{orders.capitalize()}. Focus on {which} once it is {_states(wanted)}."

    def solve(planner: Planner) -> None:
        planner.take(*names)
        for name in planner.nearest(names):
            (_chill if wanted[name] == "freeze" else _heat)(planner, name, TARGETS[wanted[name]])

    events = [(what, n, TARGETS[verb]) for n, verb in wanted.items() for what in ("state", "focus")]
    return Experiment(draw.world, Goal(text, tuple(map(Milestone, events))), solve)


def _states(wanted: dict[str, str]) -> str:
    states = sorted({TARGETS[verb] for verb in wanted.values()})
    return " or ".join(states) + (" as asked" if len(states) > 1 else "")


def _sample(draw: Draw, name: str, verb: str) -> None:
    """Add a sample whose points suit the verb. At 20 degrees it is liquid, or solid to melt."""
    melts_at = draw.number(6, 24) * 5 if verb == "melt" else draw.number(-8, 2) * 5
    boils_at = melts_at + draw.number(16, 30) * 5 if verb == "melt" else draw.number(10, 36) * 5
    draw.hide(Sample, name, "sample", melts_at=melts_at, boils_at=boils_at)


def _heat(planner: Planner, name: str, state: str) -> None:
    planner.reach("stove")
    stove = planner.thing("stove")
    planner.do(f"put {name} on stove")
    if stove.state == "off":
        planner.do("activate stove")
    planner.wait_for(lambda: planner.thing(name).state == state)
    planner.do(f"focus on {name}")


def _chill(planner: Planner, name: str, state: str) -> None:
    planner.reach("freezer")
    if not planner.thing("freezer").is_open:
        planner.do("open freezer")
    planner.do(f"put {name} in freezer")
    planner.do("close freezer")
    planner.wait_for(lambda: planner.thing(name).state == state)
    planner.do("open freezer")
    planner.do(f"focus on {name}")
