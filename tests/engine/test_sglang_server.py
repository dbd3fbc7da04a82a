"""A real SGLang server: what it answers is what the policy would, and its failures are mended.

The tests share one server; each leaves it usable. Those that hurt it come last.
"""

import asyncio
import os
import signal
import time

import pytest
import torch

from scalinginter.chat.constraint import TokenTrie
from scalinginter.engine.sglang.versions import check_version
from scalinginter.errors import EngineFailure, UserError
from scalinginter.types import FinishReason

pytestmark = [pytest.mark.xdist_group("sglang"), pytest.mark.timeout(1000)]

SERVER_STOP = 1  # what the model's end of text is; the server ends constrained answers with it


def process_of(engine):
    return engine.upkeep.processes[0]


def server_of(engine):
    return engine.upkeep.fleet.servers[0]


def group_lives(pid):
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_log_probs_are_those_of_the_tempered_policy(
    temperature, sglang_engine, ask, request_of, reference_logprobs
):
    request = request_of([5, 6, 7], new=12, temperature=temperature)
    (completion,) = ask(sglang_engine, request)
    expected = reference_logprobs(sglang_engine.model, [5, 6, 7], completion, temperature)
    assert completion.logprobs == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("stop", [SERVER_STOP, 60])
def test_constrained_answers_have_the_log_probs_of_the_masked_policy(
    stop, sglang_engine, ask, request_of, reference_logprobs
):
    answers = [(5, 6, stop), (5, 7, 8, stop), (5, 6, 9, 9, stop), (4, stop)]
    trie = TokenTrie.from_sequences(answers)
    options = {"new": 9, "stop_ids": frozenset([stop]), "constraint": trie}
    requests = [request_of([2, 3], f"c#{i}", **options) for i in range(12)]
    for completion in ask(sglang_engine, *requests):
        expected = reference_logprobs(sglang_engine.model, [2, 3], completion)
        assert completion.token_ids in answers
        assert completion.logprobs == pytest.approx(expected, abs=1e-4)
        assert completion.forced == tuple(len(allowed) == 1 for allowed in completion.allowed)


def test_an_answer_without_a_choice_asks_no_server(sglang_engine, ask, request_of):
    trie = TokenTrie.from_sequences([(5, 6, SERVER_STOP)])
    stops = frozenset([SERVER_STOP])
    (completion,) = ask(sglang_engine, request_of([2], new=9, stop_ids=stops, constraint=trie))
    assert (completion.token_ids, completion.forwarded_tokens) == ((5, 6, SERVER_STOP), 0)


def test_a_later_turn_comes_out_of_the_cache_but_for_its_last_ids(sglang_engine, ask, request_of):
    prompt = list(range(10, 30))
    (first,) = ask(sglang_engine, request_of(prompt, "turns", new=8))
    prompt += [*first.token_ids, 9, 9]
    (second,) = ask(sglang_engine, request_of(prompt, "turns", new=8))
    assert second.cached_tokens == 20 + 8 - 1
    assert second.forwarded_tokens == 3 + 8 - 1


def test_pitfall_32_new_weights_answer_and_the_old_cache_is_gone(
    sglang_engine, ask, request_of, run, reference_logprobs
):
    prompt = [21, 22, 23, 24]
    ask(sglang_engine, request_of(prompt, "before"))
    with torch.no_grad():
        sglang_engine.model.model.layers[0].mlp.down_proj.weight.mul_(-1.5)
    run(sglang_engine, sglang_engine.sync(sglang_engine.version + 1))
    (completion,) = ask(sglang_engine, request_of(prompt, "after", new=8))
    expected = reference_logprobs(sglang_engine.model, prompt, completion)
    assert completion.cached_tokens == 0
    assert completion.logprobs == pytest.approx(expected, abs=1e-4)


def test_an_id_outside_the_vocabulary_never_reaches_the_server(sglang_engine, ask, request_of):
    with pytest.raises(ValueError, match="is not among"):
        ask(sglang_engine, request_of([5, 100_000]))


def test_a_released_session_fails_and_the_server_goes_on(sglang_engine, ask, request_of, run):
    async def give_up():
        request = request_of([5, 6], "gone", new=60)
        task = asyncio.create_task(sglang_engine.generate(request))
        while not server_of(sglang_engine).in_flight:
            await asyncio.sleep(0)
        sglang_engine.release("gone")
        await task

    with pytest.raises(EngineFailure, match="was released"):
        run(sglang_engine, give_up())
    assert ask(sglang_engine, request_of([5], new=2))[0].finish is FinishReason.LENGTH


def test_a_request_that_the_server_refuses_fails_at_once(sglang_engine, request_of, run):
    async def send():
        sglang_engine.max_context = 1 << 20
        try:
            await sglang_engine.generate(request_of([5] * 20_000, new=5))
        finally:
            sglang_engine.max_context = 64

    retries = sglang_engine.num_retries
    with pytest.raises(EngineFailure, match="HTTP 400"):
        run(sglang_engine, send())
    assert sglang_engine.num_retries == retries


def test_pitfall_32_a_server_with_other_weights_is_noticed_and_given_the_right_ones(
    sglang_engine, ask, request_of, run
):
    server, lost = server_of(sglang_engine), sglang_engine.upkeep.fleet.num_lost
    body = {"new_version": "someone-0"}
    run(sglang_engine, server.post("/update_weight_version", body, timeout_s=60))
    (completion,) = ask(sglang_engine, request_of([5, 6]))
    assert completion.policy_version == sglang_engine.version
    assert sglang_engine.upkeep.fleet.num_lost == lost + 1


def test_pitfall_35_a_hung_server_is_noticed_and_its_requests_are_asked_again(
    sglang_engine, request_of, run
):
    pid, retries = process_of(sglang_engine).pid, sglang_engine.num_retries

    async def hang():
        os.killpg(pid, signal.SIGSTOP)
        task = asyncio.create_task(sglang_engine.generate(request_of([5, 6], new=4)))
        try:
            while server_of(sglang_engine).usable:
                await asyncio.sleep(0.05)
        finally:
            os.killpg(pid, signal.SIGCONT)
        return await task

    completion = run(sglang_engine, hang())
    assert (len(completion.token_ids), sglang_engine.num_retries) == (4, retries + 1)


def test_a_killed_server_is_started_again_with_the_present_weights(
    sglang_engine, ask, request_of, reference_logprobs
):
    pid = process_of(sglang_engine).pid
    os.killpg(pid, signal.SIGKILL)
    (completion,) = ask(sglang_engine, request_of([5, 6], new=6))
    expected = reference_logprobs(sglang_engine.model, [5, 6], completion)
    assert process_of(sglang_engine).pid != pid
    assert completion.policy_version == sglang_engine.version
    assert completion.logprobs == pytest.approx(expected, abs=1e-4)


def test_no_process_of_a_server_is_left_when_it_was_stopped(sglang_engine, run):
    pid = process_of(sglang_engine).pid
    run(sglang_engine, sglang_engine.aclose())
    deadline = time.monotonic() + 120
    while group_lives(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not group_lives(pid)


@pytest.mark.parametrize("version", ["0.5.22", "0.4.9.post1", "0.6.0", "1.0"])
def test_a_version_that_is_not_supported_is_refused(version):
    with pytest.raises(UserError, match=r"supported are 0\.5\.23 and newer"):
        check_version(version, "http://x")
