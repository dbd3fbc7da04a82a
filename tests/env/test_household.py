"""The household: forms of action, mechanics, rewards."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.embodied.household.env import Household
from environments.embodied.household.homes import KINDS
from scalinginter.types import Task


def _task(*kinds: str, key: str = "0", rooms: int = 1, copies: int = 2, clutter: int = 3) -> Task:
    data = {"kinds": [*kinds], "rooms": rooms, "copies": copies, "clutter": clutter, "key": key}
    return Task(f"{'-'.join(kinds)}/{key}", "household", data)


def _start(*kinds: str, key: str = "0", **params: object) -> Household:
    sizes = {name: params.pop(name) for name in ("rooms", "copies", "clutter") if name in params}
    env = Household(**params)
    env.reset(options={"task": _task(*kinds, key=key, **sizes)})
    return env


def _play(env: Household, actions: list[str]) -> list[tuple]:
    return [env.step(action) for action in actions]


def _said(env: Household, *actions: str) -> str:
    return _play(env, [*actions])[-1][0]


ERRANDS = st.lists(st.sampled_from(KINDS), min_size=1, max_size=8)


# --- the expert ---------------------------------------------------------------------------------


@given(kinds=ERRANDS, key=st.integers(0, 10**6), rooms=st.integers(1, 4), copies=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_any_drawn_task_is_solved_by_its_expert_and_not_before_its_last_action(
    kinds: list[str], key: int, rooms: int, copies: int
):
    env = _start(*kinds, key=str(key), rooms=rooms, copies=copies)
    ends = [answer[1:3] for answer in _play(env, env.expert_plan())]
    assert ends[-1] == (1.0, True)
    assert set(ends[:-1]) == {(0.0, False)}


@given(kinds=ERRANDS, key=st.integers(0, 10**6), rooms=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_an_expert_that_searches_solves_any_drawn_task(kinds: list[str], key: int, rooms: int):
    env = _start(*kinds, key=str(key), rooms=rooms, expert="search")
    ends = [answer[1:3] for answer in _play(env, env.expert_plan())]
    assert ends[-1] == (1.0, True)
    assert set(ends[:-1]) == {(0.0, False)}


@given(kind=st.sampled_from(KINDS), key=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_an_expert_that_searches_looks_into_the_receptacles_in_their_order(kind: str, key: int):
    env = _start(kind, expert="search")
    first, _ = env.reset(options={"task": _task(kind, key=str(key))})
    order = re.findall(r"[a-z]+ \d+", first)
    plan = env.expert_plan()
    taken = next(i for i, action in enumerate(plan) if action.startswith("take"))
    walked = [action[6:] for action in plan[:taken] if action.startswith("go to")]
    assert walked == order[: len(walked)]


@given(kinds=ERRANDS, key=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_every_action_of_the_expert_is_admissible_when_its_turn_comes(kinds: list[str], key: int):
    env = _start(*kinds, key=str(key))
    for action in env.expert_plan():
        assert action in env.admissible_actions()
        env.step(action)


def test_a_reminder_says_what_is_carried_and_what_the_task_is():
    env = _start("place", remind=True)
    first, _ = env.reset(options={"task": _task("place")})
    taking = next(i for i, action in enumerate(env.expert_plan()) if action.startswith("take"))
    said = _said(env, *env.expert_plan()[: taking + 1])
    thing = re.match(r"You take (\S+ \d)", said)[1]
    assert said.endswith(f"\nCarried: {thing}. {first.splitlines()[-1]}")


# --- what the prompt says is what the parser accepts --------------------------------------------


@given(kinds=ERRANDS, seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_pitfall_28_no_admissible_action_is_refused(kinds: list[str], seed: int):
    env = _start(*kinds, key=str(seed))
    choice = random.Random(seed)
    refused = (
        "Not an action",
        "There is no ",
        "You do not",
        "Your hand",
        "You are not",
        "You can ",
    )
    for _ in range(30):
        said, _, over, _, _ = env.step(choice.choice(env.admissible_actions()))
        assert not said.startswith(refused)
        assert not re.search(r"already|has no door|carry nothing to|stays where", said)
        if over:
            break


def test_the_prompt_names_the_forms_of_all_tools():
    env = Household()
    forms = [re.sub(r"{(\w+)}", lambda m: m[1].upper(), tool.template) for tool in env.tools()]
    assert all(form in env.instructions for form in forms)


def test_a_filled_tool_template_is_an_admissible_action():
    env = _start("place")
    tools = {tool.name: tool for tool in env.tools()}
    action = tools["go_to"].template.format(receptacle="cabinet 1")
    assert action in env.admissible_actions()


@pytest.mark.parametrize(
    "spelling",
    [
        "put {t} in {r}",
        "put {t} on {r}",
        "  PUT  the {t} in/on the {r}. ",
        "move {t} to {r}",
        "put {t} into {r}",
    ],
)
def test_spelling_is_forgiven_where_the_meaning_is_plain(spelling: str):
    env = _start("place")
    *before, put = env.expert_plan()
    thing, place = put.removeprefix("put ").split(" in/on ")
    _play(env, before)
    assert env.step(spelling.format(t=thing, r=place))[4]["success"]


def test_a_name_without_its_number_and_without_its_space_is_understood():
    env = _start("clean", key="3")
    plan = env.expert_plan()
    short = [plan[0].replace(" 1", "1"), *(re.sub(r" \d+", "", action) for action in plan[1:])]
    assert _play(env, short)[-1][4]["success"]


def test_a_malformed_action_costs_a_turn_and_names_the_forms_and_the_nearest_one():
    said, reward, over, _, info = _start("place").step("grab thing from receptacle")
    assert said.startswith("Not an action (did you mean 'take thing from receptacle'?). Say one of")
    assert (reward, over, info["success"]) == (0.0, False, False)


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("go to cabinett 1", "There is no cabinett 1 in this home (did you mean 'cabinet 1'?)."),
        ("open cabinet 1", "You are not at cabinet 1. Say go to cabinet 1 first."),
        ("put mug 1 in cabinet 1", "You do not carry mug 1. You carry nothing."),
        ("use desklamp 1", "There is no desklamp 1 to use here."),
        ("inventory", "You carry nothing."),
    ],
)
def test_what_cannot_be_done_is_answered_with_the_reason(action: str, answer: str):
    assert _said(_start("heat"), action) == answer


# --- mechanics ----------------------------------------------------------------------------------


def test_what_lies_in_a_closed_receptacle_is_neither_seen_nor_taken():
    starts = (_start("heat", key=str(key)) for key in range(50))
    env = next(env for env in starts if env.expert_plan()[1].startswith("open"))
    walk, open_, take, *_ = env.expert_plan()
    thing, place = take.removeprefix("take ").split(" from ")
    seen = _said(env, walk)
    assert seen == f"You are at {place}. {place.capitalize()} is closed."
    assert _said(env, take) == f"{place.capitalize()} is closed."
    assert thing in _said(env, open_)


def test_one_thing_is_carried_at_a_time():
    env = _start("place", key="4", copies=1, clutter=30)
    place = "countertop 1"
    _play(env, [f"go to {place}"])
    take, other, *_ = [a for a in env.admissible_actions() if a.startswith("take")]
    held = take.removeprefix("take ").split(" from ")[0]
    assert _said(env, take, other) == f"Your hand is full: put {held} somewhere first."
    assert not [a for a in env.admissible_actions() if a.startswith("take")]


@pytest.mark.parametrize("kind", ["clean", "heat", "cool"])
def test_a_thing_that_was_not_treated_does_not_count(kind: str):
    env = _start(kind)
    plan = [action for action in env.expert_plan() if not action.startswith(kind)]
    assert _play(env, plan)[-1][1:3] == (0.0, False)


def test_cooling_undoes_heating():
    env = _start("heat")
    plan = env.expert_plan()
    heat = next(action for action in plan if action.startswith("heat"))
    thing = heat.removeprefix("heat ").split(" with ")[0]
    _play(env, plan[: plan.index(heat) + 1])
    said = _said(env, "inventory"), _said(env, "go to fridge 1", f"cool {thing} with fridge 1")
    assert said == (f"You carry {thing} (hot).", f"You cool {thing} with fridge 1.")
    assert _said(env, "inventory") == f"You carry {thing} (cold)."


def test_an_appliance_does_its_own_work_only():
    env = _start("heat")
    plan = env.expert_plan()
    heat = next(action for action in plan if action.startswith("heat"))
    _play(env, plan[: plan.index(heat)])
    assert _said(env, heat.replace("heat", "clean")) == (
        "You can clean things with a sinkbasin, not with microwave 1."
    )


def test_two_things_in_two_places_are_not_enough():
    env = _start("two", key="0", copies=6, clutter=3)
    plan = env.expert_plan()
    place = plan[-1].split(" in/on ")[1]
    other = next(
        action.removeprefix("go to ")
        for action in env.admissible_actions()
        if action.startswith(f"go to {place[:-2]}") and not action.endswith(place)
    )
    last_take = max(i for i, action in enumerate(plan) if action.startswith("take"))
    _play(env, plan[: last_take + 1])
    apart = [f"go to {other}", f"open {other}", plan[-1].replace(place, other)]
    assert _play(env, apart)[-1][1:3] == (0.0, False)
    thing = plan[-1].removeprefix("put ").split(" in/on ")[0]
    together = [f"take {thing} from {other}", f"go to {place}", plan[-1]]
    assert _play(env, together)[-1][1:3] == (1.0, True)


def test_a_lamp_helps_only_where_it_stands():
    env = _start("examine")
    *before, walk, use = env.expert_plan()
    _play(env, before)
    assert _said(env, use).startswith(f"There is no {use.removeprefix('use ')} to use here")
    assert _play(env, [walk, use])[-1][1:3] == (1.0, True)


def test_a_lamp_cannot_be_taken():
    env = _start("examine")
    walk = next(a for a in env.expert_plan()[::-1] if a.startswith("go to"))
    place = walk.removeprefix("go to ")
    assert _said(env, walk, f"take desklamp 1 from {place}") == (
        "Desklamp 1 stays where it is; say use desklamp 1."
    )


def test_examine_tells_what_was_done_to_a_thing():
    env = _start("clean")
    plan = env.expert_plan()
    clean = next(action for action in plan if action.startswith("clean"))
    thing = clean.removeprefix("clean ").split(" with ")[0]
    before, after = plan[: plan.index(clean)], clean
    said = _said(env, *before, f"examine {thing}"), _said(env, after, f"examine {thing}")
    name = thing.capitalize()
    assert said == (f"{name} is neither clean nor hot nor cold.", f"{name} is clean.")


# --- rewards ------------------------------------------------------------------------------------


def test_an_errand_that_is_undone_does_not_count_at_the_end():
    env = _start("place", "place", key="4")
    plan = env.expert_plan()
    put = next(action for action in plan if action.startswith("put"))
    thing, place = put.removeprefix("put ").split(" in/on ")
    rest = plan[plan.index(put) + 1 :]
    _play(env, [*plan[: plan.index(put) + 1], f"take {thing} from {place}"])
    elsewhere = next(  # without a lid
        action.removeprefix("go to ")
        for action in env.admissible_actions()
        if action.startswith(("go to bed ", "go to countertop ", "go to armchair "))
        and action[6:].split()[0] not in place
    )
    answers = _play(env, [f"go to {elsewhere}", f"put {thing} in/on {elsewhere}", *rest])
    assert not any(answer[2] for answer in answers)
    assert _said(env, "inventory") == "You carry nothing."


@given(kinds=ERRANDS, seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_pitfall_26_progress_stays_in_the_unit_interval(kinds: list[str], seed: int):
    env = _start(*kinds, key=str(seed), reward="progress")
    choice = random.Random(seed)
    plan, total, over = env.expert_plan(), 0.0, False
    while plan and not over:
        astray = choice.random() < 0.2
        action = choice.choice(env.admissible_actions()) if astray else plan.pop(0)
        _, reward, over, _, info = env.step(action)
        assert reward >= 0
        total += reward
    assert total <= 1 + 1e-9
    assert (total > 1 - 1e-9) == (over and info["success"])


def test_pitfall_26_progress_is_earned_once():
    env = _start("clean", reward="progress")
    plan = env.expert_plan()
    take = next(action for action in plan if action.startswith("take"))
    thing, place = take.removeprefix("take ").split(" from ")
    _play(env, plan[: plan.index(take)])
    rewards = [answer[1] for answer in _play(env, [take, f"put {thing} in/on {place}", take])]
    assert rewards == [pytest.approx(1 / 3), 0.0, 0.0]


def test_pitfall_26_random_play_earns_little():
    env = Household(max_errands=2)
    choice = random.Random(0)
    solved = 0
    for task in env.tasks("test")[:60]:
        env.reset(options={"task": task})
        for _ in range(20):
            if env.step(choice.choice(env.admissible_actions()))[2]:
                solved += 1
                break
    assert solved / 60 < 0.05
