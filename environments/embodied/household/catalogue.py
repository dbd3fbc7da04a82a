"""What homes are made of: rooms, receptacles, and classes of things with what can be done to them.

All words are one token of letters, so that `mug 1` and `diningtable 2` read the same way.
"""

from dataclasses import dataclass

ROOMS: dict[str, dict[str, int]] = {
    "kitchen": {
        "cabinet": 6, "countertop": 3, "drawer": 5, "shelf": 3, "diningtable": 2, "fridge": 1,
        "microwave": 1, "sinkbasin": 1, "stoveburner": 4, "garbagecan": 1,
    },
    "bedroom": {
        "bed": 2, "desk": 2, "drawer": 5, "sidetable": 2, "shelf": 4, "dresser": 1, "safe": 1,
        "garbagecan": 1,
    },
    "livingroom": {
        "sofa": 2, "armchair": 2, "coffeetable": 2, "sidetable": 2, "tvstand": 1, "shelf": 4,
        "drawer": 4, "cabinet": 3, "garbagecan": 1,
    },
    "bathroom": {
        "sinkbasin": 2, "countertop": 2, "cabinet": 4, "drawer": 3, "shelf": 2, "toilet": 1,
        "bathtub": 1, "towelrack": 2, "garbagecan": 1,
    },
}  # fmt: skip
"""Room -> kinds of receptacle -> most of them. Every room has at least one of each of its kinds."""


@dataclass(frozen=True, slots=True)
class ReceptacleKind:
    """A kind of receptacle. `takes`: the classes of things that may belong there."""

    takes: frozenset[str]
    lid: bool = False
    preposition: str = "on"


def _place(takes: str, *, lid: bool = False, inside: bool = False) -> ReceptacleKind:
    return ReceptacleKind(frozenset(takes.split()), lid, "in" if lid or inside else "on")


RECEPTACLES: dict[str, ReceptacleKind] = {
    "armchair": _place("paper small soft"),
    "bathtub": _place("wash cloth", inside=True),
    "bed": _place("paper small soft"),
    "cabinet": _place("dish pan wash cloth decor", lid=True),
    "coffeetable": _place("paper small decor dish"),
    "countertop": _place("food dish pan cutlery wash"),
    "desk": _place("paper small decor dish"),
    "diningtable": _place("food dish pan cutlery paper decor"),
    "drawer": _place("cutlery paper small wash", lid=True),
    "dresser": _place("paper small decor soft"),
    "fridge": _place("food dish pan", lid=True),
    "garbagecan": _place("food paper wash", inside=True),
    "microwave": _place("food dish", lid=True),
    "safe": _place("small paper", lid=True),
    "shelf": _place("dish paper decor wash"),
    "sidetable": _place("paper small decor dish"),
    "sinkbasin": _place("food dish pan cutlery wash cloth", inside=True),
    "sofa": _place("paper small soft"),
    "stoveburner": _place("pan"),
    "toilet": _place("wash"),
    "towelrack": _place("cloth"),
    "tvstand": _place("small decor"),
}

LAMP = "desklamp"
LAMP_SPOTS = ("desk", "sidetable", "dresser", "coffeetable")
"""Kinds of receptacle that a lamp stands on."""

APPLIANCES: dict[str, str] = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
"""Treatment -> the kind of receptacle that does it."""


@dataclass(frozen=True, slots=True)
class ThingClass:
    """Things that are kept alike. `kinds`: kind -> treatments it can be asked to have."""

    rooms: tuple[str, ...]
    kinds: dict[str, tuple[str, ...]]


def _things(rooms: str, **kinds: str) -> ThingClass:
    """Each kind with its treatments in short: c clean, h heat, k cool, l look at in the light."""
    names = {"c": "clean", "h": "heat", "k": "cool", "l": "examine"}
    treatments = {kind: tuple(names[letter] for letter in short) for kind, short in kinds.items()}
    return ThingClass(tuple(rooms.split()), treatments)


CLASSES: dict[str, ThingClass] = {
    "food": _things(
        "kitchen", apple="chk", bread="hk", carrot="chk", egg="chk", lettuce="ck", pear="chk",
        potato="chk", tomato="chk",
    ),
    "dish": _things("kitchen", bowl="chk", cup="chk", glass="ck", mug="chk", plate="chk"),
    "pan": _things("kitchen", kettle="ck", pan="ck", pot="ck"),
    "cutlery": _things("kitchen", fork="c", knife="c", ladle="c", spatula="c", spoon="c"),
    "wash": _things(
        "bathroom", comb="c", razor="c", soapbar="c", sponge="c", spraybottle="", toothbrush="c",
        toiletpaper="",
    ),
    "cloth": _things("bathroom", bathrobe="", towel="c", washcloth="c"),
    "paper": _things(
        "bedroom livingroom", book="l", envelope="l", magazine="l", map="l", newspaper="l",
        notebook="l", pen="l", pencil="l",
    ),
    "small": _things(
        "bedroom livingroom", cellphone="l", creditcard="l", keychain="l", remotecontrol="l",
        wallet="l", watch="l",
    ),
    "decor": _things("bedroom livingroom", candle="l", clock="l", statue="l", vase="l"),
    "soft": _things("bedroom livingroom", blanket="", cushion="", pillow=""),
}  # fmt: skip

CLASS_OF: dict[str, str] = {kind: name for name, c in CLASSES.items() for kind in c.kinds}
"""Kind of thing -> its class."""


def a(noun: str) -> str:
    """Return the noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
