"""Batches, failures and cancellations of the local engine."""

import asyncio

import pytest
import torch

from scalinginter.errors import EngineFailure
from scalinginter.types import FinishReason


def play(engine, request_of, delays):
    """Sessions of three turns whose environments take `delays[session]` seconds a turn."""
    answers = {}

    async def episode(name, delay, busy):
        ids = [1, 2, 3]
        for turn in range(3):
            completion = await engine.generate(request_of(ids, name, new=3, seed=turn))
            answers[name, turn] = completion
            ids = [*ids, *completion.token_ids, 8]
            busy[0] += 1
            await asyncio.sleep(delay)
            busy[0] -= 1

    async def all_of_them():
        busy = [0]
        engine._busy = lambda: busy[0]
        await asyncio.gather(*(episode(name, delay, busy) for name, delay in delays.items()))

    asyncio.run(all_of_them())
    return [answers[key] for key in sorted(answers)]


def test_the_same_requests_give_the_same_bits_twice(make_engine, request_of):
    delays = {f"s{i}": 0 for i in range(5)}
    once = play(make_engine(), request_of, delays)
    twice = play(make_engine(), request_of, delays)
    assert once == twice


def test_slow_environments_change_no_batch_and_no_bit(make_engine, request_of):
    def passes_and_answers(delays):
        engine, sizes = make_engine(), []
        engine._model.register_forward_pre_hook(
            lambda _, args, kwargs: sizes.append(kwargs["input_ids"].shape[1]), with_kwargs=True
        )
        return sizes, play(engine, request_of, delays)

    even = passes_and_answers({"a": 0, "b": 0, "c": 0})
    uneven = passes_and_answers({"a": 0.01, "b": 0, "c": 0.02})
    assert even == uneven


def test_requests_that_come_together_share_their_passes(make_engine, ask, request_of):
    engine, passes = make_engine(), []
    engine._model.register_forward_hook(lambda *_: passes.append(1))
    ask(engine, *(request_of([i, 5], f"s{i}", new=4, seed=i) for i in range(10)))
    assert len(passes) == 4


def test_a_long_prompt_does_not_stall_a_running_answer(make_engine, request_of):
    engine, finished = make_engine(max_batch_tokens=4), []

    async def one(request):
        await engine.generate(request)
        finished.append(request.session)

    async def both():
        short = asyncio.create_task(one(request_of([1, 2], "short", new=6)))
        await asyncio.sleep(0)
        await asyncio.gather(short, one(request_of(range(60), "long", new=1)))

    asyncio.run(both())
    assert finished == ["short", "long"]


def test_one_session_cannot_ask_twice_at_once(make_engine, ask, request_of):
    with pytest.raises(ValueError, match="already has a request"):
        ask(make_engine(), request_of([1]), request_of([2]))


def test_a_cancelled_request_leaves_the_others_alone(make_engine, request_of):
    engine = make_engine()

    async def run():
        tasks = [
            asyncio.create_task(engine.generate(request_of([i], f"s{i}", new=5))) for i in range(3)
        ]
        await asyncio.sleep(0)
        tasks[1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        again = await engine.generate(request_of([1], "s1", new=5))
        return [type(result).__name__ for result in results], len(again.token_ids)

    kinds, length = asyncio.run(run())
    assert kinds == ["Completion", "CancelledError", "Completion"]
    assert length == 5


def test_a_session_that_is_released_while_it_answers_fails(make_engine, request_of):
    engine = make_engine()

    async def run():
        task = asyncio.create_task(engine.generate(request_of([1], new=50)))
        await asyncio.sleep(0)
        engine.release("s")
        return await task

    with pytest.raises(EngineFailure, match="released"):
        asyncio.run(run())


def test_closing_the_engine_fails_what_is_in_progress(make_engine, request_of):
    engine = make_engine()

    async def run():
        task = asyncio.create_task(engine.generate(request_of([1], new=50)))
        await asyncio.sleep(0)
        await engine.aclose()
        return await task

    with pytest.raises(EngineFailure, match="closed"):
        asyncio.run(run())


def test_pitfall_35_a_failing_pass_reaches_every_caller(make_engine, request_of):
    engine = make_engine()

    def refuse(*_):
        raise RuntimeError("out of memory")

    handle = engine._model.register_forward_pre_hook(refuse)

    async def run():
        calls = (engine.generate(request_of([i], f"s{i}")) for i in range(3))
        return await asyncio.gather(*calls, return_exceptions=True)

    failures = asyncio.run(run())
    assert [type(failure) for failure in failures] == [EngineFailure] * 3
    assert all("out of memory" in str(failure) for failure in failures)
    handle.remove()
    assert len(asyncio.run(engine.generate(request_of([1], "s1"))).token_ids) == 4


def test_weights_that_blew_up_fail_the_request_and_new_ones_recover(
    make_engine, build_model, ask, request_of, reference_logprobs
):
    model = build_model()
    engine = make_engine(model)
    with torch.no_grad():
        engine._model.model.layers[0].mlp.up_proj.weight.fill_(torch.nan)
    with pytest.raises(EngineFailure, match="not finite"):
        ask(engine, request_of([1, 2, 3]))
    engine._model.load_state_dict(model.state_dict())
    engine.set_version(1)
    (completion,) = ask(engine, request_of([1, 2], "t"))
    expected = reference_logprobs(model, [1, 2], completion)
    assert completion.logprobs == pytest.approx(expected, abs=1e-4)


def test_a_version_that_changes_during_an_answer_keeps_the_answer_whole(make_engine, request_of):
    engine = make_engine()

    async def run():
        task = asyncio.create_task(engine.generate(request_of([1, 2], new=40)))
        for _ in range(30):
            await asyncio.sleep(0)
        engine.set_version(2)
        return await task

    completion = asyncio.run(run())
    assert (len(completion.token_ids), completion.finish) == (40, FinishReason.LENGTH)
    assert completion.policy_version == 0
    assert set(completion.token_versions) == {0, 2}
    assert list(completion.token_versions) == sorted(completion.token_versions)


def test_an_answer_of_one_version_has_no_versions_per_token(make_engine, ask, request_of):
    (completion,) = ask(make_engine(), request_of([1, 2]))
    assert completion.token_versions is None


def test_pitfall_32_a_source_may_change_while_its_copy_generates(make_engine, ask, request_of):
    source = make_engine()._model
    engine = make_engine(source, source=source)
    (before,) = ask(engine, request_of([1, 2], "s", new=12))
    with torch.no_grad():
        source.lm_head.weight.mul_(-1)
    (meanwhile,) = ask(engine, request_of([1, 2], "t", new=12))
    asyncio.run(engine.sync(1))
    (after,) = ask(engine, request_of([1, 2], "u", new=12))
    (expected,) = ask(make_engine(source), request_of([1, 2], "u", new=12))
    assert before.token_ids == meanwhile.token_ids != after.token_ids
    assert (after.token_ids, after.logprobs) == (expected.token_ids, expected.logprobs)
    assert (meanwhile.policy_version, after.policy_version) == (0, 1)


def test_generation_leaves_the_training_mode_as_it_was(make_engine, ask, request_of):
    engine = make_engine()
    engine._model.train()
    modes = []
    engine._model.register_forward_hook(lambda module, *_: modes.append(module.training))
    ask(engine, request_of([1, 2], new=2))
    assert (modes, engine._model.training) == ([False, False], True)


def test_the_order_in_which_requests_arrive_changes_no_pass(make_engine, ask, request_of):
    def passes(order):
        engine, seen = make_engine(), []
        engine._model.register_forward_pre_hook(
            lambda _, args, kwargs: seen.append(kwargs["input_ids"].tolist()), with_kwargs=True
        )
        ask(engine, *(request_of([i, 5], f"s{i}", seed=i) for i in order))
        return seen

    assert passes([0, 1, 2, 3]) == passes([2, 3, 1, 0])
