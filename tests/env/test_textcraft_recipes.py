"""Recipe books of the user: our JSON format, and folders of Minecraft recipe files."""

import json
from pathlib import Path

import pytest

from environments.game.textcraft import minecraft
from environments.game.textcraft.book import RECIPES, Recipe, load_book
from environments.game.textcraft.env import TextCraft
from scalinginter.errors import UserError

FILES = {
    "planks.json": {
        "type": "minecraft:crafting_shapeless",
        "ingredients": [{"item": "minecraft:oak_log"}],
        "result": {"item": "minecraft:planks", "count": 4},
    },
    "stick.json": {
        "type": "minecraft:crafting_shaped",
        "pattern": ["#", "#"],
        "key": {"#": {"tag": "minecraft:planks"}},
        "result": {"item": "minecraft:stick", "count": 4},
    },
    "torch.json": {  # the newer format: plain strings and "id"; alternatives in a list
        "type": "minecraft:crafting_shaped",
        "pattern": ["X", "#"],
        "key": {"X": ["minecraft:coal", "minecraft:charcoal"], "#": "minecraft:stick"},
        "result": {"id": "minecraft:torch", "count": 4},
    },
    "z/oak_log_from_planks.json": {
        "type": "crafting_shapeless",
        "ingredients": ["minecraft:planks"],
        "result": "minecraft:oak_log",
    },
    "z/stick_from_bamboo.json": {
        "type": "crafting_shapeless",
        "ingredients": ["minecraft:bamboo"],
        "result": "minecraft:stick",
    },
    "charcoal.json": {"type": "minecraft:smelting", "ingredient": {}, "result": "charcoal"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, entry in FILES.items():
        path = tmp_path / "recipes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(entry))
    return tmp_path / "recipes"


def test_a_folder_of_minecraft_recipes_is_read(folder: Path):
    assert list(minecraft.read_folder(folder).values()) == [
        Recipe("planks", 4, (("oak log", 1),)),
        Recipe("stick", 4, (("planks", 2),)),
        Recipe("torch", 4, (("charcoal", 1), ("stick", 1))),
    ]


def test_pitfall_25_the_order_of_the_directory_does_not_matter(folder: Path, monkeypatch):
    forward = minecraft.read_folder(folder)
    rglob = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda self, p: sorted(rglob(self, p), reverse=True))
    backward = minecraft.read_folder(folder)
    assert list(backward.items()) == list(forward.items())


def test_a_folder_of_recipes_can_be_played(folder: Path):
    env = TextCraft(
        recipes=str(folder), max_depth=3, distractors=0, num_train=3, num_validation=3, num_test=3
    )
    with pytest.raises(UserError, match="too few different tasks"):
        env.tasks("train")  # three items make three tasks; the message says what to do


def test_a_plan_over_minecraft_recipes(folder: Path):
    plan = [(s.kind, s.amount, s.item) for s in load_book(str(folder)).plan("torch")]
    assert plan == [
        ("get", 1, "oak log"),
        ("craft", 4, "planks"),
        ("craft", 4, "stick"),
        ("get", 1, "charcoal"),
        ("craft", 4, "torch"),
    ]


def test_an_empty_folder_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="holds no crafting recipe"):
        load_book(str(tmp_path))


def test_a_broken_recipe_file_is_named(tmp_path: Path):
    (tmp_path / "bad.json").write_text('{"type": "crafting_shaped", "pattern": ["#"]}')
    with pytest.raises(UserError, match=r"bad\.json.*mend or remove"):
        load_book(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        "{",
        '{"a": 1}',
        '{"a": {"makes": 0, "needs": {"b": 1}}}',
        '{"a": {"makes": 1, "needs": {}}}',
    ],
)
def test_a_file_that_is_no_book_is_refused_with_an_example(tmp_path: Path, text: str):
    path = tmp_path / "book.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"is not a recipe book.*makes"):
        load_book(str(path))


def test_recipes_in_a_circle_are_refused(tmp_path: Path):
    path = tmp_path / "book.json"
    path.write_text(
        json.dumps({"a": {"makes": 1, "needs": {"b": 1}}, "b": {"makes": 1, "needs": {"a": 1}}})
    )
    with pytest.raises(UserError, match="in a circle: a <- b <- a"):
        load_book(str(path))


@pytest.mark.parametrize("name", ["workshop.json", "chains.json"])
def test_our_books_reach_depth_five(name: str):
    book = load_book(str(RECIPES / name))
    assert {book.depth(item) for item in book.recipes} == {1, 2, 3, 4, 5}


def test_no_name_of_the_workshop_reads_as_an_amount_or_a_list():
    book = load_book(str(RECIPES / "workshop.json"))
    names = {name for item in book.recipes for name in book.closure(item)}
    assert [
        n for n in names if n != n.lower() or "," in n or " using " in n or n[0].isdigit()
    ] == []
