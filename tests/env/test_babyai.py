"""BabyAI: the view in words, the two sets of actions, rewards, tasks."""

import re

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.embodied.babyai import grammar
from environments.embodied.babyai.env import BabyAI
from environments.embodied.babyai.levels import gym_ids, table
from environments.embodied.babyai.world import LEFT, World, ahead
from scalinginter.env.base import SPLITS
from scalinginter.env.check import check_env
from scalinginter.errors import UserError
from scalinginter.types import Task

CALM = ["GoToLocal", "PutNextLocal", "OpenDoor", "UnlockPickup"]


def _start(level: str, seed: int, actions: str = "high_level") -> tuple[BabyAI, str]:
    env = BabyAI(levels=[level], actions=actions)
    task = Task(f"x/{level}/{seed}", "babyai", {"level": level, "seed": seed})
    return env, env.reset(options={"task": task})[0]


def _seeds(level: str, count: int) -> list[int]:
    turns = table().turns[level]["high_level"]
    return [seed for seed, needed in enumerate(turns) if needed][:count]


# --- conformance ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("actions", ["high_level", "primitive"])
def test_babyai_keeps_the_contract(actions: str):
    report = check_env("babyai", {"actions": actions}, num_tasks=6)
    assert report.ok, str(report)


# --- what the prompt says is what the parser accepts ------------------------------------------


@pytest.mark.parametrize("actions", ["high_level", "primitive"])
def test_pitfall_28_every_form_in_the_instructions_is_understood(actions: str):
    env, _ = _start("GoToLocal", 2, actions)
    lines = env.instructions.partition("one action:\n")[2].splitlines()
    said = [re.split(r" - |: ", line)[0] for line in lines]
    answers = [env.step(re.sub("THING|DOOR", "grey door 1", form))[0] for form in said]
    assert [answer for answer in answers if "Not an action" in answer] == []


@pytest.mark.parametrize(
    "action",
    [
        "pick up {name}",
        "pickup {name}",
        "Pick Up the {name}.",
        "  pick   up {name} ",
        "pick up <{name}>",
        "[pick up {kind}]",
        "`pick up {name}`",
    ],
)
def test_pitfall_28_every_way_to_pick_up_is_accepted(action: str):
    env, _ = _start("PutNextLocal", 31)
    said = env.step(action.format(name="red ball 1", kind="red ball"))[0]
    assert said.endswith("You carry red ball 1.")


@pytest.mark.parametrize("action", ["pick up", "pickup", "PICK UP"])
@pytest.mark.parametrize("actions", ["high_level", "primitive"])
def test_pitfall_28_pick_up_alone_takes_what_is_ahead(action: str, actions: str):
    env, _ = _start("PutNextLocal", 31, actions)
    env.step("move forward")
    assert env.step(action)[0].endswith("You carry red ball 1.")


@pytest.mark.parametrize("name", ["{0} door 1", "{0} closed door 1", "the closed {0} door"])
def test_pitfall_28_a_door_is_found_with_and_without_its_state(name: str):
    env, _ = _start("OpenTwoDoors", 2)
    turns = [env.step("turn left")[0] for _ in range(4)]
    color = next(found[1] for text in turns if (found := re.search(r"(\w+) door 1 \(cl", text)))
    while f"{color} door 1" not in (text := env.step("turn left")[0]):
        pass
    assert "You see" in text
    assert env.step(f"go to {name.format(color)}")[0].startswith("You see")


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        (
            "go to red bal 1",
            "There is no red bal 1 in view (did you mean 'red ball 1'?). You see y",
        ),
        ("turn lfet", "Not an action (did you mean 'turn left'?). Say turn left, turn right,"),
        ("pick up purple door 1", "There is no purple door 1 in view"),
        ("drop", "Your hands are empty. You see"),
        ("toggle", "There is nothing ahead to toggle. You see"),
        ("pick up", "There is nothing ahead to pick up. You see"),
        ("go through red ball 1", "You cannot go through red ball 1. You see"),
        ("", "Not an action. Say turn left,"),
    ],
)
def test_an_action_that_does_nothing_is_told_why(action: str, answer: str):
    env, _ = _start("PutNextLocal", 31)
    said, *rest, info = env.step(action)
    assert said.startswith(answer)
    assert (rest, info["success"]) == ([0.0, False, False], False)


def test_a_wall_ahead_is_named():
    env, _ = _start("PutNextLocal", 31)
    answers = [env.step("turn right")[0], *(env.step("move forward")[0] for _ in range(3))]
    assert answers[-1].startswith("You cannot move forward: a wall is there.")


def test_a_locked_door_asks_for_its_key():
    env, text = _start("UnlockPickup", 3)
    while not (found := re.search(r"(\w+) door 1 \(locked\)", text)):
        text = env.step("turn left")[0]
    said = env.step(f"toggle and go through {found[1]} door 1")[0]
    assert said.startswith(f"{found[1]} door 1 is locked: carry a {found[1]} key to unlock it.")


def test_the_primitive_set_answers_high_level_actions_with_its_own():
    env, _ = _start("PutNextLocal", 31, "primitive")
    assert env.step("go to red ball 1")[0].startswith("Not an action")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=30) | st.sampled_from(["go to", "pick up x"]), max_size=5))
def test_pitfall_30_any_text_is_answered_with_text(actions: list[str]):
    env, _ = _start("GoToLocal", 2)
    assert all(isinstance(env.step(f"{action}?")[0], str) for action in actions)


def test_pitfall_30_a_long_action_is_not_echoed():
    env, _ = _start("GoToLocal", 2)
    assert max(len(env.step(f"{verb} {'x' * 10_000}")[0]) for verb in ("go to", "x")) < 1000


# --- the view ---------------------------------------------------------------------------------


def test_the_opening_reads_as_documented():
    _, opening = _start("PutNextLocal", 31)
    assert opening == (
        "Goal: put the yellow ball next to the red key.\n"
        "You see yellow ball 1: 2 steps to the left; red ball 1: 2 steps forward; "
        "blue box 1: 3 steps to the left. A wall is 3 steps forward, 2 steps to the right. "
        "You carry nothing."
    )


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([*CALM, "KeyCorridorS3R1", "GoToObjMazeS4"]),
    st.integers(0, 99),
    st.lists(st.integers(0, 5), max_size=30),
)
def test_what_is_in_view_lies_where_it_is_said_to_lie(level: str, seed: int, walk: list[int]):
    world = World(level, seed)
    for primitive in walk:
        world.step(primitive)
        for sighting in world.in_view:
            cell = ahead(world.position, world.direction, sighting.forward)
            cell = ahead(cell, (world.direction + 1) % 4, sighting.right)
            assert (cell, world.at(cell)) == (sighting.cell, sighting.thing)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([*CALM, "KeyCorridorS3R1", "GoToObjMazeS4"]),
    st.integers(0, 99),
    st.lists(st.integers(0, 5), max_size=30),
)
def test_in_view_is_what_minigrid_shows(level: str, seed: int, walk: list[int]):
    world = World(level, seed)
    for primitive in walk:
        world.step(primitive)
        grid, visible = world.level.gen_obs_grid()
        shown = {
            (6 - j, i - 3): grid.get(i, j) for i in range(7) for j in range(7) if visible[i, j]
        }
        del shown[0, 0]  # the agent's own cell
        told: dict[tuple[int, int], object] = {(s.forward, s.right): s.thing for s in world.in_view}
        walls = {place for place, thing in shown.items() if thing and thing.type == "wall"}
        things = {place: thing for place, thing in shown.items() if thing and place not in walls}
        assert (told, world.walls) == (things, walls)


def test_things_keep_their_names():
    world = World("PutNextLocal", 31)
    names = {sighting.thing: sighting.name for sighting in world.in_view}
    for primitive in (0, 0, 2, 1, 1, 0):
        world.step(primitive)
        again = {s.thing: s.name for s in world.in_view}
        assert all(names.setdefault(thing, name) == name for thing, name in again.items())
    assert len(set(names.values())) == len(names)


# --- high-level actions -----------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([*CALM, "KeyCorridorS3R1", "GoTo"]), st.integers(0, 99), st.data())
def test_go_to_ends_in_front_of_the_thing(level: str, seed: int, data: st.DataObject):
    world = World(level, seed)
    for _ in range(3):
        ways = [a for a in grammar.admissible(world, "high_level") if a.startswith("go to")]
        if not ways or world.over:
            return
        action = data.draw(st.sampled_from(ways))
        grammar.act(world, action, "high_level")
        front = world.front
        assert front is not None
        assert world.over or world.name(front) == action.removeprefix("go to ")


def test_toggle_and_go_through_ends_behind_the_door():
    world = World("GoToObjMazeS4", 2)
    doors: list[str] = []
    while not doors:
        world.step(LEFT)
        doors = [a for a in grammar.admissible(world, "high_level") if a.startswith("toggle and")]
    target = next(s for s in world.in_view if doors[0].endswith(s.name))
    grammar.act(world, doors[0], "high_level")
    assert (target.thing.is_open, world.position) == (
        True,
        ahead(target.cell, world.direction),
    )


def test_what_the_tools_say_is_understood():
    for actions in ("high_level", "primitive"):
        env, _ = _start("PutNextLocal", 31, actions)
        texts = [t.template.format(thing="red ball 1", door="x") for t in env.tools()]
        assert [text for text in texts if env.step(text)[0].startswith("Not an action")] == []


# --- rewards ----------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", ["high_level", "primitive"])
@pytest.mark.parametrize("level", CALM)
def test_pitfall_26_success_earns_exactly_one_and_ends_the_episode(level: str, actions: str):
    env, _ = _start(level, _seeds(level, 1)[0], actions)
    answers = [env.step(action)[1:3] for action in env.expert_plan() or []]
    assert answers == [(0.0, False)] * (len(answers) - 1) + [(1.0, True)]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("turn left")


def test_pitfall_26_a_late_success_earns_one_too():
    env, _ = _start("GoToLocal", 2)
    plan = env.expert_plan() or []
    for _ in range(400):  # minigrid's own reward would be negative by now
        env.step("turn left")
    assert [env.step(action)[1] for action in plan][-1] == 1.0


def test_a_wrong_pick_up_of_a_strict_level_ends_without_success():
    env, _ = _start("PickupDistDebug", _seeds("PickupDistDebug", 1)[0])
    goal = (env.expert_plan() or [])[-1]
    wrong = [a for a in env.admissible_actions() or [] if a.startswith("pick up") and a != goal]
    said, reward, terminated, _, info = env.step(wrong[0])
    assert (reward, terminated, info["success"]) == (0.0, True, False)
    assert said.startswith("That was wrong")


# --- tasks ------------------------------------------------------------------------------------


def test_pitfall_25_the_first_tasks_are_these_on_every_machine():
    tasks = BabyAI(levels=["GoToLocal", "PutNextLocal"]).tasks("test")
    first = [(t.id, dict(t.data), t.required_turns) for t in tasks[:2]]
    assert first == [
        ("test/GoToLocal/0001", {"level": "GoToLocal", "seed": 1}, 1),
        ("test/PutNextLocal/0016", {"level": "PutNextLocal", "seed": 16}, 9),
    ]


def test_pitfall_31_a_reset_puts_everything_back():
    env, opening = _start("PutNextLocal", 31)
    for action in (env.expert_plan() or [])[:3]:
        env.step(action)
    task = Task("x", "babyai", {"level": "PutNextLocal", "seed": 31})
    assert env.reset(options={"task": task})[0] == opening


def test_ids_and_short_names_are_the_same_level():
    assert BabyAI(levels=["BabyAI-GoToLocal-v0"]).tasks("test") == BabyAI(
        levels=["GoToLocal"]
    ).tasks("test")


def test_the_default_tasks_spread_over_lengths_and_are_many():
    env = BabyAI()
    counts = [len(env.tasks(split)) for split in SPLITS]
    turns = {task.required_turns or 0 for task in env.tasks("train")}
    assert all(have >= least for have, least in zip(counts, (1000, 100, 100), strict=True))
    assert set(range(2, 31)) <= turns
    assert max(turns) > 40


def test_levels_take_turns():
    tasks = BabyAI(levels=["GoToLocal", "OpenDoor"]).tasks("train")
    assert [t.data["level"] for t in tasks[:4]] == ["GoToLocal", "OpenDoor"] * 2


def test_every_level_of_minigrid_is_in_the_table_or_refused_with_a_reason():
    known = table()
    assert set(gym_ids()) == set(known.turns) | set(known.refused)
    assert all(known.refused.values())


def test_every_listed_level_has_tasks_in_every_split():
    empty = [
        (level, split)
        for level in table().turns
        for split in SPLITS
        if not BabyAI(levels=[level]).tasks(split)
    ]
    assert empty == []


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"levels": ["GoToLocl"]}, "unknown level 'GoToLocl' \\(did you mean 'GoToLocal'"),
        ({"levels": ["KeyInBox"]}, "'KeyInBox' has no tasks: the expert fails"),
        ({"levels": "GoToLocal"}, "must be a list of level names"),
        ({"levels": []}, "must be a list of level names"),
        ({"actions": "primitve"}, "did you mean 'primitive'"),
    ],
)
def test_a_wrong_parameter_is_refused(params: dict, message: str):
    with pytest.raises(UserError, match=message):
        BabyAI(**params)


@pytest.mark.parametrize("data", [{"level": "KeyInBox", "seed": 0}, {"level": "X", "seed": "1"}])
def test_a_task_outside_the_table_is_refused(data: dict):
    with pytest.raises(UserError, match="has no task with seed"):
        BabyAI().reset(options={"task": Task("x", "babyai", data)})


def test_listing_tasks_imports_no_minigrid():
    import subprocess
    import sys

    code = (
        "import sys; from environments.embodied.babyai.env import BabyAI;"
        "BabyAI().tasks('train'); print('minigrid' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- words for small models -------------------------------------------------------------------


def test_the_corpus_holds_every_word_that_can_be_read():
    env = BabyAI()

    def words(text: str) -> set[str]:
        return set("".join(c if c.isalnum() else f" {c} " for c in text).split())

    known = set().union(*map(words, env.corpus()))
    wrong = ["x", "go to red ball 30", "toggle", "drop", "pick up", "move forward", "turn left"]
    read: set[str] = set()
    for task in env.tasks("test")[:60]:
        read |= words(env.reset(options={"task": task})[0])
        for action in [*wrong, *(env.admissible_actions() or []), "check available actions"]:
            if env.admissible_actions():
                read |= words(env.step(action)[0]) | words(action)
    assert read - known <= {"x"}
