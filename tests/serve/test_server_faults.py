"""Servers that die, hang, forget and stop; environments that hang behind them."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from environments.remote.connection import Address
from environments.remote.websocket import WebSocket
from scalinginter.env.pool import EnvPool
from scalinginter.env.registry import make
from scalinginter.errors import EnvironmentFailure, UserError

COUNTER = "faulty_environments:Counter"  # in worker processes
INLINE = "faulty_environments:InlineCounter"  # in threads


def _client(server, **params):
    return make("remote", url=server.url, step_timeout_s=120.0, **params)


def _started(server, **params):
    client = _client(server, **params)
    client.reset(options={"task": client.tasks("train")[0], "horizon": 9})
    return client


@pytest.mark.parametrize("transport", ["url", "websocket_url"])
def test_pitfall_13_a_server_killed_mid_episode_is_a_failure_and_not_a_reward(
    start_server, transport
):
    server = start_server("toy_corridor")
    client = make("remote", url=getattr(server, transport))
    client.reset()
    server.process.kill()
    server.process.wait()
    with pytest.raises(EnvironmentFailure, match=r"127\.0\.0\.1"):
        client.step("right")
    with pytest.raises(EnvironmentFailure, match="nobody listens there"):
        client.reset(options={"task": client.tasks("train")[0]})
    client.close()


def test_pitfall_29_with_two_servers_episodes_go_on_when_one_dies(start_server):
    servers = [start_server("toy_corridor") for _ in range(2)]
    params = {"url": [server.url for server in servers]}
    task = make("remote", **params).tasks("train")[0]

    async def scenario():
        pool = EnvPool(
            "remote",
            params,
            num_workers=1,
            turn_timeout_s=60.0,
            reset_timeout_s=60.0,
            want_admissible=True,
        )
        sessions = [await pool.open(task, seed=0, horizon=5) for _ in range(4)]
        servers[0].process.kill()
        servers[0].process.wait()
        steps = [session.step("left") for session in sessions]
        answers = await asyncio.gather(*steps, return_exceptions=True)
        for session in sessions:
            await session.close()
        failed = sum(isinstance(answer, EnvironmentFailure) for answer in answers)
        for _ in range(8):  # they all find the one that lives
            await pool.open(task, seed=0, horizon=5)
        await pool.aclose()
        return failed

    assert asyncio.run(scenario()) == 2


@pytest.mark.parametrize("env_id", [COUNTER, INLINE])
def test_pitfall_29_a_hung_environment_is_a_timeout_and_its_neighbours_go_on(shared_server, env_id):
    server = shared_server(env_id, "--turn-timeout-s", "4", "--workers", "2")
    hung, other = _started(server), _started(server)

    async def scenario():
        hanging = asyncio.create_task(asyncio.to_thread(hung.step, "hang"))
        answer = await asyncio.to_thread(other.step, "count")
        with pytest.raises(EnvironmentFailure, match=r"no answer within 4 s") as failure:
            await hanging
        return answer[0], failure.value.timeout

    text, timeout = asyncio.run(scenario())
    anew = _started(server)
    again = anew.step("count")[0]
    for client in (hung, other, anew):
        client.close()
    assert (text, timeout, again) == ("count 1", True, "count 1")


def test_a_slow_inline_environment_holds_up_no_other(shared_server):
    server = shared_server(INLINE)
    slow, quick = _started(server), _started(server)

    async def scenario():
        sleeping = asyncio.create_task(asyncio.to_thread(slow.step, "sleep 6"))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(quick.step, "count")
        over = sleeping.done()
        await sleeping
        return over

    assert not asyncio.run(scenario())
    slow.close()
    quick.close()


def test_a_client_does_not_wait_longer_than_its_own_limit(start_server):
    server = start_server(INLINE, "--turn-timeout-s", "60")
    client = make("remote", url=server.url, step_timeout_s=0.5)
    client.reset()
    with pytest.raises(EnvironmentFailure, match=r"no answer within 0\.5 s") as failure:
        client.step("sleep 20")
    assert failure.value.timeout
    client.close()


def test_an_exception_of_the_environment_reaches_the_client_as_a_sentence(shared_server):
    server = shared_server(INLINE)
    client = _started(server)
    with pytest.raises(EnvironmentFailure, match=r"ValueError: no such room"):
        client.step("raise no such room")
    status, answer = server.request("GET", "/health")
    assert (status, answer["sessions"]) == (200, 0)
    assert "Traceback" not in json.dumps(answer)
    client.close()


def test_episodes_that_only_shared_a_worker_are_collateral(start_server):
    server = start_server(COUNTER, "--workers", "1")
    guilty, neighbour = _started(server), _started(server)
    with pytest.raises(EnvironmentFailure) as first:
        guilty.step("exit")
    with pytest.raises(EnvironmentFailure) as second:
        neighbour.step("count")
    assert (first.value.collateral, second.value.collateral) == (False, True)
    guilty.close()
    neighbour.close()


def test_pitfall_29_an_idle_session_is_reaped_and_says_so(start_server):
    server = start_server("toy_corridor", "--lease-s", "0.4")
    key = server.open("train/l1/000000")["session"]
    end = time.monotonic() + 90
    while server.request("GET", "/health")[1]["sessions"] and time.monotonic() < end:
        time.sleep(0.1)
    status, answer = server.request("POST", f"/sessions/{key}/step", {"action": "right"})
    assert (status, "its lease of 0.4 s ran out" in answer["error"]) == (410, True)


def test_calls_renew_the_lease(start_server):
    server = start_server("toy_corridor", "--lease-s", "8")
    client = _started(server)
    for _ in range(5):
        time.sleep(2.5)
        client.step("left")
    client.close()


def test_the_sessions_of_a_websocket_end_with_it(shared_server):
    server = shared_server(INLINE)
    socket = WebSocket(Address(server.websocket_url, None, ("ws",)), "/ws", 60.0)
    for _ in range(3):
        assert json.loads(socket.exchange('{"call": "open", "task": "train/0"}', 60.0))["session"]
    before = server.request("GET", "/health")[1]["sessions"]
    socket.close()
    end = time.monotonic() + 90
    while server.request("GET", "/health")[1]["sessions"] and time.monotonic() < end:
        time.sleep(0.05)
    assert (before, server.request("GET", "/health")[1]["sessions"]) == (3, 0)


def test_two_calls_of_one_session_at_once_are_refused(shared_server):
    server = shared_server(INLINE)
    key = server.open()["session"]
    path = f"/sessions/{key}/step"

    async def scenario():
        call = ("POST", path, {"action": "sleep 5"})
        return await asyncio.gather(*[asyncio.to_thread(server.request, *call) for _ in range(2)])

    (done, _), (refused, answer) = sorted(asyncio.run(scenario()), key=lambda got: got[0])
    server.request("DELETE", f"/sessions/{key}")
    assert (done, refused, "is busy" in answer["error"]) == (200, 409, True)


def test_a_closed_session_is_released_at_the_end_of_an_episode_that_was_cut(start_server):
    server = start_server("toy_corridor", "--param", "max_length=8")
    params = {"url": server.url}
    task = make("remote", **params).tasks("train")[7]

    async def scenario():
        pool = EnvPool(
            "remote",
            params,
            num_workers=1,
            turn_timeout_s=60.0,
            reset_timeout_s=60.0,
            want_admissible=False,
        )
        for _ in range(3):
            session = await pool.open(task, seed=0, horizon=2)
            await session.step("right")
            await session.close()
        await pool.aclose()

    asyncio.run(scenario())
    end = time.monotonic() + 90
    while server.request("GET", "/health")[1]["sessions"] and time.monotonic() < end:
        time.sleep(0.05)
    assert server.request("GET", "/health")[1]["sessions"] == 0


def test_a_full_server_hands_an_episode_to_the_next(start_server):
    servers = [start_server("toy_corridor", "--max-sessions", "1") for _ in range(2)]
    urls = [server.url for server in servers]
    clients = [make("remote", url=urls) for _ in range(3)]
    clients[0].reset()
    clients[2].reset()  # its turn is the first server's, too
    with pytest.raises(EnvironmentFailure, match=r"all 1 sessions .* \(status 429\)"):
        clients[1].reset()
    for client in clients:
        client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("env_id", [COUNTER, INLINE])
def test_a_signal_stops_the_server_whatever_hangs(start_server, env_id, number):
    server = start_server(env_id, "--turn-timeout-s", "60")
    children = _children(server.process.pid)
    client = _started(server)
    children = children or _children(server.process.pid)

    async def scenario():
        hanging = asyncio.create_task(asyncio.to_thread(client.step, "hang"))
        await asyncio.sleep(0.5)
        server.process.send_signal(number)
        with pytest.raises(EnvironmentFailure):
            await hanging

    asyncio.run(scenario())
    out, err = server.process.communicate(timeout=90)
    client.close()
    assert (server.process.returncode, "Traceback" in err) == (0, False), err
    assert "Serving" in out
    assert not any(_alive(pid) for pid in children)


def test_a_corpus_that_hangs_holds_up_neither_sessions_nor_the_end(start_server):
    server = start_server("faulty_environments:HangingCorpus")

    async def scenario():
        hanging = asyncio.create_task(asyncio.to_thread(server.request, "GET", "/corpus"))
        await asyncio.sleep(0.5)
        key = (await asyncio.to_thread(server.open))["session"]
        path = f"/sessions/{key}/step"
        answer = await asyncio.to_thread(server.request, "POST", path, {"action": "count"})
        server.process.terminate()
        return answer[1]["text"], (await hanging)[0]

    text, status = asyncio.run(scenario())
    assert (text, status) == ("count 1", 502)
    server.process.communicate(timeout=90)
    assert server.process.returncode == 0


def _children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_nobody_at_the_address_is_an_error_of_the_user_that_says_what_to_start():
    with pytest.raises(UserError, match=r"start a server with: scalinginter serve-env"):
        make("remote", url="http://127.0.0.1:9").tasks("train")


def test_servers_of_different_environments_are_refused(start_server):
    servers = [start_server("toy_corridor", "--param", f"max_length={n}") for n in (2, 3)]
    client = make("remote", url=[server.url for server in servers])
    with pytest.raises(UserError, match="the servers differ in params"):
        client.tasks("train")
    client.close()


def test_a_server_of_another_kind_is_refused(agentgym_server):
    with pytest.raises(UserError, match=r"protocol|not JSON|Not Found"):
        make("remote", url=agentgym_server.url).tasks("train")
