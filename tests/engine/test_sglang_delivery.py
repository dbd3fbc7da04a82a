"""Weights that travel to a real SGLang server: they arrive, or are sent again, or the run ends.

Faults are in the sending: each test that does one leaves the server with the present weights.
"""

import asyncio
import os
import signal
from pathlib import Path

import pytest
import torch

from scalinginter.config.engines import EngineConfig, LaunchConfig
from scalinginter.config.sync import SyncConfig
from scalinginter.engine.sglang.build import make_delivery, make_sglang_engine
from scalinginter.engine.sglang.launch import make_processes
from scalinginter.engine.sglang.server import ServerError
from scalinginter.engine.sglang.weights import Snapshot
from scalinginter.errors import RunFailedError
from scalinginter.model.load import save_policy

pytestmark = [pytest.mark.xdist_group("sglang"), pytest.mark.timeout(1000)]

ROOT = Path(__file__).parent.parent.parent
METHODS = ["disk", "tensor", "distributed"]


@pytest.fixture
def deliver_by(sglang_engine, tmp_path, run):
    """Return a function that makes the engine bring weights to its server in another way."""
    upkeep = sglang_engine.upkeep
    before = upkeep.delivery

    def use(method="disk", **options):
        config = EngineConfig(
            kind="sglang",
            launch=LaunchConfig(),
            request_timeout_s=60,
            sync=SyncConfig(method=method, **options),
        )
        policy = sglang_engine.policy
        vocabulary, stop_id = policy.model.config.vocab_size, policy.tokenizer.eos_token_id
        upkeep.delivery = make_delivery(config, policy, vocabulary, stop_id, tmp_path)
        return upkeep.delivery

    yield use
    run(sglang_engine, upkeep.delivery.aclose())
    upkeep.delivery = before


@pytest.fixture
def learn(sglang_engine):
    """Return a function that changes every weight of the policy a little."""

    @torch.no_grad()
    def change():
        for parameter in sglang_engine.model.parameters():
            parameter.mul_(1.03)

    return change


@pytest.fixture
def sync(sglang_engine, run, learn):
    """Return a function that changes the policy and brings it to the servers as a new version."""

    def after_a_change():
        learn()
        return run(sglang_engine, sglang_engine.sync(sglang_engine.version + 1))

    return after_a_change


class Faulty:
    """A way that does something else the first `times` times."""

    def __init__(self, way, instead, times=1):
        self.way, self.instead, self.times = way, instead, times

    async def send(self, server, snapshot, *, flush):
        if self.times > 0:
            self.times -= 1
            await self.instead(self.way, server, snapshot)
        else:
            await self.way.send(server, snapshot, flush=flush)

    async def aclose(self):
        await self.way.aclose()


async def only_the_name(way, server, snapshot):
    body = {"new_version": snapshot.name}
    await server.post("/update_weight_version", body, timeout_s=60)


async def all_but_one_tensor(way, server, snapshot):
    tensors = dict(snapshot.tensors)
    del tensors["model.layers.1.mlp.down_proj.weight"]
    cut = Snapshot(snapshot.name, tensors, snapshot.canaries)
    await way.send(server, cut, flush=True)


async def break_off(way, server, snapshot):
    await server.post("/begin_weight_update", {}, timeout_s=60)
    raise ServerError(server.url, "the sender stumbled", 500)


@pytest.mark.parametrize("method", METHODS)
def test_pitfall_33_every_tensor_is_found_on_the_server_by_its_checksum(method, deliver_by, sync):
    deliver_by(method)
    metrics = sync()
    assert metrics["sync/checksums"] == metrics["sync/tensors"] == 20  # tied: 21 names, 20 tensors


@pytest.mark.parametrize("method", METHODS)
def test_pitfall_32_the_server_computes_what_the_learner_does_after_a_sync_and_not_before(
    method, deliver_by, sync
):
    deliver_by(method)
    metrics = sync()
    assert metrics["sync/logprob_gap_max"] < 1e-3 < metrics["sync/logprob_gap_before"]


@pytest.mark.parametrize("method", METHODS)
def test_pitfall_32_no_answer_comes_from_the_cache_of_older_weights(
    method, deliver_by, sync, sglang_engine, ask, request_of, reference_logprobs
):
    deliver_by(method)
    prompt = [31, 32, 33, 34, 35]
    ask(sglang_engine, request_of(prompt, "before"))
    sync()
    (completion,) = ask(sglang_engine, request_of(prompt, "after", new=8))
    expected = reference_logprobs(sglang_engine.model, prompt, completion)
    assert completion.cached_tokens == 0
    assert completion.logprobs == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("disk", only_the_name),
        ("tensor", only_the_name),
        ("tensor", all_but_one_tensor),
        ("tensor", break_off),
        ("distributed", all_but_one_tensor),
        ("distributed", break_off),
    ],
)
def test_pitfall_33_weights_that_did_not_arrive_are_sent_again_by_disk(
    method, fault, deliver_by, sync
):
    ways = deliver_by(method).ways
    ways[method] = Faulty(ways[method], fault)
    metrics = sync()
    assert metrics["sync/repairs"] == 1
    assert metrics["sync/checksums"] == metrics["sync/tensors"]


def test_after_an_update_that_broke_off_the_next_one_goes_by_tensor_again(deliver_by, sync):
    ways = deliver_by("tensor").ways
    ways["tensor"] = Faulty(ways["tensor"], break_off)
    sync()
    assert sync()["sync/repairs"] == 0


def test_pitfall_33_a_server_that_keeps_its_old_weights_ends_the_run(
    deliver_by, sync, sglang_engine, run
):
    ways = deliver_by("disk").ways
    ways["disk"] = Faulty(ways["disk"], only_the_name, times=2)
    with pytest.raises(RunFailedError, match="20 of 20 tensors are not those of"):
        sync()
    run(sglang_engine, until_usable(sglang_engine))


def test_pitfall_32_a_server_that_computes_something_else_ends_the_run(
    deliver_by, sync, sglang_engine, run
):
    delivery = deliver_by("disk", max_logprob_gap=1e-9)
    with pytest.raises(RunFailedError, match=r"over engine\.sync\.max_logprob_gap"):
        sync()
    delivery.config = SyncConfig()
    run(sglang_engine, until_usable(sglang_engine))


async def until_usable(engine, count=1):
    async with asyncio.timeout(120):
        while len(engine.upkeep.fleet.usable) < count:
            await asyncio.sleep(0.05)


def test_what_cannot_be_told_by_checksums_is_told_by_first_rows(
    deliver_by, sync, sglang_engine, monkeypatch
):
    (server,) = sglang_engine.upkeep.fleet.servers
    monkeypatch.setattr(server, "checksums_known", False)
    monkeypatch.setattr(Snapshot, "digests", lambda self, theirs: frozenset(["of another kind"]))
    deliver_by("disk")
    metrics = sync()
    assert (metrics["sync/checksums"], metrics["sync/samples"]) == (0, 20)


def test_pitfall_33_first_rows_give_old_weights_away(deliver_by, sync, sglang_engine, monkeypatch):
    (server,) = sglang_engine.upkeep.fleet.servers
    monkeypatch.setattr(server, "checksums_known", False)
    monkeypatch.setattr(Snapshot, "digests", lambda self, theirs: frozenset(["of another kind"]))
    ways = deliver_by("disk").ways
    ways["disk"] = Faulty(ways["disk"], only_the_name)
    assert sync()["sync/repairs"] == 1


@pytest.mark.parametrize("mode", ["abort", "retract", "in_place"])
def test_an_answer_in_progress_goes_on_under_new_weights_and_says_so(
    mode, deliver_by, learn, sglang_engine, request_of, run
):
    deliver_by("tensor", pause=mode)
    old = sglang_engine.version

    async def answer_over_a_sync():
        request = request_of([41, 42], f"over {mode}", new=60)
        task = asyncio.create_task(sglang_engine.generate(request))
        (server,) = sglang_engine.upkeep.fleet.servers
        while not (server.in_flight and await is_running(server)):
            assert not task.done()
            await asyncio.sleep(0)
        learn()
        await sglang_engine.sync(old + 1)
        return await task

    completion = run(sglang_engine, answer_over_a_sync())
    versions = list(completion.token_versions)
    assert len(versions) == 60
    assert set(versions) == {old, old + 1}
    assert versions == sorted(versions)


async def is_running(server):
    loads = await server.get("/v1/loads", timeout_s=60)
    return any(load["num_running_reqs"] for load in loads["loads"])


@pytest.fixture
def second_server(sglang_python, sglang_engine, tmp_path):
    """Return the process of another server, with the policy as it is."""
    launch = LaunchConfig(command=[str(sglang_python), str(ROOT / ".ci" / "sglang_cpu.py")])
    policy = sglang_engine.policy
    save_policy(policy.model, policy.tokenizer, tmp_path / "model")
    (process,) = make_processes(
        launch, tmp_path, lambda: (tmp_path / "model", "another"), "float32", seed=1
    )
    process.start()
    yield process
    sglang_engine.runner.run(process.stop())


@pytest.fixture
def engine_of_two(sglang_engine, second_server, tmp_path):
    """Return an engine that has the common server and a second one."""
    (server,) = sglang_engine.upkeep.fleet.servers
    policy = sglang_engine.policy
    engine = make_sglang_engine(
        EngineConfig(
            kind="sglang",
            url=[server.url, second_server.url],
            start_timeout_s=900,
            health_timeout_s=20,
            request_timeout_s=10,
        ),
        policy,
        max_context=64,
        stop_id=policy.tokenizer.eos_token_id,
        constrained=None,
        seed=1,
        folder=tmp_path,
    )
    engine.runner = sglang_engine.runner
    engine.runner.run(engine.start())
    yield engine
    engine.runner.run(engine.aclose())


def test_pitfall_32_a_server_that_is_down_during_a_sync_gets_the_weights_when_it_is_back(
    engine_of_two, second_server, learn, run, ask, request_of
):
    upkeep, way = engine_of_two.upkeep, engine_of_two.upkeep.delivery.ways["disk"]
    first, second = upkeep.fleet.servers

    async def stop_the_second(_, server, snapshot):
        if server is second:
            os.killpg(second_server.pid, signal.SIGSTOP)
        await way.send(server, snapshot, flush=True)

    upkeep.delivery.ways["disk"] = Faulty(way, stop_the_second, times=2)
    learn()
    metrics = run(engine_of_two, engine_of_two.sync(1))
    (completion,) = ask(engine_of_two, request_of([5, 6]))
    os.killpg(second_server.pid, signal.SIGCONT)
    run(engine_of_two, until_usable(engine_of_two, 2))
    assert metrics["sync/servers"] == completion.policy_version == 1
    assert second.weights == first.weights == upkeep.present()
