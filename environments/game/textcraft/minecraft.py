"""Reads a folder of recipe files in the format of Minecraft's data packs (`*.json`, any depth).

Which files count, and what of them, does not depend on the order in which a directory lists them.
"""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalinginter.errors import UserError

if TYPE_CHECKING:
    from environments.game.textcraft.book import Recipe

_KINDS = ("crafting_shaped", "crafting_shapeless")


def read_folder(folder: Path) -> dict[str, "Recipe"]:
    """Return a recipe per item, from the files in sorted order.

    The first recipe of an item counts. One that would need its own product is left out, and so are
    files of other kinds (smelting and the like). Of alternative ingredients the first by name is
    taken. A tag (`#minecraft:planks`) is an item of its own, `planks`, which can be picked up
    unless a recipe makes it.
    """
    from environments.game.textcraft.book import Recipe

    recipes: dict[str, Recipe] = {}
    for path in sorted(folder.rglob("*.json"), key=lambda p: p.relative_to(folder).as_posix()):
        recipe = _read(path)
        if recipe and recipe.item not in recipes and not _needs(recipes, recipe):
            recipes[recipe.item] = recipe
    if not recipes:
        raise UserError(
            f"recipes: {str(folder)!r} holds no crafting recipe (*.json of type {_KINDS}); "
            "give the folder data/minecraft/recipes, or recipe"
        )
    return recipes


def _needs(recipes: dict[str, "Recipe"], new: "Recipe") -> bool:
    """Would `new` need its own product?"""
    waiting, seen = [need for need, _ in new.needs], set()
    while waiting:
        item = waiting.pop()
        if item == new.item:
            return True
        if item not in seen:
            seen.add(item)
            waiting += [need for need, _ in recipes[item].needs] if item in recipes else []
    return False


def _read(path: Path) -> "Recipe | None":
    from environments.game.textcraft.book import Recipe

    try:
        entry = json.loads(path.read_text("utf-8"))
        if str(entry["type"]).removeprefix("minecraft:") not in _KINDS:
            return None
        if "pattern" in entry:
            cells = "".join(entry["pattern"]).replace(" ", "")
            needs = Counter(_name(entry["key"][cell]) for cell in cells)
        else:
            needs = Counter(_name(part) for part in entry["ingredients"])
        result = entry["result"]
        result = {"id": result} if isinstance(result, str) else result
        item = _plain(result.get("id") or result["item"])
        return Recipe(item, int(result.get("count", 1)), tuple(sorted(needs.items())))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"recipes: {str(path)!r} is not a Minecraft recipe file: {error!r}; "
            "mend or remove the file"
        ) from error


def _name(ingredient: Any) -> str:
    if isinstance(ingredient, list):
        return min(_name(choice) for choice in ingredient)
    if isinstance(ingredient, dict):
        ingredient = ingredient.get("item") or ingredient["tag"]
    return _plain(ingredient)


def _plain(identifier: str) -> str:
    return identifier.removeprefix("#").rpartition(":")[2].replace("_", " ").lower()
