"""Environments in threads: deadlines, what is abandoned, what is kept."""

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from scalinginter.env import threads
from scalinginter.env.pool import EnvPool
from scalinginter.errors import EnvironmentFailure
from scalinginter.types import Task

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def faulty_environments_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))


@asynccontextmanager
async def _pool(turn_s=60.0):
    pool = EnvPool(
        "faulty_environments:ThreadCounter",
        {},
        num_workers=1,
        turn_timeout_s=turn_s,
        reset_timeout_s=60.0,
        want_admissible=False,
    )
    try:
        yield pool
    finally:
        await pool.aclose()


async def _start(pool, name="t", start_at=0):
    return await pool.open(Task(name, "counter", {"start": start_at}), seed=0, horizon=9)


def _run(scenario):
    async def bounded():
        return await asyncio.wait_for(scenario(), 240)

    return asyncio.run(bounded())


def _names():
    return [thread.name for thread in threading.enumerate()].count("environment")


def _becomes(count, within_s=60.0):
    end = time.monotonic() + within_s
    while _names() != count and time.monotonic() < end:
        time.sleep(0.01)
    return _names()


def test_calls_of_several_episodes_run_at_the_same_time():
    async def scenario():
        async with _pool() as pool:
            sessions = [await _start(pool) for _ in range(4)]
            steps = [session.step("sleep 4") for session in sessions[:3]]
            running = asyncio.gather(*steps)
            await asyncio.sleep(0.1)
            first = (await sessions[3].step("count")).text
            early = not running.done()
            return first, early, [answer.text for answer in await running]

    assert _run(scenario) == ("count 1", True, ["count 1"] * 3)


def test_pitfall_29_a_call_that_misses_its_deadline_is_a_timeout_and_others_go_on():
    async def scenario():
        async with _pool(turn_s=3.0) as pool:
            hung, other = await _start(pool), await _start(pool)
            with pytest.raises(EnvironmentFailure, match="no answer within 3 s") as failure:
                await hung.step("sleep 8")
            await hung.close()
            again = await _start(pool, start_at=6)
            texts = (await other.step("count")).text, (await again.step("count")).text
            return failure.value.timeout, texts

    assert _run(scenario) == (True, ("count 1", "count 7"))


def test_an_abandoned_thread_ends_with_its_call_and_is_counted_no_more():
    async def scenario():
        async with _pool(turn_s=0.2) as pool:
            session = await _start(pool)
            with pytest.raises(EnvironmentFailure):
                await session.step("sleep 4")
            await session.close()
            during = len(pool._threads._abandoned)
            while pool._threads._abandoned:
                await asyncio.sleep(0.01)
            return during

    assert _run(scenario) == 1
    assert _becomes(0) == 0


def test_too_many_abandoned_threads_stop_the_pool_from_opening_more(monkeypatch):
    monkeypatch.setattr(threads, "MAX_ABANDONED", 2)

    async def scenario():
        async with _pool(turn_s=0.2) as pool:
            for _ in range(2):
                session = await _start(pool)
                with pytest.raises(EnvironmentFailure):
                    await session.step("sleep 6")
                await session.close()
            with pytest.raises(EnvironmentFailure, match=r"2 calls of .* hang in threads"):
                await _start(pool)

    _run(scenario)


def test_pitfall_31_a_thread_is_kept_for_the_next_episode_which_starts_afresh():
    async def scenario():
        async with _pool() as pool:
            texts = []
            for start_at in (0, 5, 9):
                session = await _start(pool, start_at=start_at)
                texts += [session.first.text, (await session.step("count")).text]
                await session.close()
            return texts, _names()

    assert _becomes(0) == 0  # those of the tests before
    texts, number = _run(scenario)
    assert (texts[1::2], number) == (["count 1", "count 6", "count 10"], 1)


def test_an_episode_that_is_cancelled_gives_up_its_thread():
    async def scenario():
        async with _pool() as pool:
            session = await _start(pool)
            step = asyncio.create_task(session.step("sleep 3"))
            await asyncio.sleep(0.1)
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
            await session.close()
            other = await _start(pool)
            return (await other.step("count")).text, pool.pending

    assert _run(scenario) == ("count 1", 0)


def test_closing_a_session_fails_the_call_that_still_waits():
    async def scenario():
        async with _pool() as pool:
            session = await _start(pool)
            step = asyncio.create_task(session.step("sleep 5"))
            await asyncio.sleep(0.1)
            await session.close()
            with pytest.raises(EnvironmentFailure, match="its episode was closed"):
                await step

    _run(scenario)


def test_pending_counts_calls_in_threads():
    async def scenario():
        async with _pool() as pool:
            session = await _start(pool)
            step = asyncio.create_task(session.step("sleep 2"))
            await asyncio.sleep(0.05)
            during = pool.pending
            await step
            return during, pool.pending

    assert _run(scenario) == (1, 0)


def test_after_the_end_the_threads_are_gone_and_nothing_opens():
    async def scenario():
        async with _pool() as pool:
            open_still = await _start(pool)
            await (await _start(pool)).close()
        await open_still.close()
        with pytest.raises(EnvironmentFailure, match="closed"):
            await _start(pool)

    _run(scenario)
    assert _becomes(0) == 0


@pytest.mark.parametrize("action", ["raise no such room", "sys_exit", "reward 1.5"])
def test_pitfall_13_a_failure_in_a_thread_carries_what_happened(action):
    async def scenario():
        async with _pool() as pool:
            session = await _start(pool)
            with pytest.raises(EnvironmentFailure, match=r"no such room|SystemExit|must stay in"):
                await session.step(action)

    _run(scenario)
