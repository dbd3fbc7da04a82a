"""ScienceWorld: official splits, rewards in [0, 1], episodes apart, and no Java left behind."""

import asyncio
import importlib.util
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from environments.science.scienceworld import jvm
from environments.science.scienceworld.env import ScienceWorld
from environments.science.scienceworld.gold import gold_plan, plan_file
from environments.science.scienceworld.variations import (
    EASY,
    TASKS,
    checked_simplification,
    chosen_tasks,
    known_lengths,
    variations,
)
from scalinginter.env.base import SPLITS
from scalinginter.env.pool import EnvPool
from scalinginter.errors import UserError

HAS_JAVA = shutil.which("java") is not None and importlib.util.find_spec("scienceworld") is not None
needs_java = pytest.mark.skipif(
    not HAS_JAVA, reason="needs Java and the package scienceworld: pip install -e '.[science]'"
)
QUICK = {"tasks": ["lifespan-longest-lived"], "max_variations": 2}


@pytest.fixture(scope="module")
def plans(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A cache that the test runs of one checkout share: gold paths are slow to make."""
    folder = Path(request.config.cache.mkdir("scienceworld"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCALINGINTER_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def env(plans: Path) -> ScienceWorld:
    return ScienceWorld(**QUICK)


def _start(env: ScienceWorld, index: int = 0) -> str:
    return env.reset(options={"task": env.tasks("train")[index]})[0]


def _play(env: ScienceWorld, actions: list[str]) -> list[tuple[Any, ...]]:
    return [env.step(action) for action in actions]


# --- what needs no Java -------------------------------------------------------------------------


def test_the_thirty_tasks_have_7207_variations():
    assert (len(TASKS), sum(sum(counts) for _, *counts in TASKS.values())) == (30, 7207)


def test_the_splits_of_a_task_share_no_variation():
    for name in TASKS:
        numbers = [number for split in SPLITS for number in variations(name, split)]
        assert numbers == list(range(len(numbers)))


def test_a_task_is_named_or_numbered():
    assert chosen_tasks(["1-1", "find-plant", "10-2"]) == (
        "boil",
        "find-plant",
        "mendelian-genetics-unknown-plant",
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: chosen_tasks(["boill"]), "unknown task 'boill' .did you mean 'boil'"),
        (lambda: chosen_tasks(["11-1"]), "unknown task '11-1'"),
        (lambda: chosen_tasks([]), "tasks is empty"),
        (lambda: checked_simplification("openDoor"), "did you mean 'openDoors'"),
    ],
)
def test_wrong_names_are_refused_with_the_nearest_one(call: Any, message: str):
    with pytest.raises(UserError, match=message):
        call()


def test_simplifications_have_one_order():
    assert checked_simplification("openDoors, teleportAction") == "teleportAction,openDoors"
    assert checked_simplification("easy") == EASY


def test_measured_lengths_are_of_variations_that_exist():
    for name, lengths in known_lengths().items():
        assert set(lengths) <= {str(n) for split in SPLITS for n in variations(name, split)}
        assert all(turns >= 1 for turns in lengths.values())


def test_without_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="apt-get install default-jre-headless"):
        ScienceWorld()


# --- episodes -----------------------------------------------------------------------------------


@needs_java
def test_the_splits_are_the_simulators(env: ScienceWorld):
    _start(env)
    simulator = env._simulator
    theirs = (
        simulator.getVariationsTrain(),
        simulator.getVariationsDev(),
        simulator.getVariationsTest(),
    )
    assert [list(numbers) for numbers in theirs] == [
        list(variations("lifespan-longest-lived", split)) for split in SPLITS
    ]


@needs_java
@pytest.mark.parametrize("index", [0, 1])
def test_the_gold_path_succeeds_and_earns_one_in_all(env: ScienceWorld, index: int):
    task = env.tasks("train")[index]
    _start(env, index)
    answers = _play(env, env.expert_plan())
    assert sum(answer[1] for answer in answers) == pytest.approx(1)
    assert answers[-1][2:] == (True, False, {"success": True})
    assert len(answers) == task.required_turns


@needs_java
def test_pitfall_26_a_wrong_focus_ends_the_episode_and_takes_back_what_was_earned(
    env: ScienceWorld,
):
    _start(env)
    *way, _ = env.expert_plan()
    answers = _play(env, [*way, "focus on air"])
    assert answers[-1][2:] == (True, False, {"success": False})
    assert max(answer[1] for answer in answers) > 0
    assert sum(answer[1] for answer in answers) == 0


@needs_java
@pytest.mark.parametrize("text", ["", "xyzzy", "reset task", "żółć", "look " * 500, "look\x00"])
def test_text_that_is_no_action_costs_a_turn_and_gets_the_forms(env: ScienceWorld, text: str):
    _start(env)
    said, reward, over, _, _ = env.step(text)
    assert said.startswith("No known action matches that input. Say one of: look around")
    assert (reward, over) == (0.0, False)


@needs_java
def test_pitfall_28_the_number_of_a_list_is_accepted(env: ScienceWorld):
    _start(env)
    said = [answer[0] for answer in _play(env, ["open door", "0"])]
    assert said[0].startswith("Ambiguous request")
    assert said[1] == "The door is now open."


@needs_java
def test_pitfall_31_episodes_in_one_jvm_do_not_touch_each_other(env: ScienceWorld):
    other = ScienceWorld(**QUICK)
    _start(env)
    plan = env.expert_plan()
    alone = [_start(env), *_play(env, plan)]
    mixed = [_start(env)]
    _start(other, 1)
    for action, foreign in zip(plan, ["open door", "0", "wait", "look around"] * 9, strict=False):
        other.step(foreign)
        mixed.append(env.step(action))
    assert mixed == alone


@needs_java
def test_a_plan_in_the_cache_needs_no_simulator(env: ScienceWorld):
    _start(env)
    plan = env.expert_plan()
    assert plan_file(*env._data[:2], "").exists()
    assert gold_plan(None, *env._data) == plan


# --- the JVM ------------------------------------------------------------------------------------


def _alive(pid: int) -> bool:
    """Is it a process that still runs? A zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _ends(pid: int) -> bool:
    deadline = time.monotonic() + 90
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _alive(pid)


def _children(pid: int) -> list[int]:
    return [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdigit() and _parent(path) == pid
    ]


def _parent(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


async def _worker_and_jvm(pool: EnvPool, env: ScienceWorld) -> tuple[int, int]:
    """Open an episode; return the process ids of its worker and of the JVM in there."""
    await pool.open(env.tasks("train")[0], seed=0, horizon=9)
    (worker,) = pool._workers
    (java,) = _children(worker.pid)
    return worker.pid, java


@needs_java
@pytest.mark.parametrize("end", ["the pool is closed", "the worker is killed"])
def test_pitfall_29_the_jvm_ends_with_its_worker(env: ScienceWorld, end: str):
    async def scenario() -> int:
        pool = EnvPool(
            "scienceworld",
            QUICK,
            num_workers=1,
            turn_timeout_s=120,
            reset_timeout_s=240,
            want_admissible=False,
        )
        worker, java = await _worker_and_jvm(pool, env)
        assert _alive(java)
        if end == "the worker is killed":
            os.kill(worker, signal.SIGKILL)
        else:
            await pool.aclose()
        ended = await asyncio.to_thread(_ends, java)
        await pool.aclose()
        return ended

    assert asyncio.run(scenario())


@needs_java
def test_the_simulator_writes_into_the_cache_only(env: ScienceWorld, plans: Path):
    _start(env)
    assert Path(f"/proc/{jvm.JAVA.pid}/cwd").resolve().is_relative_to(plans.resolve())


@needs_java
def test_the_instances_of_a_process_share_one_jvm(env: ScienceWorld):
    _start(env)
    _start(ScienceWorld(**QUICK))
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in _children(os.getpid())]
    assert sum(b"scienceworld" in command for command in commands) == 1
