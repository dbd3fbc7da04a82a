"""BabyAI's expert: bounded, right, short; and the table that it measures."""

import pytest

from environments.embodied.babyai import expert
from environments.embodied.babyai.env import BabyAI
from environments.embodied.babyai.levels import make_level, table
from environments.embodied.babyai.measure import Row, measure, refusal


def test_pitfall_29_a_bot_that_plans_for_ever_is_stopped():
    with pytest.raises(expert.ExpertError, match="more than 200 changes of plan before one step"):
        expert.walk("UnlockToUnlock", 4)


@pytest.mark.parametrize("level", ["GoTo", "UnlockPickup", "PutNextLocal", "BlockedUnlockPickup"])
def test_the_faster_bot_walks_as_minigrids_own(level: str):
    from minigrid.utils.baby_ai_bot import BabyAIBot

    world = make_level(level, 3)
    original, taken, over = BabyAIBot(world), [], False
    while not over:
        taken.append(int(original.replan()))
        over = world.step(taken[-1])[2]
    assert expert.walk(level, 3) == taken


def test_a_lost_bot_is_an_expert_error():
    with pytest.raises(expert.ExpertError, match="the bot raised AssertionError"):
        expert.walk("KeyInBox", 0)


@pytest.mark.parametrize("actions", ["high_level", "primitive"])
def test_the_expert_solves_the_tasks_in_exactly_the_required_turns(actions: str):
    env = BabyAI(actions=actions)
    wrong = []
    for task in env.tasks("test")[:40]:
        env.reset(options={"task": task})
        plan = env.expert_plan() or []
        ends = []
        for action in plan:
            assert action in (env.admissible_actions() or [])
            ends.append(env.step(action)[2])
        if ends != [False] * ((task.required_turns or 0) - 1) + [True]:
            wrong.append(task.id)
    assert wrong == []


def test_no_high_level_plan_is_longer_than_the_walk():
    longer = [
        (level, seed)
        for level, row in table().turns.items()
        for seed, (high, low) in enumerate(zip(row["high_level"], row["primitive"], strict=True))
        if high > low
    ]
    assert longer == []


def test_a_walk_to_one_thing_is_one_high_level_action():
    taken = expert.walk("GoToLocal", 12)
    plan = expert.high_level_plan("GoToLocal", 12, taken)
    assert len(taken) > len(plan) == table().turns["GoToLocal"]["high_level"][12]


def test_the_table_is_what_the_command_measures():
    row = measure("PutNextLocal", 20)
    kept = table().turns["PutNextLocal"]
    assert (tuple(row.high_level), tuple(row.primitive)) == (
        kept["high_level"][:20],
        kept["primitive"][:20],
    )


def test_pitfall_25_a_start_that_a_level_repeats_is_no_task():
    row = measure("OpenRedDoor", 8)
    again = [n for n, digest in enumerate(row.digests) if digest in row.digests[:n]]
    assert again == [n for n, turns in enumerate(row.primitive) if not turns] == [5]


def test_pitfall_25_the_split_of_a_start_does_not_depend_on_its_level():
    digests = [measure(level, 3).digests for level in ("OpenDoor", "OpenDoorDebug")]
    assert digests[0] == digests[1]  # they differ in what ends the episode only
    assert table().splits["OpenDoor"] == table().splits["OpenDoorDebug"]


def test_a_level_without_enough_tasks_is_refused_with_the_reason():
    few = Row("a", [3] * 3, [3] * 3, list("abc"), {}, (0.0, 0.0))
    lost = Row("b", [0] * 9, [0] * 9, list("abcdef012"), {"the bot raised X": 9}, (0.0, 0.0))
    assert [refusal(few), refusal(lost)] == [
        "only 3 different starts on 3 seeds",
        "the expert fails on 9 of 9 seeds, 9 times because the bot raised X",
    ]


def test_a_level_that_is_drawn_again_prints_nothing(capsys: pytest.CaptureFixture[str]):
    make_level("PutNextLocal", 4)  # minigrid rejects its first draw, and would say so
    assert capsys.readouterr().out == ""
