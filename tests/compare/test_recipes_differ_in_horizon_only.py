"""The recipes of one folder are a fair comparison: they differ in the horizon block alone."""

from pathlib import Path

import pytest

from scalinginter.compare.runs import comparable
from scalinginter.config.load import differences, load_recipe, recipe_dict

SCHEDULES = Path(__file__).parents[2] / "schedules"
FOLDERS = sorted(folder for folder in SCHEDULES.iterdir() if any(folder.glob("*.yaml")))


def arms(folder: Path) -> list[Path]:
    """Return the recipes that can be run: all but the base of the folder."""
    return sorted(path for path in folder.glob("*.yaml") if path.stem != "base")


def test_there_are_recipes_to_compare() -> None:
    assert FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_pitfall_22_the_recipes_of_a_folder_differ_in_the_horizon_block_only(folder: Path) -> None:
    configs = [comparable(recipe_dict(load_recipe(path))) for path in arms(folder)]
    paths = {path for config in configs for path in differences(configs[0], config)}
    assert len(configs) >= 2
    assert paths
    assert {path.split(".")[0] for path in paths} == {"horizon"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_pitfall_23_every_recipe_of_a_folder_is_evaluated_at_its_longest_horizon(
    folder: Path,
) -> None:
    recipes = [recipe_dict(load_recipe(path)) for path in arms(folder)]
    longest = max(
        turns
        for recipe in recipes
        for turns in [
            recipe["horizon"].get("turns", 0),
            recipe["horizon"].get("end", 0),
            *recipe["horizon"].get("stages", []),
        ]
    )
    assert {recipe["eval"]["horizon"] for recipe in recipes} == {longest}
