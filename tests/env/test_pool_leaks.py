"""Thousands of episodes leave nothing behind: no descriptor, no thread, no process, no memory."""

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

from scalinginter.env import remote
from scalinginter.env.describe import resident_mib
from scalinginter.env.pool import EnvPool
from scalinginter.errors import EnvironmentFailure
from scalinginter.types import Task

KINDS = ("InlineCounter", "ThreadCounter", "Counter")
AT_ONCE = 64


@pytest.fixture(autouse=True)
def faulty_environments_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def held():
    """Descriptors, threads and child processes of this process."""
    gc.collect()
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(children)


async def open_at_once(pool):
    """Open as many episodes as are ever played at once: what is kept for later is there now."""
    task = Task("t", "counter", {"start": 0})
    opening = [pool.open(task, seed=0, horizon=2) for _ in range(AT_ONCE)]
    for session in await asyncio.gather(*opening):
        await session.close()


async def play(pool, count, action="win"):
    """Play `count` episodes, 64 at a time."""
    places = asyncio.Semaphore(AT_ONCE)

    async def episode():
        async with places:
            session = await pool.open(Task("t", "counter", {"start": 0}), seed=0, horizon=2)
            try:
                await session.step(action)
            except EnvironmentFailure:
                pass
            finally:
                await session.close()

    await asyncio.gather(*(episode() for _ in range(count)))


def make_pool(kind):
    return EnvPool(
        f"faulty_environments:{kind}",
        {},
        num_workers=2,
        turn_timeout_s=60.0,
        reset_timeout_s=60.0,
        want_admissible=False,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_two_thousand_episodes_hold_no_more_than_the_first_two_hundred(kind):
    async def scenario():
        pool = make_pool(kind)
        await open_at_once(pool)
        await play(pool, 200)
        before, memory = held(), resident_mib()
        await play(pool, 2000)
        after, grown = held(), resident_mib() - memory
        await pool.aclose()
        return before, after, grown

    before, after, grown = asyncio.run(scenario())
    assert after <= before
    assert grown < 16  # MiB


async def becomes(before):
    """What is held, once it is no more than `before`, or after a minute."""
    for _ in range(1200):
        if held() <= before:
            break
        await asyncio.sleep(0.05)
    return held()


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_pool_gives_everything_back(kind):
    async def scenario():
        before = held()
        pool = make_pool(kind)
        await play(pool, 300)
        await pool.aclose()
        return before, await becomes(before)  # threads end a moment after their pool

    before, after = asyncio.run(scenario())
    assert after <= before


def test_pitfall_29_a_killed_worker_that_is_slow_to_end_is_reaped_later(monkeypatch):
    monkeypatch.setattr(remote, "REAP_TIMEOUT_S", 0.0)

    async def scenario():
        before = held()
        pool = make_pool("Counter")
        await play(pool, 2)
        for worker in list(pool._workers):
            worker.kill("told to")
        await pool.aclose()
        return before, await becomes(before)

    before, after = asyncio.run(scenario())
    assert after <= before


def test_pitfall_29_workers_that_crash_again_and_again_leave_nothing_behind():
    async def scenario():
        pool = make_pool("Counter")
        await play(pool, 20)
        before = held()
        for _ in range(5):
            await play(pool, 1, action="kill")
            await play(pool, 20)
        after = held()
        await pool.aclose()
        return before, after

    before, after = asyncio.run(scenario())
    assert after <= before
