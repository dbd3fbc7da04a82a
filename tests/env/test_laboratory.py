"""The laboratory: rules, mechanics, evidence, tasks."""

import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.science.laboratory.env import Laboratory
from environments.science.laboratory.instances import KINDS, build
from environments.science.laboratory.setup import LEVELS
from scalinginter.env.base import SPLITS
from scalinginter.env.check import check_env
from scalinginter.errors import UserError
from scalinginter.types import Task


def _task(kind: str, level: int, key: str = "test/0") -> Task:
    data = {"kind": kind, "level": level, "key": key}
    return Task(f"{kind}{level}/{key}", "laboratory", data)


def _start(kind: str, level: int, key: str = "test/0", **params: object) -> Laboratory:
    env = Laboratory(**params)
    env.reset(options={"task": _task(kind, level, key)})
    return env


def _play(env: Laboratory, actions: list[str]) -> list[tuple]:
    return [env.step(action) for action in actions]


CELLS = [(kind, level) for kind in KINDS for level in range(1, len(LEVELS) + 1)]


# --- the expert ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["success", "progress"])
def test_the_expert_solves_every_task_of_the_small_splits_and_earns_one(reward: str):
    env = Laboratory(reward=reward)
    for task in (*env.tasks("validation"), *env.tasks("test")):
        env.reset(options={"task": task})
        answers = _play(env, env.expert_plan())
        assert answers[-1][4]["success"], task.id
        assert sum(answer[1] for answer in answers) == pytest.approx(1), task.id
        assert len(answers) == task.required_turns, task.id
        assert [answer[2] for answer in answers].index(True) == len(answers) - 1, task.id


@pytest.mark.parametrize(("kind", "level"), CELLS)
def test_every_action_of_the_expert_is_admissible_when_its_turn_comes(kind: str, level: int):
    env = _start(kind, level)
    for action in env.expert_plan():
        assert action in env.admissible_actions()
        env.step(action)


@given(cell=st.sampled_from(CELLS), key=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_any_drawn_task_is_solvable(cell: tuple[str, int], key: int):
    env = _start(*cell, key=str(key))
    assert _play(env, env.expert_plan())[-1][1:3] == (1.0, True)


# --- what the prompt says is what the parser accepts --------------------------------------------


@given(cell=st.sampled_from(CELLS), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_pitfall_28_no_admissible_action_is_refused(cell: tuple[str, int], seed: int):
    env = _start(*cell, key=str(seed))
    choice = random.Random(seed)
    refused = ("Not an action", "There is no ", "You do not carry", "This task asks for no")
    for _ in range(30):
        said, _, over, _, _ = env.step(choice.choice(env.admissible_actions()))
        assert not said.startswith(refused)
        assert " is not for " not in said
        assert "cannot" not in said
        if over:
            break


@pytest.mark.parametrize(
    ("action", "plain"),
    [
        ("  USE  the Thermometer on the IVORY. ", "use thermometer on ivory"),
        ("answer 75 degrees", "answer 75"),
        ("look around", "look"),
    ],
)
def test_spelling_is_forgiven_where_the_meaning_is_plain(action: str, plain: str):
    answers = []
    for text in (action, plain):
        env = _start("measure", 1, "1")
        answers.append(env.step(text))
    assert answers[0] == answers[1]


def test_a_malformed_action_costs_a_turn_and_names_the_forms_and_the_nearest_one():
    said, reward, over, _, info = _start("mix", 2).step("mixx beaker")
    assert said.startswith("Not an action (did you mean 'mix Y'?). Say one of: look, inventory")
    assert (reward, over, info["success"]) == (0.0, False, False)


def test_a_misspelt_thing_gets_the_nearest_name():
    assert _start("mix", 2).step("mix beeker")[0] == (
        "There is no beeker in reach (did you mean 'beaker'?)."
    )


def test_the_instructions_name_only_what_the_kinds_of_task_take():
    text = Laboratory(kinds=["classify"]).instructions
    assert ["use X on Y" in text, "pour X" in text, "connect" in text] == [True, False, False]


# --- nothing is for free ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["measure", "classify", "conductivity"])
def test_pitfall_27_the_right_answer_without_the_test_is_wrong(kind: str):
    env = _start(kind, 1)
    needed = ("pick up", "answer", "put")  # all that the expert does but the test itself
    plan = [action for action in env.expert_plan() if action.startswith(needed)]
    if "scale" in " ".join(plan):
        plan = plan[-1:]
    answers = _play(env, plan)
    assert answers[-1][1:4] == (0.0, True, False)
    assert answers[-1][0].endswith("That is wrong. The task has failed.")


def test_pitfall_27_a_wrong_answer_ends_the_episode_and_tells_nothing():
    env = _start("measure", 1, "1")
    *tests, right = env.expert_plan()
    _play(env, tests)
    wrong = next(a for a in env.admissible_actions() if a.startswith("answer") and a != right)
    said, reward, over, _, info = env.step(wrong)
    assert said == f"Your answer is {wrong.split()[1]}. That is wrong. The task has failed."
    assert (reward, over, info["success"]) == (0.0, True, False)


def test_a_focus_before_the_change_of_state_fails():
    env = _start("change", 1)
    last = env.expert_plan()[-1]
    assert env.step(last)[1:3] == (0.0, True)


def test_a_thing_in_the_wrong_box_fails_after_the_test_too():
    env = _start("classify", 1)
    *tests, put = env.expert_plan()
    _play(env, tests)
    wrong = next(a for a in env.admissible_actions() if a.startswith("put") and a != put)
    assert env.step(wrong)[1:3] == (0.0, True)


def test_hidden_properties_do_not_show_before_the_test():
    said = {
        env.reset(options={"task": _task("classify", 1, str(key))})[0].split("You are")[1]
        for env in [Laboratory()]
        for key in range(200)
    }
    properties = ("pull", "push", "ignore", "degrees", "grams", "bright", "dim", "dark")
    assert not [text for text in said if any(word in text for word in properties)]


def test_pitfall_26_random_play_earns_little():
    env = Laboratory(max_level=3)
    choice = random.Random(0)
    earned = []
    for task in env.tasks("train")[:144]:
        env.reset(options={"task": task})
        total, over = 0.0, False
        for _ in range(20):
            _, reward, over, _, _ = env.step(choice.choice(env.admissible_actions()))
            total += reward
            if over:
                break
        earned.append(total)
    assert statistics.fmean(earned) < 0.05


def test_pitfall_26_progress_is_earned_once():
    env = _start("classify", 2, reward="progress")
    plan = env.expert_plan()
    use = next(place for place, action in enumerate(plan) if action.startswith("use"))
    rewards = [answer[1] for answer in _play(env, [*plan[: use + 1], plan[use], plan[use]])]
    assert rewards[use:] == [0.5, 0.0, 0.0]


@given(cell=st.sampled_from(CELLS), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_pitfall_26_progress_stays_in_the_unit_interval(cell: tuple[str, int], seed: int):
    env = _start(*cell, key=str(seed), reward="progress")
    choice = random.Random(seed)
    plan, total, over = env.expert_plan(), 0.0, False
    while plan and not over:
        astray = choice.random() < 0.3
        action = choice.choice(env.admissible_actions()) if astray else plan.pop(0)
        _, reward, over, _, info = env.step(action)
        assert reward >= 0
        total += reward
    assert total <= 1
    assert (total == 1) == (over and info["success"])


# --- mechanics ----------------------------------------------------------------------------------


def test_the_scale_reads_what_lies_on_it_together():
    env = _start("measure", 4, "5")
    plan = env.expert_plan()
    puts = [answer[0] for answer in _play(env, plan[:-1]) if "reads" in answer[0]]
    readings = [int(text.split("reads ")[1].split()[0]) for text in puts]
    assert len(readings) == 2
    assert 0 < readings[0] < readings[1] == int(plan[-1].split()[1])


def test_an_open_freezer_does_not_freeze():
    env = _start("change", 1, "5")
    plan = env.expert_plan()
    warm = [action for action in plan[:-2] if action != "close freezer"]
    said = [answer[0] for answer in _play(env, [*warm, *["wait"] * 20])]
    assert "close freezer" in plan
    assert not [text for text in said if "freezes" in text]


def test_a_sample_stays_at_its_melting_point_for_the_turn_after_it_melts():
    env = _start("measure", 3, "7")
    plan = env.expert_plan()
    answers = _play(env, plan[:-2])
    assert "melts." in answers[-1][0]
    assert env.step(plan[-2])[0].startswith(f"The thermometer reads {plan[-1].split()[1]} degrees.")


def test_a_dry_plant_does_not_grow():
    env = _start("grow", 1)
    plan = [action for action in env.expert_plan() if not action.startswith("pour")]
    said = [answer[0] for answer in _play(env, [*plan[:-1], *["wait"] * 10])]
    assert not [text for text in said if "sprout now" in text]


def test_a_wrong_mixture_is_sludge_and_can_be_emptied():
    env = _start("mix", 2, "0")
    names = [a for a in env.admissible_actions() if a.startswith("pick up")][-3:]
    _play(env, names)
    pours = [a for a in env.admissible_actions() if a.startswith("pour")]
    said = [answer[0] for answer in _play(env, [*pours, "mix beaker", "empty beaker"])]
    assert said[-2:] == ["You get sludge.", "The beaker is empty."]


@pytest.mark.parametrize("order", [1, -1])
def test_a_circuit_with_two_samples_tests_neither(order: int):
    env = _start("conductivity", 4, "two")
    plan = env.expert_plan()
    wire = next(place for place, action in enumerate(plan) if action == "connect battery to bulb")
    _play(env, plan[: wire + 1])
    names = [a.split()[-1] for a in plan if a.startswith("connect bulb to")][::order]
    # the third wire tests the first sample, the fourth one neither
    _play(env, [f"connect {end} to {name}" for end in ("battery", "bulb") for name in names])
    right = {action.split()[1]: action for action in plan if action.startswith("put")}
    assert env.step(right[names[1]])[1:3] == (0.0, True)


# --- tasks --------------------------------------------------------------------------------------


def test_the_default_tasks_reach_from_two_turns_to_more_than_forty():
    turns = [task.required_turns for task in Laboratory().tasks("train")]
    assert min(turns) == 2
    assert max(turns) > 40
    assert sum(n >= 20 for n in turns) > 200


def test_a_level_up_takes_more_turns_in_the_mean():
    tasks = Laboratory().tasks("train")
    means = [
        statistics.fmean(t.required_turns for t in tasks if t.data["level"] == level)
        for level in range(1, len(LEVELS) + 1)
    ]
    assert means == sorted(means)


def test_pitfall_25_the_tasks_are_these_on_every_machine():
    tasks = Laboratory().tasks("test")
    assert [(task.id, task.required_turns) for task in tasks[:3]] == [
        ("test/measure1/0-3", 3),
        ("test/change1/0-11", 9),
        ("test/mix1/0-13", 6),
    ]


def test_no_two_tasks_of_any_splits_are_the_same_experiment():
    env = Laboratory(max_level=2, num_train=200)
    tasks = [task for split in SPLITS for task in env.tasks(split)]
    experiments = [build(**task.data) for task in tasks]
    contents = {repr((experiment.world, experiment.goal)) for experiment in experiments}
    assert len(contents) == len(tasks)


def test_the_corpus_holds_the_words_of_held_out_tasks():
    env = Laboratory(max_level=3, num_train=18)
    known = set(" ".join(env.corpus()).replace(".", " ").replace(",", " ").split())
    for task in env.tasks("test"):
        things = build(**task.data).world.things
        assert {word for name in things for word in name.split()} <= known


def test_pitfall_31_an_episode_leaves_nothing_behind():
    env = Laboratory()
    one, other = env.tasks("test")[:2]
    first = env.reset(options={"task": one})
    _play(env, env.expert_plan())
    env.reset(options={"task": other})
    _play(env, env.expert_plan()[:-1])
    assert env.reset(options={"task": one}) == first


def test_it_passes_the_conformance_check():
    report = check_env("laboratory", num_tasks=6)
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kinds": ["mesure"]}, "unknown kind of task 'mesure' .did you mean 'measure'"),
        ({"kinds": []}, "kinds is empty"),
        ({"min_level": 0}, "min_level must be a whole number from 1 to 10, got 0"),
        ({"min_level": 4, "max_level": 3}, "max_level must be a whole number from 4 to 10"),
        ({"reward": "progres"}, "reward must be one of success, progress, got 'progres'"),
        ({"num_test": 0}, "num_test must be a whole number from 1"),
    ],
)
def test_wrong_parameters_are_refused(params: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        Laboratory(**params)


def test_more_tasks_than_there_are_is_an_error_that_says_which():
    with pytest.raises(UserError, match="too few different tasks of kind 'classify' at level 1"):
        Laboratory(kinds=["classify"], max_level=1, num_train=6_000).tasks("train")
