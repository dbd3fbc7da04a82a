"""The client of AgentRL's worker API against the worker of the package `agentrl-worker`."""

import asyncio
import http.client
import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from environments.remote.agentrl_messages import assistant_message, tools_of
from scalinginter.env.pool import EnvPool
from scalinginter.env.registry import make
from scalinginter.errors import EnvironmentFailure, UserError

HERE = Path(__file__).parent
CONCURRENCY = 3


def _has_worker():
    try:
        return importlib.util.find_spec("agentrl.worker") is not None
    except ModuleNotFoundError:
        return False


needs_worker = pytest.mark.skipif(
    not _has_worker(), reason="needs the package agentrl-worker: pip install '.[services]'"
)


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """The url of a worker that serves the corridor."""
    config = tmp_path_factory.mktemp("agentrl") / "tasks.yaml"
    parameters = {"concurrency": CONCURRENCY}
    task = {"module": "agentrl_corridor.Corridor", "parameters": parameters}
    config.write_text(yaml.safe_dump({"corridor": task}))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    arguments = ["corridor", "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    nowhere = "http://127.0.0.1:9/api"  # no controller: its heartbeats fail, and it goes on
    process = subprocess.Popen(
        [sys.executable, "-m", "agentrl.worker", *arguments, "--controller", nowhere],
        env=os.environ | {"PYTHONPATH": str(HERE)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 120
    while not _answers(port):
        assert process.poll() is None, "the worker did not start"
        assert time.monotonic() < end, "the worker takes too long to start"
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}/api"
    process.kill()
    process.wait()


def _answers(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/api/worker_status")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.fixture
def corridor(worker):
    """A client; task `train/i` has i + 1 cells."""
    client = make("agentrl", url=worker)
    yield client
    client.close()


def _walk(env, direction="on", **arguments):
    tool = env.tools()[0]
    values = {"direction": direction, "cells": "", "note": "", **arguments}
    action = tool.template
    for name, value in values.items():
        action = action.replace(f"{{{name}}}", str(value))
    return env.step(action)


@needs_worker
def test_the_samples_are_split_and_the_index_for_custom_tasks_is_left_out(corridor):
    found = {s: [t.data["index"] for t in corridor.tasks(s)] for s in ("train", "validation")}
    assert found == {"train": list(range(8)), "validation": [8]}


@needs_worker
def test_the_system_message_is_the_instructions_and_the_tools_are_the_workers(corridor):
    assert corridor.instructions == "Walk to the end."
    assert [(t.name, t.template) for t in corridor.tools()] == [
        ("walk", "walk\ndirection: {direction}\ncells: {cells}\nnote: {note}")
    ]


@needs_worker
def test_an_episode_is_played_through_tool_calls_and_its_rewards_sum_to_one(corridor):
    text, _ = corridor.reset(options={"task": corridor.tasks("train")[3]})
    answers = [_walk(corridor, cells=2, note="a: b\nc"), _walk(corridor, cells=2)]
    assert text == "4 to go"
    assert answers == [
        ("2 to go; note 'a: b\\nc'", 0.5, False, False, {"success": False}),
        ("arrived", 0.5, True, False, {"success": True}),
    ]


@needs_worker
def test_text_that_is_no_call_is_sent_as_text(corridor):
    corridor.reset(options={"task": corridor.tasks("train")[3]})
    assert corridor.step("walk on")[0] == "you said 'walk on'"


@needs_worker
@pytest.mark.parametrize(
    ("words", "flags"), [("limit", (False, True)), ("nonsense", (True, False))]
)
def test_what_ends_a_sample_decides_between_terminated_and_truncated(corridor, words, flags):
    corridor.reset(options={"task": corridor.tasks("train")[3]})
    answer = corridor.step(words)
    assert (answer[2:4], answer[4]["success"]) == (flags, False)


@needs_worker
def test_pitfall_13_an_error_of_the_task_is_a_failure_and_not_a_reward(corridor):
    corridor.reset(options={"task": corridor.tasks("train")[3]})
    with pytest.raises(EnvironmentFailure, match="task error"):
        corridor.step("crash")


@needs_worker
def test_pitfall_31_a_reset_cancels_the_sample_before_it_and_starts_afresh(corridor):
    task = corridor.tasks("train")[3]
    texts = []
    for _ in range(2 * CONCURRENCY):  # more than the worker has places
        texts.append(corridor.reset(options={"task": task})[0])
        texts.append(_walk(corridor)[0])
    assert texts == ["4 to go", "3 to go; note None"] * (2 * CONCURRENCY)


@needs_worker
def test_a_full_worker_is_a_failure_that_is_tried_again(worker):
    clients = [make("agentrl", url=worker) for _ in range(CONCURRENCY + 1)]
    task = clients[0].tasks("train")[3]
    for client in clients[:-1]:
        client.reset(options={"task": task})
    with pytest.raises(EnvironmentFailure, match="concurrency limit"):
        clients[-1].reset(options={"task": task})
    clients[0].release()
    text, _ = clients[-1].reset(options={"task": task})
    for client in clients:
        client.close()
    assert text == "4 to go"


@needs_worker
def test_the_pool_plays_episodes_of_a_worker_at_once(worker):
    task = make("agentrl", url=worker).tasks("train")[1]

    async def episode(pool):
        session = await pool.open(task, seed=0, horizon=5)
        answers = [await session.step("walk\ndirection: on") for _ in range(2)]
        await session.close()
        return [answer.reward for answer in answers], answers[-1].success

    async def scenario():
        pool = EnvPool(
            "agentrl",
            {"url": worker},
            num_workers=1,
            turn_timeout_s=60.0,
            reset_timeout_s=60.0,
            want_admissible=False,
        )
        played = await asyncio.gather(*[episode(pool) for _ in range(CONCURRENCY)])
        await pool.aclose()
        return played

    assert asyncio.run(scenario()) == [([0.5, 0.5], True)] * CONCURRENCY


def test_nobody_at_the_address_is_an_error_of_the_user():
    with pytest.raises(UserError, match=r"start a worker with: python -m agentrl\.worker"):
        make("agentrl", url="http://127.0.0.1:9/api").tasks("train")


def test_anthropics_tools_are_understood_and_numbers_arrive_as_numbers():
    schema = {"type": "object", "properties": {"k": {"type": "integer"}, "q": {"type": "string"}}}
    tools = tools_of([{"name": "find", "description": "Find.", "input_schema": schema}])
    call = assistant_message("find\nk: 3\nq: two\nlines", tools, "call_1")["tool_calls"][0]
    assert call["function"] == {"name": "find", "arguments": '{"k": 3, "q": "two\\nlines"}'}


def test_a_worker_without_tools_is_spoken_to_in_text():
    tools = tools_of(None)
    message = assistant_message("act", tools, "call_1")
    assert ([tool.name for tool in tools], message["content"]) == (["act"], "act")
