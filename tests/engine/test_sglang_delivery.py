"""Weights that travel to a real SGLang server: they arrive, or are sent again, or the run ends.

Faults are in the sending: each test that does one leaves the server with the present weights.
"""

import asyncio

import pytest
import torch

from scalinginter.config.engines import EngineConfig, LaunchConfig
from scalinginter.config.sync import SyncConfig
from scalinginter.engine.sglang.build import make_delivery
from scalinginter.engine.sglang.server import ServerError
from scalinginter.engine.sglang.weights import Snapshot
from scalinginter.errors import RunFailedError

pytestmark = [pytest.mark.xdist_group("sglang"), pytest.mark.timeout(1000)]

METHODS = ["disk", "tensor"]


@pytest.fixture
def deliver_by(sglang_engine, tmp_path):
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
        upkeep.delivery = make_delivery(
            config, policy, 268, policy.tokenizer.eos_token_id, tmp_path
        )
        return upkeep.delivery

    yield use
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


async def until_usable(engine):
    async with asyncio.timeout(120):
        while not engine.upkeep.fleet.usable:
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
