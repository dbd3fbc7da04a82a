"""What every engine keeps to: tokens, stops, limits, versions, parallel sessions."""

import asyncio

import pytest

from scalinginter.engine.scripted import ScriptedEngine
from scalinginter.engine.sglang.client import SGLangEngine
from scalinginter.types import FinishReason

STOP = 60
EVERYTHING = frozenset(range(300))  # whatever is drawn is a stop id


def scripted():
    return ScriptedEngine([[5, STOP, 6, 7, 8, 9], [11, 12, 13, 14, STOP]], max_context=64)


SGLANG = pytest.param(
    "sglang", marks=[pytest.mark.xdist_group("sglang"), pytest.mark.timeout(1000)]
)


@pytest.fixture(params=["scripted", "packed", "recompute", SGLANG])
def engine(request, make_engine):
    if request.param == "sglang":
        return request.getfixturevalue("sglang_engine")
    if request.param == "scripted":
        return scripted()
    return make_engine(packed=request.param == "packed", max_context=64)


def test_an_answer_has_as_many_tokens_as_asked_for(engine, ask, request_of):
    (completion,) = ask(engine, request_of([1, 2], new=3))
    assert (len(completion.token_ids), completion.finish) == (3, FinishReason.LENGTH)


def test_a_stop_id_ends_the_answer_and_is_its_last_id(engine, ask, request_of):
    (completion,) = ask(engine, request_of([1, 2], new=6, stop_ids=EVERYTHING))
    assert (len(completion.token_ids), completion.finish) == (1, FinishReason.STOP)


def test_an_answer_may_end_by_stop_on_its_last_allowed_token(engine, ask, request_of):
    (completion,) = ask(engine, request_of([1, 2], new=1, stop_ids=EVERYTHING))
    assert completion.finish == FinishReason.STOP


def test_pitfall_04_an_answer_cut_by_length_gets_no_stop_id(engine, ask, request_of):
    request = request_of([1, 2], new=1, stop_ids=frozenset([STOP]), temperature=0.0)
    (completion,) = ask(engine, request)
    assert completion.finish == FinishReason.LENGTH
    assert STOP not in completion.token_ids


def test_a_stop_id_before_the_least_number_of_tokens_is_an_ordinary_token(engine, ask, request_of):
    (completion,) = ask(engine, request_of([1, 2], new=6, min_new_tokens=3, stop_ids=EVERYTHING))
    assert (len(completion.token_ids), completion.finish) == (3, FinishReason.STOP)


def test_pitfall_06_ids_log_probs_and_flags_have_one_length(engine, ask, request_of):
    (completion,) = ask(engine, request_of([1, 2], new=4))
    lengths = {len(completion.logprobs), len(completion.forced), len(completion.allowed)}
    assert lengths == {len(completion.token_ids)} == {4}


def test_without_a_constraint_nothing_is_forced_and_everything_allowed(engine, ask, request_of):
    (completion,) = ask(engine, request_of([1, 2], new=4))
    assert not any(completion.forced)
    assert completion.allowed == (None,) * 4


def test_answers_carry_the_version_in_force(engine, ask, request_of, run):
    first = engine.version
    (before,) = ask(engine, request_of([1, 2]))
    run(engine, engine.sync(first + 3))
    (after,) = ask(engine, request_of([1, 2], "other"))
    assert (
        (before.policy_version, after.policy_version)
        == (first, first + 3)
        == (
            first,
            engine.version,
        )
    )


def test_sessions_in_parallel_get_what_each_gets_alone(engine, ask, request_of):
    # SGLang draws by seeds under its deterministic inference only, which a CPU does not have.
    greedy = {"temperature": 0.0} if isinstance(engine, SGLangEngine) else {}
    requests = [request_of([4, i], f"s{i}", seed=i, new=5, **greedy) for i in range(6)]
    together = ask(engine, *requests)
    for i in range(6):
        engine.release(f"s{i}")
    alone = [ask(engine, request)[0] for request in reversed(requests)]
    assert [c.token_ids for c in together] == [c.token_ids for c in reversed(alone)]


def test_turns_of_many_sessions_interleave(engine, request_of, run):
    async def episode(name):
        ids = [1, 2]
        for turn in range(3):
            completion = await engine.generate(request_of(ids, name, new=2 + turn))
            ids = [*ids, *completion.token_ids, 9]
            await asyncio.sleep(0)
        return ids

    async def all_of_them():
        return await asyncio.gather(*(episode(f"s{i}") for i in range(4)))

    assert {len(ids) for ids in run(engine, all_of_them())} == {2 + 2 + 1 + 3 + 1 + 4 + 1}


def test_a_request_over_the_context_is_refused(engine, ask, request_of):
    with pytest.raises(ValueError, match="max_context = 64"):
        ask(engine, request_of([1] * 60, new=5))


def test_a_request_that_just_fits_the_context_is_answered(engine, ask, request_of):
    assert len(ask(engine, request_of([1] * 60, new=4))[0].token_ids) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": []}, "prompt_ids is empty"),
        ({"new": 0}, "max_new_tokens = 0"),
        ({"temperature": -1.0}, "temperature = -1.0"),
        ({"temperature": float("nan")}, "temperature = nan"),
    ],
)
def test_a_senseless_request_is_refused(changes, message, engine, ask, request_of):
    with pytest.raises(ValueError, match=message):
        ask(engine, request_of(**({"prompt": [1]} | changes)))


def test_requests_and_tokens_are_counted(engine, ask, request_of):
    before = engine.stats.requests, engine.stats.generated_tokens
    ask(engine, request_of([1], "a", new=2), request_of([2], "b", new=3))
    after = engine.stats.requests, engine.stats.generated_tokens
    assert (after[0] - before[0], after[1] - before[1]) == (2, 5)


@pytest.mark.parametrize("kind", ["scripted", "packed"])
def test_closing_an_engine_twice_is_fine(kind, make_engine):
    engine = scripted() if kind == "scripted" else make_engine()

    async def close():
        await engine.aclose()
        await engine.aclose()

    asyncio.run(close())
