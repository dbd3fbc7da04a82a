"""What a task asks for, and how much of it a state of the home fulfils."""

from collections.abc import Sequence
from dataclasses import dataclass

from environments.embodied.household.catalogue import RECEPTACLES, a
from environments.embodied.household.world import HAND, Thing, World

_ADJECTIVES = {"clean": "clean", "heat": "hot", "cool": "cold"}


@dataclass(frozen=True, slots=True)
class Errand:
    """One thing to do.

    `kind`: `place`, `two`, `clean`, `heat`, `cool` or `examine`. `target`: the kind of receptacle
    that the thing goes to; empty for `examine`.
    """

    kind: str
    thing: str
    target: str = ""

    @property
    def text(self) -> str:
        """The errand in words."""
        if self.kind == "examine":
            return f"look at {a(self.thing)} in the light of a desklamp"
        word = RECEPTACLES[self.target].preposition
        if self.kind == "two":
            return f"put {a(self.thing)} and another {self.thing} {word} one {self.target}"
        adjective = _ADJECTIVES.get(self.kind)
        what = f"{adjective} {self.thing}" if adjective else self.thing
        return f"put {a(what)} {word} {a(self.target)}"

    @property
    def num_things(self) -> int:
        return 2 if self.kind == "two" else 1

    def treated(self, thing: Thing) -> bool:
        """Has the thing had what the errand asks for before it is put away?"""
        match self.kind:
            case "clean":
                return thing.clean
            case "heat" | "cool":
                return thing.warmth == _ADJECTIVES[self.kind]
            case "examine":
                return thing.examined
        return True

    def share(self, world: World) -> float:
        """Return how much of the errand is done, in [0, 1]; 1 exactly if it is done.

        The stages of a thing are in hand, treated, put away; those that apply count alike. For two
        things the best receptacle counts: both have to be in the same one.
        """
        things = [thing for thing in world.things.values() if thing.kind == self.thing]
        if self.kind == "examine":
            return max(1.0 if t.examined else 0.5 * (t.place == HAND) for t in things)
        return max(
            sum(sorted(self._stage(thing, place) for thing in things)[-self.num_things :])
            for place, receptacle in world.receptacles.items()
            if receptacle.kind == self.target
        ) / (self.num_things * self._num_stages)

    @property
    def _num_stages(self) -> int:
        return 3 if self.kind in _ADJECTIVES else 2

    def _stage(self, thing: Thing, place: str) -> int:
        if not self.treated(thing):
            return int(thing.place == HAND)
        if thing.place == place:
            return self._num_stages
        return 2 if self._num_stages == 3 else int(thing.place == HAND)


def share(errands: Sequence[Errand], world: World) -> float:
    """Return the mean share of the errands, in [0, 1]; 1 exactly if all are done at once."""
    return sum(errand.share(world) for errand in errands) / len(errands)
