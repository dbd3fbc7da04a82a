"""TextCraft: rules, actions, tasks."""

import statistics
import time

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.game.textcraft.book import RECIPES, Book, load_book
from environments.game.textcraft.env import TextCraft
from scalinginter.env.base import SPLITS
from scalinginter.errors import UserError
from scalinginter.types import Task

QUICKSTART = {"brief": True, "bag": 3, "max_depth": 5, "distractors": 2}


def _candle(**params: object) -> TextCraft:
    """An episode whose goal is a candle: 1 beeswax (2 from 1 honeycomb), 1 linen thread."""
    env = TextCraft(**params)
    recipes = ["candle", "beeswax", "linen thread", "glass pane", "lantern"]
    env.reset(options={"task": Task("x", "textcraft", {"goal": "candle", "recipes": recipes})})
    return env


def _lamp(bag: int | None = 3) -> TextCraft:
    """A brief episode whose goal is a lamp: bowl (clay, sand) and wax; net needs cord, shell."""
    env = TextCraft(brief=True, bag=bag)
    recipes = ["lamp", "net", "bowl", "cord"]
    env.reset(options={"task": Task("x", "textcraft", {"goal": "lamp", "recipes": recipes})})
    return env


def _play(env: TextCraft, actions: list[str]) -> list[str]:
    return [env.step(action)[0] for action in actions]


# --- what the prompt says is what the parser accepts ------------------------------------------


@pytest.mark.parametrize(
    "action",
    [
        "get 2 honeycomb",
        "get honeycomb",
        "GET 1 Honeycomb",
        "  get   1   honeycomb ",
        "get 99 honeycomb",
    ],
)
def test_pitfall_28_every_way_to_get_that_the_instructions_name_is_accepted(action: str):
    assert _candle().step(action)[0].startswith("Got ")


@pytest.mark.parametrize(
    "action",
    [
        "craft 1 candle using 1 beeswax, 1 linen thread",
        "craft candle using 1 linen thread, 1 beeswax",
        "Craft 1 Candle USING 1 beeswax,1 linen  thread",
    ],
)
def test_pitfall_28_every_way_to_craft_that_the_instructions_name_is_accepted(action: str):
    env = _candle()
    _play(env, ["get 1 honeycomb", "craft 2 beeswax using 1 honeycomb"])
    _play(env, ["get 1 flax", "craft 3 linen thread using 1 flax"])
    assert env.step(action)[:3] == ("Crafted 1 candle.", 1.0, True)


@pytest.mark.parametrize(
    "action", ["craft bowl", "craft 1 bowl", "craft bowl using clay, sand", " CRAFT  bowl"]
)
def test_pitfall_28_brief_texts_accept_the_short_and_the_long_form(action: str):
    env = _lamp()
    _play(env, ["get clay", "get sand"])
    assert env.step(action)[0] == "made bowl . have bowl"


def test_pitfall_28_inventory_is_accepted():
    env = _candle()
    assert _play(env, ["get 2 flax", "inventory"])[1] == "Inventory: 2 flax."


def test_pitfall_28_the_instructions_name_every_verb():
    texts = [TextCraft().instructions, TextCraft(brief=True).instructions]
    verbs = ("get ITEM", "get N ITEM", "craft ", "inventory")
    assert [[verb in text for verb in verbs] for text in texts] == [[True] * 4] * 2


# --- rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("get 1 beeswax", "You cannot pick up beeswax: it has to be crafted."),
        ("get 1 moon", "There is no moon here."),
        ("get 0 flax", "You can get 1 to 99 at a time."),
        ("craft 1 lantern using 1 candle", "The crafting command is: craft 1 lantern using"),
        (
            "craft 3 candle using 1 beeswax, 1 linen thread",
            "The crafting command is: craft 1 candle",
        ),
        ("craft 1 candle", "The crafting command is: craft 1 candle"),
        ("craft 1 candle using 1 beeswax, 1 linen thread", "You lack 1 beeswax, 1 linen thread."),
        ("craft 1 moon using 1 flax", "There is no crafting command for moon."),
        ("dance", "Not an action."),
        ("get", "Not an action."),
    ],
)
def test_a_wrong_action_changes_nothing_and_gets_a_hint(action: str, answer: str):
    env = _candle()
    before = env.admissible_actions()
    said, reward, terminated, truncated, info = env.step(action)
    assert said.startswith(answer)
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, False, False)
    assert env.admissible_actions() == before


def test_crafting_uses_up_the_ingredients():
    env = _candle()
    said = _play(env, ["get 3 flax", "craft 3 linen thread using 1 flax", "inventory"])
    assert said[-1] == "Inventory: 2 flax, 3 linen thread."


def test_a_full_bag_takes_no_new_item():
    assert _play(_lamp(), ["get clay", "get wax", "get flax", "get sand"])[-1] == (
        "no room . have clay flax wax"
    )


def test_a_full_bag_takes_more_of_what_it_holds():
    assert _play(_lamp(bag=1), ["get clay", "get clay"])[-1] == "got clay . have clay 2"


def test_a_full_bag_leaves_room_for_what_replaces_its_ingredients():
    env = _lamp(bag=2)
    assert _play(env, ["get clay", "get sand", "craft bowl"])[-1] == "made bowl . have bowl"


def test_crafting_needs_room_when_no_ingredient_is_used_up():
    env = _lamp(bag=2)
    assert _play(env, ["get 2 clay", "get 2 sand", "craft bowl"])[-1].startswith("no room")


def test_wrong_pick_ups_can_doom_an_episode():
    env = _lamp()
    _play(env, ["get shell", "get flax", "get clay"])
    ways_out = [
        a for a in env.admissible_actions() or [] if a == "get sand" or a.startswith("craft")
    ]
    assert ways_out == []


def test_pitfall_26_the_goal_ends_the_episode_and_nothing_can_be_earned_after_it():
    env = _lamp()
    answers = [env.step(a)[1:3] for a in env.expert_plan() or []]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("craft lamp")
    assert answers == [(0.0, False)] * 4 + [(1.0, True)]


def test_pitfall_31_a_reset_empties_the_bag():
    env = _lamp()
    env.step("get clay")
    env.reset(options={"task": env.tasks("train")[0]})
    assert env.step("inventory")[0] == "have nothing"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=40) | st.sampled_from(["get clay", "craft bowl"]), max_size=8))
def test_pitfall_30_any_text_is_answered_with_text(actions: list[str]):
    env = _lamp()
    assert all(isinstance(answer, str) for answer in _play(env, actions))


@pytest.mark.parametrize("brief", [False, True])
def test_pitfall_30_a_long_action_is_not_echoed(brief: bool):
    env = TextCraft(brief=brief)
    env.reset()
    answers = _play(env, ["get " + "x" * 10_000, "craft " + "y" * 10_000, "z" * 10_000])
    assert max(map(len, answers)) < 200


# --- the words for small models ---------------------------------------------------------------


def test_brief_texts_read_as_documented():
    env = TextCraft(**QUICKSTART)
    task = Task("x", "textcraft", {"goal": "net", "recipes": ["net", "cord", "brick"]})
    opening, _ = env.reset(options={"task": task})
    assert opening == "goal net . net : cord shell . cord : flax wax . brick : clay moss"


def test_brief_admissible_actions_hold_harmful_ones():
    env = _lamp()
    assert env.admissible_actions() == ["get clay", "get flax", "get sand", "get shell", "get wax"]


def test_brief_texts_are_short():
    env = TextCraft(**QUICKSTART)
    prompts, answers = [], []
    for task in env.tasks("train"):
        opening, _ = env.reset(options={"task": task})
        prompts.append(len(f"{env.instructions} {opening}".split()))
        answers += [len(text.split()) for text in _play(env, env.expert_plan() or [])]
    assert max(prompts) <= 60
    assert max(answers) <= 8


@pytest.mark.parametrize("params", [{}, QUICKSTART], ids=["full", "brief"])
def test_the_corpus_holds_every_word_that_can_be_read(params: dict):
    env = TextCraft(**params)

    def words(text: str) -> set[str]:
        return set("".join(c if c.isalnum() else f" {c} " for c in text).split())

    known = set().union(*map(words, env.corpus()))
    wrong = ["x", "get moon", "get 0 flax", "craft moon", "craft bowl", "get clay", "inventory"]
    read: set[str] = set()
    for task in env.tasks("test"):
        opening, _ = env.reset(options={"task": task})
        read |= words(opening)
        for action in env.expert_plan() or []:
            read = read.union(*map(words, env.admissible_actions() or []))
            read |= words(env.step(action)[0])
        env.reset(options={"task": task})
        read = read.union(*map(words, _play(env, wrong)))
    assert read - known <= {"moon", "bowl"}  # the full texts repeat the item that was asked for


# --- tasks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [{}, {"max_depth": 5}, QUICKSTART], ids=str)
def test_the_expert_solves_every_task_in_exactly_the_required_turns(params: dict):
    env = TextCraft(**params)
    wrong = []
    for task in (task for split in SPLITS for task in env.tasks(split)):
        env.reset(options={"task": task})
        ends = []
        for action in env.expert_plan() or []:
            assert action in (env.admissible_actions() or [])
            ends.append(env.step(action)[2])
        if ends != [False] * ((task.required_turns or 0) - 1) + [True]:
            wrong.append(task.id)
    assert wrong == []


def test_pitfall_25_the_first_tasks_are_these_on_every_machine():
    tasks = TextCraft(**QUICKSTART).tasks("test")
    first = [(t.id, t.data["goal"], t.data["recipes"], t.required_turns) for t in tasks[:2]]
    assert first == [
        ("test/d1/000000", "cord", ["cord", "banner", "brick"], 3),
        ("test/d2/000001", "oven", ["oven", "tower", "brick", "spear"], 5),
    ]


def test_splits_share_no_pair_of_goal_and_commands():
    env = TextCraft(**QUICKSTART)
    contents = [
        {(t.data["goal"], frozenset(t.data["recipes"])) for t in env.tasks(split)}
        for split in SPLITS
    ]
    assert [len(c) for c in contents] == [512, 128, 128]
    assert len(set().union(*contents)) == 768


def test_the_number_of_goals_limits_what_is_made_and_not_what_is_shown():
    tasks = TextCraft(brief=True, bag=3, max_depth=5, distractors=3, num_goals=2).tasks("train")
    goals = {task.data["goal"] for task in tasks}
    shown = {item for task in tasks for item in task.data["recipes"]}
    assert (len(goals), len(shown)) == (10, 35)


def test_goals_of_a_smaller_depth_go_into_those_of_the_largest():
    env = TextCraft(brief=True, max_depth=5, distractors=3, num_goals=2)
    goals = {task.data["goal"] for task in env.tasks("train")}
    final = [goal for goal in goals if env.book.depth(goal) == 5]
    assert goals <= {part for goal in final for part in env.book.closure(goal)}


def test_another_task_seed_gives_other_tasks():
    assert TextCraft(task_seed=1).tasks("test") != TextCraft().tasks("test")


def test_a_longer_task_list_starts_with_the_shorter_one():
    assert TextCraft(num_train=40).tasks("train") == TextCraft().tasks("train")[:40]


def test_depths_take_turns():
    tasks = TextCraft(min_depth=2, max_depth=3).tasks("train")
    assert [t.id[:8] for t in tasks[:4]] == ["train/d2", "train/d3", "train/d2", "train/d3"]


def test_required_turns_grow_with_depth_as_in_the_public_benchmark():
    tasks = TextCraft().tasks("train")
    medians = [
        statistics.median(t.required_turns or 0 for t in tasks if f"/d{depth}/" in t.id)
        for depth in (1, 2, 3, 4)
    ]
    assert medians[:3] == [2, 4, 9]
    assert 15 <= medians[3] <= 19


def test_a_level_of_the_chains_takes_two_more_turns():
    tasks = TextCraft(**QUICKSTART).tasks("train")
    by_depth = {t.id[6:8]: t.required_turns for t in tasks}
    assert by_depth == {"d1": 3, "d2": 5, "d3": 7, "d4": 9, "d5": 11}


# --- the plan is shortest ---------------------------------------------------------------------


def _search(book: Book, goal: str) -> int:
    """Return the length of a shortest plan, by breadth-first search over one-piece amounts."""
    gets = [item for item in book.closure(goal) if item not in book.recipes]
    crafts = [book.recipes[item] for item in book.closure(goal) if item in book.recipes]
    frontier, length = {frozenset()}, 0
    while True:
        length += 1
        following = set()
        for state in frontier:
            held = dict(state)
            following |= {frozenset({**held, g: 99}.items()) for g in gets if g not in held}
            for recipe in crafts:
                if all(held.get(need, 0) >= n for need, n in recipe.needs):
                    after = dict(held)
                    for need, n in recipe.needs:
                        after[need] -= n
                    after[recipe.item] = after.get(recipe.item, 0) + recipe.makes
                    following.add(frozenset((i, n) for i, n in after.items() if n))
        if any(dict(state).get(goal) for state in following):
            return length
        frontier = following


@pytest.mark.parametrize("goal", ["candle", "bronze bar", "wool blanket", "stool", "window"])
def test_no_plan_is_shorter_than_the_experts(goal: str):
    book = load_book(str(RECIPES / "workshop.json"))
    assert len(book.plan(goal)) == _search(book, goal)


# --- speed ------------------------------------------------------------------------------------


def test_a_turn_is_cheap_enough_to_run_in_the_event_loop():
    env = TextCraft(**QUICKSTART)
    times = []
    for task in env.tasks("test"):
        env.reset(options={"task": task})
        for action in env.expert_plan() or []:
            start = time.perf_counter()
            env.admissible_actions()
            env.step(action)
            times.append(time.perf_counter() - start)
    assert statistics.median(times) < 200e-6  # about 20 us on an idle core


# --- parameters -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"min_depth": 3, "max_depth": 2}, "max_depth must be a whole number from 3 to"),
        ({"bag": 0}, "bag must be a whole number from 1"),
        ({"num_train": True}, "num_train must be a whole number"),
        ({"distractors": "2"}, "distractors must be a whole number"),
        ({"brief": "yes"}, "brief must be true or false"),
    ],
)
def test_a_wrong_parameter_is_refused(params: dict, message: str):
    with pytest.raises(UserError, match=message):
        TextCraft(**params)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_depth": 6}, "no item of depth 6; its deepest has 5"),
        ({"brief": True, "bag": 1}, "it takes a bag of 2 at least"),
        ({"brief": True, "distractors": 0}, "too few different tasks"),
        ({"recipes": "nowhere.json"}, "no such file or folder"),
    ],
)
def test_parameters_that_leave_no_tasks_are_refused(params: dict, message: str):
    with pytest.raises(UserError, match=message):
        TextCraft(**params).tasks("train")


def test_a_task_of_another_book_is_refused():
    task = Task("x", "textcraft", {"goal": "moon base", "recipes": ["moon base"]})
    with pytest.raises(UserError, match="needs 'moon base', unknown to"):
        TextCraft().reset(options={"task": task})


def test_a_task_list_that_would_take_for_ever_is_refused():
    with pytest.raises(UserError, match="num_train must be a whole number from 1 to 100000"):
        TextCraft(num_train=100_000_000)
