"""The Cooking Game of First TextWorld Problems: read the recipe, gather, prepare, eat."""

from typing import Any, ClassVar

from environments.game.textworld.play import TextWorldEnv
from scalinginter.env.base import Split
from scalinginter.errors import UserError

ROOMS = (1, 6, 9, 12)
FOODS = {"train": "train", "validation": "valid", "test": "test"}  # TextWorld's names


class Cooking(TextWorldEnv):
    """Cook a meal by the recipe and eat it. A wrong cut, a burnt or a wasted ingredient loses.

    Args:
        min_ingredients, max_ingredients: of the recipes, one task after another; 1 to 5.
        rooms: 1, 6, 9 or 12.
        opening, cooking, cutting: whether doors and containers must be opened first, ingredients
            cooked, ingredients cut.
        small_bag: hands hold no more things than the recipe has ingredients.
        held_out_foods: validation and test use foods and ways to prepare them that training lacks.
        num_train, num_validation, num_test: tasks per split.
    """

    family = "cooking"
    environment = "textworld_cooking"
    verbs: ClassVar[frozenset[str]] = frozenset(
        {"go", "take", "drop", "look", "inventory", "examine", "open", "close", "lock", "unlock"}
        | {"put", "insert", "chop", "slice", "dice", "cook", "prepare", "eat", "drink"}
    )
    instructions = """\
You cook a meal: find the kitchen, examine the cookbook, gather the ingredients, prepare them as \
the recipe says, prepare the meal, eat it. A wrong cut, a second cooking, or an ingredient eaten \
alone loses the game. Frying needs a stove, roasting an oven, grilling a BBQ.
Every turn you answer with one action:
go DIRECTION - north, south, east or west; open THING; close THING; unlock or lock THING with KEY
take THING or take THING from PLACE - pick it up; drop THING - put it down
put THING on PLACE; insert THING into PLACE
chop, slice or dice FOOD with KNIFE; cook FOOD with DEVICE
prepare meal - in the kitchen, with all ingredients ready and in hand
eat FOOD; drink FOOD
examine THING - look at it closely, or read it
look - describe the room; inventory - list what you carry"""

    def __init__(
        self,
        *,
        min_ingredients: int = 1,
        max_ingredients: int = 3,
        rooms: int = 1,
        opening: bool = True,
        cooking: bool = True,
        cutting: bool = True,
        small_bag: bool = False,
        held_out_foods: bool = False,
        num_train: int = 64,
        num_validation: int = 16,
        num_test: int = 16,
    ) -> None:
        super().__init__(num_train, num_validation, num_test)
        if not 1 <= min_ingredients <= max_ingredients <= 5:
            raise UserError(
                "ingredients go from min_ingredients to max_ingredients within 1 to 5, "
                f"got {min_ingredients} to {max_ingredients}"
            )
        if rooms not in ROOMS:
            raise UserError(f"rooms must be one of {', '.join(map(str, ROOMS))}, got {rooms}")
        self._ingredients = range(min_ingredients, max_ingredients + 1)
        self._held_out_foods = held_out_foods
        self._rooms = rooms
        self._skills = {"open": opening, "cook": cooking, "cut": cutting, "drop": small_bag}

    def _settings(self, split: Split, index: int) -> tuple[str, dict[str, Any]]:
        count = self._ingredients[index % len(self._ingredients)]
        skills = [name for name, wanted in self._skills.items() if wanted]
        foods = ["heldout"] if self._held_out_foods else []
        name = "-".join([f"recipe{count}", f"go{self._rooms}", *skills, *foods])
        settings = {
            "recipe": count,
            "take": count,
            "go": self._rooms,
            **self._skills,
            "recipe_seed": 0,
            "split": FOODS[split] if self._held_out_foods else None,
        }
        return name, settings
