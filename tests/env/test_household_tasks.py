"""The tasks of the household: lengths, splits, parameters."""

import json
import statistics

import pytest

from environments.embodied.household.catalogue import CLASS_OF, CLASSES, RECEPTACLES, ROOMS
from environments.embodied.household.env import Household
from environments.embodied.household.homes import KINDS, build
from scalinginter.env.base import SPLITS
from scalinginter.env.check import check_env
from scalinginter.errors import UserError


def test_the_expert_takes_the_required_turns_of_every_test_task():
    env = Household()
    for task in env.tasks("test"):
        env.reset(options={"task": task})
        answers = [env.step(action) for action in env.expert_plan()]
        assert answers[-1][4]["success"], task.id
        assert len(answers) == task.required_turns, task.id


def test_the_default_tasks_reach_from_a_few_turns_to_more_than_forty():
    turns = [task.required_turns for task in Household().tasks("train")]
    assert min(turns) <= 4
    assert sum(n <= 10 for n in turns) > 100
    assert sum(n > 40 for n in turns) > 100


def test_one_more_errand_takes_more_turns_in_the_mean():
    tasks = Household().tasks("train")
    means = [
        statistics.fmean(t.required_turns for t in tasks if len(t.data["kinds"]) == number)
        for number in range(1, 9)
    ]
    assert means == sorted(means)


def test_pitfall_25_the_tasks_are_these_on_every_machine():
    tasks = Household().tasks("test")
    assert [(task.id, task.required_turns) for task in tasks[:3]] == [
        ("test/place1/0-3", 5),
        ("test/examine1/0-33", 4),
        ("test/clean1/0-7", 7),
    ]


def test_no_two_tasks_of_any_splits_are_the_same_home_and_errands():
    env = Household(max_errands=2, num_train=200)
    tasks = [task for split in SPLITS for task in env.tasks(split)]
    assert len({repr(build(**task.data)) for task in tasks}) == len(tasks)


def test_no_errand_is_done_at_the_start():
    env = Household(num_train=100)
    shares = []
    for task in env.tasks("train"):
        world, errands = build(**task.data)
        shares += [errand.share(world) for errand in errands]
    assert set(shares) == {0.0}


def test_the_errands_of_a_task_are_about_different_things():
    for task in Household(num_train=100).tasks("train"):
        _, errands = build(**task.data)
        assert len({errand.thing for errand in errands}) == len(errands)


def test_things_start_where_their_class_belongs():
    for task in Household(num_train=100).tasks("train"):
        world, _ = build(**task.data)
        for thing in world.things.values():
            place = world.receptacles[thing.place]
            assert CLASS_OF[thing.kind] in RECEPTACLES[place.kind].takes
            assert place.room in CLASSES[CLASS_OF[thing.kind]].rooms


def test_a_home_has_the_number_of_rooms_and_of_copies_that_were_asked_for():
    world, _ = build(("place",), rooms=4, copies=1, clutter=0, key="0")
    assert world.rooms == tuple(ROOMS)
    assert len(world.receptacles) == sum(map(len, ROOMS.values()))


def test_every_kind_of_receptacle_and_treatment_can_be_reached():
    assert {kind for kinds in ROOMS.values() for kind in kinds} == set(RECEPTACLES)
    treatments = {t for c in CLASSES.values() for kinds in c.kinds.values() for t in kinds}
    assert treatments == set(KINDS) - {"place", "two"}


def test_task_data_are_json_that_builds_the_same_home():
    task = Household().tasks("validation")[5]
    assert build(**json.loads(json.dumps(task.data))) == build(**task.data)


def test_the_corpus_holds_the_words_of_held_out_tasks():
    env = Household(num_train=48, max_errands=2)
    known = set(" ".join(env.corpus()).replace(".", " ").replace(",", " ").split())
    for task in env.tasks("test"):
        world, errands = build(**task.data)
        names = [*world.things, *world.receptacles, *world.lamps]
        words = " ".join([*names, *(errand.text for errand in errands)]).lower().split()
        assert set(words) <= known


def test_pitfall_31_an_episode_leaves_nothing_behind():
    env = Household()
    one, other = env.tasks("test")[:2]
    first = env.reset(options={"task": one})
    for action in env.expert_plan():
        env.step(action)
    env.reset(options={"task": other})
    env.step(env.expert_plan()[0])
    assert env.reset(options={"task": one}) == first


def test_it_passes_the_conformance_check():
    report = check_env("household", num_tasks=4)
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kinds": ["heet"]}, "unknown kind of errand 'heet' .did you mean 'heat'"),
        ({"kinds": []}, "kinds is empty"),
        ({"min_errands": 0}, "min_errands must be a whole number from 1 to 8, got 0"),
        ({"min_errands": 4, "max_errands": 3}, "max_errands must be a whole number from 4 to 8"),
        ({"rooms": 5}, "rooms must be a whole number from 1 to 4, got 5"),
        ({"reward": "sucess"}, "reward must be one of success, progress, got 'sucess' .did you me"),
        ({"expert": "serch"}, "expert must be one of direct, search, got 'serch' .did you mean"),
        ({"num_test": 0}, "num_test must be a whole number from 1"),
    ],
)
def test_wrong_parameters_are_refused(params: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        Household(**params)


def test_more_tasks_than_there_are_is_an_error_that_says_which():
    env = Household(kinds=["examine"], max_errands=1, copies=1, clutter=0, num_train=5_000)
    with pytest.raises(UserError, match="too few different tasks of 1 errands of kind 'examine'"):
        env.tasks("train")
