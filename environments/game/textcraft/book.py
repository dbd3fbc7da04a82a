"""A recipe book: one recipe per item, no cycles, and a shortest plan to every item."""

import functools
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scalinginter.errors import UserError

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True, slots=True)
class Recipe:
    """`makes` pieces of `item` out of `needs`, in the order in which they are listed."""

    item: str
    makes: int
    needs: tuple[tuple[str, int], ...]

    @property
    def command(self) -> str:
        """The action that crafts it once, as the observation lists it."""
        needs = ", ".join(f"{amount} {item}" for item, amount in self.needs)
        return f"craft {self.makes} {self.item} using {needs}"

    @property
    def brief(self) -> str:
        """The same in few words; an ingredient is repeated as often as it is needed."""
        needs = " ".join(" ".join([item] * amount) for item, amount in self.needs)
        return f"{self.item} : {needs}"


@dataclass(frozen=True, slots=True)
class Step:
    """One action of a plan."""

    kind: Literal["get", "craft"]
    item: str
    amount: int


class Book:
    """The recipes by item. Items without a recipe can be picked up, the others cannot.

    Raises `UserError` for a recipe that needs itself, directly or through others.
    """

    def __init__(self, recipes: Mapping[str, Recipe], source: str) -> None:
        self.source = source
        self.recipes = dict(recipes)
        self._depths: dict[str, int] = {}
        for item in self.recipes:
            self._measure(item, ())
        self._plans: dict[str, tuple[Step, ...]] = {}

    def _measure(self, item: str, above: tuple[str, ...]) -> int:
        if item in above:
            raise UserError(f"{self.source}: recipes go in a circle: {' <- '.join([*above, item])}")
        if item not in self._depths:
            recipe = self.recipes.get(item)
            needs = recipe.needs if recipe else ()
            self._depths[item] = (
                1 + max(self._measure(need, (*above, item)) for need, _ in needs) if needs else 0
            )
        return self._depths[item]

    def depth(self, item: str) -> int:
        """Return the height of the item's recipe tree; 0 for an item that is picked up."""
        return self._depths[item]

    def closure(self, item: str) -> list[str]:
        """Return the item and all that goes into it, each once, ingredients first."""
        found: dict[str, None] = {}
        recipe = self.recipes.get(item)
        for need, _ in recipe.needs if recipe else ():
            found.update(dict.fromkeys(self.closure(need)))
        found[item] = None
        return list(found)

    def plan(self, goal: str) -> tuple[Step, ...]:
        """Return a shortest plan: one `get` per picked item, as few `craft` as its amounts allow.

        It is shortest because an item has one recipe: every item of the closure is needed in an
        amount that no order of actions changes. The order keeps few different items in hand.
        """
        if goal not in self._plans:
            self._plans[goal] = tuple(self._ordered(goal))
        return self._plans[goal]

    def room(self, goal: str) -> int:
        """Return how many different items the plan holds at once, at most."""
        held: Counter[str] = Counter()
        most = 0
        for step in self.plan(goal):
            if step.kind == "craft":
                held.subtract(dict(self.recipes[step.item].needs))
            held[step.item] += step.amount
            most = max(most, sum(1 for amount in held.values() if amount > 0))
        return most

    def _ordered(self, goal: str) -> list[Step]:
        amounts = self._amounts(goal)
        steps: list[Step] = []
        made: set[str] = set()

        def make(item: str) -> None:
            if item in made:
                return
            made.add(item)
            recipe = self.recipes.get(item)
            if recipe is None:
                steps.append(Step("get", item, amounts[item]))
                return
            for need, _ in sorted(recipe.needs, key=lambda pair: -self._depths[pair[0]]):
                make(need)
            steps.extend([Step("craft", item, recipe.makes)] * -(-amounts[item] // recipe.makes))

        make(goal)
        return steps

    def _amounts(self, goal: str) -> Counter[str]:
        """Return how many pieces of each item of the closure one goal takes."""
        amounts: Counter[str] = Counter({goal: 1})
        for item in reversed(self.closure(goal)):  # an item comes after all that need it
            recipe = self.recipes.get(item)
            if recipe:
                runs = -(-amounts[item] // recipe.makes)
                for need, amount in recipe.needs:
                    amounts[need] += runs * amount
        return amounts


@functools.lru_cache(maxsize=8)
def load_book(path: str) -> Book:
    """Read a book: our JSON file (`{"plank": {"makes": 4, "needs": {"log": 1}}}`) or a folder of
    recipe files in the format of Minecraft's data packs.

    Raises `UserError` for a path that does not exist and for a file that is not a book.
    """
    from environments.game.textcraft.minecraft import read_folder

    place = Path(path)
    if place.is_dir():
        return Book(read_folder(place), path)
    if not place.is_file():
        raise UserError(f"recipes: no such file or folder: {path!r}")
    try:
        return Book(_parse(json.loads(place.read_text("utf-8"))), path)
    except (
        json.JSONDecodeError,
        UnicodeDecodeError,
        TypeError,
        KeyError,
        AttributeError,
    ) as error:
        raise UserError(
            f"recipes: {path!r} is not a recipe book ({error!r}); "
            'it should read {"plank": {"makes": 4, "needs": {"log": 1}}, ...}'
        ) from error


def _parse(entries: dict[str, dict[str, Any]]) -> dict[str, Recipe]:
    recipes = {}
    for item, entry in entries.items():
        needs = tuple((need, amount) for need, amount in entry["needs"].items())
        amounts = [entry["makes"], *(amount for _, amount in needs)]
        if not needs or not all(type(n) is int and n >= 1 for n in amounts):
            raise TypeError(f"{item}: makes and needs are whole numbers from 1")
        recipes[item] = Recipe(item, entry["makes"], needs)
    return recipes
