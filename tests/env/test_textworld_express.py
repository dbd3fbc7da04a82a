"""TextWorld-Express: shipped plans solve, episodes stay apart, no Java is left behind."""

import asyncio
import importlib.util
import shutil
from pathlib import Path

import pytest
from gymnasium.error import ResetNeeded

from environments.game.textworld_express.env import TextWorldExpress
from environments.game.textworld_express.levels import LEVELS, MEASURED, chosen_levels, plans
from environments.game.textworld_express.simulator import JAVA
from scalinginter.env.check import check_env
from scalinginter.env.pool import EnvPool
from scalinginter.errors import UserError

HAS_JAVA = shutil.which("java") and importlib.util.find_spec("textworld_express")
needs_java = pytest.mark.skipif(
    not HAS_JAVA, reason="needs Java and the package textworld-express: pip install -e '.[game]'"
)


def test_every_level_has_a_plan_for_every_game():
    assert {
        level: {s: len(p) for s, p in plans()[level].items()} for level in LEVELS
    } == dict.fromkeys(LEVELS, MEASURED)


def test_an_unknown_level_names_the_nearest():
    with pytest.raises(UserError, match=r"unknown level 'coin-7'.*did you mean 'coin-"):
        chosen_levels(["coin-7"])


@needs_java
def test_it_keeps_the_contract():
    report = check_env("textworld_express", num_tasks=12)
    assert report.ok, str(report)


@needs_java
@pytest.mark.parametrize("level", LEVELS)
def test_the_plans_of_a_level_solve_it(level):
    env = TextWorldExpress(levels=[level])
    for task in env.tasks("test")[:3]:
        env.reset(options={"task": task})
        steps = [env.step(action) for action in env.expert_plan()]
        assert [step[2] for step in steps] == [False] * (task.required_turns - 1) + [True]


@needs_java
def test_two_episodes_that_take_turns_do_not_disturb_each_other():
    alone, one, two = (TextWorldExpress(levels=["cook-2"]) for _ in range(3))
    task, other = alone.tasks("train")[:2]
    alone.reset(options={"task": task})
    plan = alone.expert_plan()
    expected = [alone.step(action)[0] for action in plan]
    one.reset(options={"task": task})
    two.reset(options={"task": other})
    seen = []
    for action in plan:
        seen.append(one.step(action)[0])
        two.step("look around")
    assert seen == expected


@needs_java
def test_a_lost_game_earns_nothing_and_is_over():
    env = TextWorldExpress(levels=["simon-5"])
    env.reset(options={"task": env.tasks("train")[0]})
    right = env.expert_plan()[0]
    earned = env.step(right)[1]
    wrong = next(a for a in env.admissible_actions() if a != env.expert_plan()[1])
    _, reward, terminated, _, info = env.step(wrong)
    assert (earned + reward, terminated, info["success"]) == (0.0, True, False)
    with pytest.raises(ResetNeeded):
        env.step(right)


@needs_java
def test_the_simulator_ends_with_its_worker():
    pool = EnvPool(
        "textworld_express",
        {"levels": ["simon-2"]},
        num_workers=1,
        turn_timeout_s=60.0,
        reset_timeout_s=60.0,
        want_admissible=False,
    )

    async def play():
        session = await pool.open(
            TextWorldExpress(levels=["simon-2"]).tasks("train")[0], seed=0, horizon=2
        )
        java = [p for p in Path("/proc").glob("[0-9]*") if _is_ours(p)]
        await session.close()
        await pool.aclose()
        return java

    java = asyncio.run(play())
    assert java
    assert not [p for p in java if p.exists() and _is_ours(p) and not _ended(p)]


def _is_ours(process):
    try:
        command = (process / "cmdline").read_bytes()
    except OSError:
        return False
    pid = str(JAVA.pid or -1)
    return b"textworld-express.jar" in command and process.name != pid and not _ended(process)


def _ended(process):
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
