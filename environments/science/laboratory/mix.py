"""Mixing: chemistry by the recipes of a note, and paint by the colours that everybody knows."""

from environments.science.laboratory.goal import Goal, Milestone
from environments.science.laboratory.planner import Planner
from environments.science.laboratory.setup import Draw, Experiment
from environments.science.laboratory.world import Thing, Vessel, together

FORMS = ("pour", "mix", "empty", "read", "focus")
INGREDIENTS = (
    "alum", "ash", "borax", "brine", "caustic", "clay", "iodine", "lime", "lye", "potash", "nitre",
    "sand", "soda", "sugar", "talc", "vinegar",
)  # fmt: skip
PRODUCTS = (
    "azurine", "cinnabar", "ferrite", "glaze", "indigo", "lacquer", "mordant", "niello",
    "ochre", "patina", "sienna", "vermilion",
)  # fmt: skip
PAINTS = {
    together("red paint", "yellow paint"): "orange paint",
    together("blue paint", "yellow paint"): "green paint",
    together("blue paint", "red paint"): "violet paint",
    together("red paint", "white paint"): "pink paint",
    together("black paint", "white paint"): "grey paint",
}


def build(draw: Draw) -> Experiment:
    """Make a mixture; paint where one mixing is enough."""
    if draw.level.subjects == 1 and draw.number(0, 1):
        return _paint(draw)
    return _chemistry(draw)


def _paint(draw: Draw) -> Experiment:
    parts = draw.one(list(PAINTS))
    colours = sorted({name for pair in PAINTS for name in pair} - set(parts))
    extra = draw.some(colours, 1 + draw.level.junk)
    draw.world.recipes = dict(PAINTS)
    return _experiment(draw, [(list(parts), PAINTS[parts])], extra, to_read=False)


def _chemistry(draw: Draw) -> Experiment:
    steps = draw.level.subjects
    names = draw.some(INGREDIENTS, steps + 4 + draw.level.junk)
    products = draw.some(PRODUCTS, steps + 2)
    chain = [(names[:2], products[0])]
    chain += [([products[i - 1], names[i + 1]], products[i]) for i in range(1, steps)]
    others = names[steps + 1 :]
    false_trails = [(others[i : i + 2], product) for i, product in enumerate(products[steps:])]
    recipes = {together(*parts): product for parts, product in [*false_trails, *chain]}
    lines = [f"{' and '.join(parts)} make {product}." for parts, product in [*chain, *false_trails]]
    draw.world.recipes = recipes
    draw.world.note = " ".join(draw.some(lines, len(lines)))
    note = draw.hide(Thing, "note", "note")
    if draw.level.tools_at_hand:
        note.place = draw.world.here
    return _experiment(draw, chain, others, to_read=True)


def _experiment(
    draw: Draw, chain: list[tuple[list[str], str]], extra: list[str], to_read: bool
) -> Experiment:
    """`chain`: what is mixed, one after another, in one beaker; `extra`: what is not needed."""
    needed = [part for parts, _ in chain for part in parts]
    needed = [part for part in needed if part not in {product for _, product in chain}]
    draw.fix(Vessel, "beaker", "vessel")
    for name in draw.some([*needed, *extra], len(needed) + len(extra)):
        draw.hide(Thing, name, "substance")
    draw.world.asks_focus = True
    product = chain[-1][1]
    how = " by the recipes on the note" if to_read else ""
    text = f"Make {product} in the beaker{how}. Then focus on it."

    def solve(planner: Planner) -> None:
        if to_read:
            planner.reach("note")
            planner.do("read note")
        planner.take(*needed)
        planner.reach("beaker")
        for parts, _ in chain:
            for part in parts:
                if part in needed:
                    planner.do(f"pour {part} into beaker")
            planner.do("mix beaker")
        planner.do(f"focus on {product}")

    made = [Milestone(("made", name)) for _, name in chain]
    done = Milestone(("focus", product, ""))
    return Experiment(draw.world, Goal(text, (*made, done)), solve)
