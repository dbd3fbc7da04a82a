"""The pool: faults stay where they happen, nothing leaks, nothing is left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from scalinginter.env.pool import EnvPool, EnvSession, Observation
from scalinginter.errors import EnvironmentFailure, UserError
from scalinginter.types import Task

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def faulty_environments_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


@asynccontextmanager
async def open_pool(
    name: str = "Counter",
    *,
    workers: int = 2,
    turn_s: float = 60.0,
    reset_s: float = 60.0,
    admissible: bool = False,
) -> AsyncIterator[EnvPool]:
    pool = EnvPool(
        f"faulty_environments:{name}",
        {},
        num_workers=workers,
        turn_timeout_s=turn_s,
        reset_timeout_s=reset_s,
        want_admissible=admissible,
    )
    try:
        yield pool
    finally:
        await pool.aclose()


async def start(pool: EnvPool, name: str = "t", start_at: int = 0, seed: int = 0) -> EnvSession:
    return await pool.open(Task(name, "counter", {"start": start_at}), seed=seed, horizon=9)


async def step_all(sessions: list[EnvSession], actions: list[str]) -> list[Any]:
    calls = [s.step(a) for s, a in zip(sessions, actions, strict=True)]
    return await asyncio.gather(*calls, return_exceptions=True)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that waits to be reaped has."""
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def becomes_true(condition: Callable[[], bool], within_s: float = 60.0) -> bool:
    end = time.monotonic() + within_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def run(scenario: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(scenario, 240)

    return asyncio.run(bounded())


@pytest.mark.parametrize("name", ["Counter", "InlineCounter"])
def test_an_episode_gives_instructions_first_observation_and_steps(name: str) -> None:
    async def scenario() -> list[Any]:
        async with open_pool(name, admissible=True) as pool:
            session = await start(pool, start_at=4, seed=7)
            return [session.opening.instructions, session.first, await session.step("win")]

    assert run(scenario()) == [
        "say anything",
        Observation("count 4 seed 7 horizon 9", 0.0, False, False, False, ("count", "win")),
        Observation("won", 1.0, True, False, True, None),
    ]


def test_text_of_any_kind_and_size_crosses_the_pipe_unchanged() -> None:
    texts = ["", "line\nline\r\n\0", "ünï \N{SNOWMAN} \ud800", "x" * 3_000_000]

    async def scenario() -> list[str]:
        async with open_pool(workers=1) as pool:
            session = await start(pool)
            return [(await session.step(f"echo {text}")).text for text in texts]

    assert run(scenario()) == texts


def test_admissible_actions_are_computed_only_when_wanted() -> None:
    async def scenario() -> Any:
        async with open_pool("InlineCounter", admissible=False) as pool:
            return (await start(pool)).first.admissible

    assert run(scenario()) is None


@pytest.mark.parametrize("fault", ["hang", "exit", "kill", "sys_exit", "raise oh"])
def test_pitfall_29_a_fault_ends_one_episode_and_the_other_workers_go_on(fault: str) -> None:
    async def scenario() -> tuple[list[Any], str]:
        async with open_pool(workers=2, turn_s=4.0 if fault == "hang" else 60.0) as pool:
            sessions = [await start(pool, f"t{i}") for i in range(2)]  # one on each worker
            answers = await step_all(sessions, [fault, "count"])
            later = await start(pool, start_at=5)
            return answers, (await later.step("count")).text

    answers, later = run(scenario())
    assert isinstance(answers[0], EnvironmentFailure)
    assert (answers[1].text, later) == ("count 1", "count 6")


def test_pitfall_29_a_hang_in_reset_is_a_timeout_and_the_pool_goes_on() -> None:
    async def scenario() -> str:
        async with open_pool(workers=1, reset_s=4.0) as pool:
            with pytest.raises(EnvironmentFailure, match="no answer within 4 s in reset") as info:
                await start(pool, "hang")
            assert info.value.timeout
            return (await start(pool)).first.text

    assert run(scenario()).startswith("count 0")


def test_pitfall_29_only_the_hung_episode_is_a_timeout_and_its_neighbours_are_failures() -> None:
    async def scenario() -> list[Any]:
        async with open_pool(workers=1, turn_s=0.5) as pool:
            sessions = [await start(pool, f"t{i}") for i in range(3)]
            answers = await step_all(sessions[:2], ["hang", "count"])
            return answers + await step_all(sessions[2:], ["count"])

    failures = run(scenario())
    assert [failure.timeout for failure in failures] == [True, False, False]
    assert [failure.collateral for failure in failures] == [False, True, True]


def test_pitfall_29_an_opening_that_waits_behind_a_hang_goes_to_the_replacement() -> None:
    async def scenario() -> str:
        async with open_pool(workers=1, turn_s=0.5) as pool:
            session = await start(pool)
            hang = asyncio.ensure_future(session.step("hang"))
            await asyncio.sleep(0.1)
            waiting = await start(pool, start_at=8)
            with pytest.raises(EnvironmentFailure):
                await hang
            return waiting.first.text

    assert run(scenario()).startswith("count 8")


def test_a_worker_killed_from_outside_is_replaced_before_anybody_asks() -> None:
    async def scenario() -> bool:
        async with open_pool(workers=1) as pool:
            before = int((await (await start(pool)).step("pid")).text)
            os.kill(before, signal.SIGKILL)
            while pool._workers[0].pid == before:
                await asyncio.sleep(0.01)
            after = int((await (await start(pool)).step("pid")).text)
            return after != before and is_gone(before)

    assert run(scenario())


def test_the_deadline_counts_the_call_and_not_its_waiting() -> None:
    async def scenario() -> list[Any]:
        async with open_pool(workers=1, turn_s=3.0) as pool:
            sessions = [await start(pool, f"t{i}") for i in range(4)]
            return await step_all(sessions, ["sleep 1"] * 4)

    assert [answer.text for answer in run(scenario())] == ["count 1"] * 4


def test_the_children_of_a_hung_worker_end_with_it() -> None:
    async def scenario() -> int:
        async with open_pool(workers=1, turn_s=4.0) as pool:
            session = await start(pool)
            child = int((await session.step("child")).text)
            await step_all([session], ["hang"])
            return child

    child = run(scenario())
    assert becomes_true(lambda: is_gone(child))


@pytest.mark.parametrize("name", ["Counter", "InlineCounter"])
@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("raise no such room", "ValueError: no such room .faulty_environments.py:"),
        ("sys_exit", "SystemExit: 3"),
        ("reward nan", "must be finite, got nan"),
        ("reward inf", "must be finite, got inf"),
        ("reward 1.5", "must stay in .0, 1., got 1.5"),
        ("reward -0.5", "must stay in .0, 1., got -0.5"),
        ("word much", "a reward must be a number, got str"),
    ],
)
def test_pitfall_13_a_failure_carries_what_happened(name: str, action: str, message: str) -> None:
    async def scenario() -> None:
        async with open_pool(name, workers=1) as pool:
            session = await start(pool)
            with pytest.raises(EnvironmentFailure, match=message):
                await session.step(action)

    run(scenario())


def test_pitfall_13_a_dead_worker_says_how_it_died() -> None:
    async def scenario() -> list[Any]:
        async with open_pool(workers=2) as pool:
            return await step_all([await start(pool), await start(pool)], ["exit", "kill"])

    exited, killed = (str(failure) for failure in run(scenario()))
    assert "step 'exit' (status 3)" in exited
    assert "step 'kill' (signal SIGKILL)" in killed


def test_pitfall_26_rewards_are_bounded_over_the_episode() -> None:
    async def scenario() -> None:
        async with open_pool("InlineCounter") as pool:
            session = await start(pool)
            await session.step("reward 0.6")
            with pytest.raises(EnvironmentFailure, match=r"got 1\.2"):
                await session.step("reward 0.6")

    run(scenario())


@pytest.mark.parametrize("name", ["Counter", "InlineCounter"])
def test_pitfall_31_a_reused_instance_starts_afresh(name: str) -> None:
    async def scenario() -> tuple[Observation, Observation]:
        async with open_pool(name, workers=1) as pool:
            session = await start(pool)
            first = session.first
            for action in ("count", "count", "reward 0.9"):
                await session.step(action)
            await session.close()
            again = await start(pool)
            await again.step("reward 0.9")
            return first, again.first

    first, again = run(scenario())
    assert first == again


def test_closing_twice_counts_once() -> None:
    async def scenario() -> int:
        async with open_pool(workers=2) as pool:
            session, _ = await start(pool, "a"), await start(pool, "b")
            for _ in range(9):
                await session.close()
            later = [await start(pool, f"t{i}") for i in range(4)]
            return len({(await session.step("pid")).text for session in later})

    assert run(scenario()) == 2


def test_a_cancelled_call_leaves_the_worker_usable() -> None:
    async def scenario() -> str:
        async with open_pool(workers=1) as pool:
            session = await start(pool)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.step("sleep 2"), 0.1)
            await session.close()
            assert pool.pending == 0
            return (await start(pool)).first.text

    assert run(scenario()).startswith("count 0")


def test_pending_counts_until_the_caller_has_its_answer() -> None:
    async def scenario() -> tuple[int, int]:
        async with open_pool(workers=1) as pool:
            sessions = [await start(pool, f"t{i}") for i in range(3)]
            calls = asyncio.gather(*[session.step("sleep 0.5") for session in sessions])
            await asyncio.sleep(0)
            during = pool.pending
            await calls
            return during, pool.pending

    assert run(scenario()) == (3, 0)


def test_episodes_are_spread_over_the_workers() -> None:
    async def scenario() -> list[int]:
        async with open_pool(workers=2) as pool:
            sessions = [await start(pool, f"t{i}") for i in range(6)]
            pids = [(await session.step("pid")).text for session in sessions]
            return sorted(pids.count(pid) for pid in set(pids))

    assert run(scenario()) == [3, 3]


def test_what_an_environment_prints_stays_off_the_terminal(capfd: pytest.CaptureFixture) -> None:
    async def scenario() -> str:
        async with open_pool(workers=1) as pool:
            return (await (await start(pool)).step("print noise")).text

    assert run(scenario()) == "count 1"
    assert "".join(capfd.readouterr()) == ""


def test_a_worker_imports_no_torch() -> None:
    async def scenario() -> str:
        async with open_pool(workers=1) as pool:
            return (await (await start(pool)).step("modules")).text

    assert run(scenario()) == "False"


def test_a_worker_that_cannot_start_is_a_failure_that_says_why() -> None:
    async def scenario() -> None:
        async with open_pool("BrokenFromTheStart", workers=2) as pool:
            for _ in range(2):
                with pytest.raises(EnvironmentFailure, match="RuntimeError: no licence file"):
                    await start(pool)

    run(scenario())


def test_ctrl_c_does_not_reach_the_workers() -> None:
    async def scenario() -> str:
        async with open_pool(workers=1) as pool:
            session = await start(pool)
            pid = int((await session.step("pid")).text)
            assert os.getpgid(pid) != os.getpgid(0)
            os.kill(pid, signal.SIGINT)
            return (await session.step("count")).text

    assert run(scenario()) == "count 1"


def test_aclose_ends_hung_workers_soon_and_reaps_them() -> None:
    async def scenario() -> tuple[float, list[int]]:
        async with open_pool(workers=2) as pool:
            session = await start(pool)
            hang = asyncio.ensure_future(session.step("hang"))
            await asyncio.sleep(0.1)
            pids = [worker.pid for worker in pool._workers]
            begin = time.monotonic()
            await pool.aclose()
            with pytest.raises(EnvironmentFailure, match="the pool was closed"):
                await hang
            return time.monotonic() - begin, pids

    seconds, pids = run(scenario())
    assert seconds < 30  # half a second of patience, then the kill; a turn has a minute
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_nothing_opens_after_the_end_not_even_what_was_waiting() -> None:
    async def scenario() -> list[Any]:
        async with open_pool(workers=1) as pool:
            session = await start(pool)
            calls = [asyncio.ensure_future(c) for c in (session.step("hang"), start(pool))]
            await asyncio.sleep(0.1)
            await pool.aclose()
            outcomes = await asyncio.gather(*calls, start(pool), return_exceptions=True)
            assert pool._workers == []
            return outcomes

    closed = "the pool of environments is closed"
    assert [str(error).partition(" (")[0] for error in run(scenario())] == [
        "the pool was closed",
        closed,
        closed,
    ]


ORPHANED = """
import asyncio, sys, time
sys.path.insert(0, sys.argv[1])
from scalinginter.env.pool import EnvPool
from scalinginter.types import Task

async def main():
    pool = EnvPool("faulty_environments:Counter", {}, num_workers=2, turn_timeout_s=60,
                   reset_timeout_s=60, want_admissible=False)
    session = await pool.open(Task("t", "counter"), seed=0, horizon=1)
    print(*(worker.pid for worker in pool._workers), flush=True)
    await session.step("hang")

asyncio.run(main())
"""


@pytest.fixture
def trainer() -> Iterator[subprocess.Popen]:
    command = [sys.executable, "-c", ORPHANED, str(HERE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_hung_workers_die_with_a_trainer_that_is_killed(trainer: subprocess.Popen) -> None:
    assert trainer.stdout is not None
    pids = [int(pid) for pid in trainer.stdout.readline().split()]
    trainer.kill()
    assert len(pids) == 2
    assert becomes_true(lambda: all(is_gone(pid) for pid in pids))


def test_a_pool_works_in_one_event_loop_after_another() -> None:
    pool = EnvPool(
        "faulty_environments:Counter",
        {},
        num_workers=1,
        turn_timeout_s=60,
        reset_timeout_s=60,
        want_admissible=False,
    )
    session = run(start(pool))
    text = run(session.step("count")).text
    run(pool.aclose())
    assert text == "count 1"


def test_wrong_parameters_are_refused_before_any_worker_starts() -> None:
    with pytest.raises(UserError, match="has no parameter 'sise'"):
        EnvPool(
            "faulty_environments:Counter",
            {"sise": 3},
            num_workers=1,
            turn_timeout_s=1,
            reset_timeout_s=1,
            want_admissible=False,
        )
