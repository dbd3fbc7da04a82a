"""The cache forwards every distinct prefix once: counted in closed form."""

import itertools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalinginter.engine.prefix import PrefixTree
from scalinginter.engine.slots import SlotCache

PROMPT = [7, 3, 9, 4, 1, 8, 2, 6, 5, 0]


def test_a_group_forwards_its_prompt_once(make_engine, ask, request_of):
    engine = make_engine()
    ask(engine, *(request_of(PROMPT, f"s{i}", new=1, seed=i) for i in range(8)))
    assert (engine.stats.forwarded_tokens, engine.stats.cached_tokens) == (10, 70)


def test_prompts_with_a_common_beginning_forward_it_once_in_one_pass(make_engine, ask, request_of):
    engine = make_engine()
    ask(engine, *(request_of([*PROMPT, 20 + i, 30], f"s{i}", new=1) for i in range(4)))
    assert engine.stats.forwarded_tokens == 10 + 4 * 2


def test_shared_rows_of_one_pass_and_of_earlier_ones_hold_the_right_keys(
    make_engine, build_model, ask, request_of, reference_logprobs
):
    model = build_model()
    engine = make_engine(model)
    prompts = [[50], [*PROMPT, 20, 30], [*PROMPT, 21, 30], [*PROMPT, 20, 30], [*PROMPT[:4], 9]]
    late = [[*PROMPT, 21, 31, 32], [*PROMPT[:7], 40], [*PROMPT, 20, 30]]
    for wave in (prompts, late):
        requests = [request_of(p, f"{len(wave)}/{i}", new=3, seed=i) for i, p in enumerate(wave)]
        for request, completion in zip(requests, ask(engine, *requests), strict=True):
            expected = reference_logprobs(model, request.prompt_ids, completion)
            assert completion.logprobs == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_prefix_sharing_holds_when_prompts_are_cut_in_chunks(limit, make_engine, ask, request_of):
    engine = make_engine(max_batch_tokens=limit)
    ask(engine, *(request_of([*PROMPT, 20 + i % 2], f"s{i}", new=1) for i in range(6)))
    assert engine.stats.forwarded_tokens == 10 + 2


def test_a_late_session_with_a_known_prompt_forwards_its_last_token_only(
    make_engine, ask, request_of
):
    engine = make_engine()
    ask(engine, request_of(PROMPT, "first", new=1))
    (late,) = ask(engine, request_of(PROMPT, "late", new=1))
    assert (late.forwarded_tokens, late.cached_tokens) == (1, 9)


def test_a_turn_forwards_the_last_sampled_id_the_observation_and_its_own_ids(
    make_engine, ask, request_of
):
    engine = make_engine()
    (first,) = ask(engine, request_of(PROMPT, new=4))
    (second,) = ask(engine, request_of([*PROMPT, *first.token_ids, 11, 12, 13], new=5))
    assert (first.forwarded_tokens, first.cached_tokens) == (10 + 3, 0)
    assert (second.forwarded_tokens, second.cached_tokens) == (1 + 3 + 4, 10 + 3)


def test_engine_stats_are_the_sums_over_completions(make_engine, ask, request_of):
    engine = make_engine()
    done = ask(engine, *(request_of([*PROMPT, i], f"s{i}", new=2 + i) for i in range(3)))
    assert engine.stats.requests == 3
    assert engine.stats.forwarded_tokens == sum(c.forwarded_tokens for c in done)
    assert engine.stats.cached_tokens == sum(c.cached_tokens for c in done)
    assert engine.stats.generated_tokens == sum(len(c.token_ids) for c in done) == 2 + 3 + 4


def distinct_prefixes(contexts):
    return len({tuple(context[:end]) for context in contexts for end in range(1, len(context) + 1)})


def test_forwarded_tokens_are_the_distinct_prefixes_of_what_was_drawn_from(
    make_engine, ask, request_of
):
    engine = make_engine(max_batch_tokens=50)
    source = random.Random(0)
    contexts = {f"s{i}": [*PROMPT, 20 + i // 4] for i in range(12)}
    drawn_from = []
    for turn in range(4):
        requests = [
            request_of(context, name, new=source.randrange(1, 5), seed=turn, temperature=0.3)
            for name, context in contexts.items()
        ]
        for request, completion in zip(requests, ask(engine, *requests), strict=True):
            whole = [*request.prompt_ids, *completion.token_ids]
            drawn_from.append(whole[:-1])
            contexts[request.session] = [*whole, 40 + whole[-1] % 2]
    assert engine.stats.forwarded_tokens == pytest.approx(distinct_prefixes(drawn_from), rel=0.05)


@pytest.mark.parametrize("packed", [True, False])
def test_a_prompt_that_leaves_the_cached_one_keeps_the_common_part(
    packed, make_engine, build_model, ask, request_of, reference_logprobs
):
    model = build_model()
    engine = make_engine(model, packed=packed)
    ask(engine, request_of(PROMPT, new=4))
    forked = [*PROMPT[:6], 50, 51]
    (completion,) = ask(engine, request_of(forked, new=3))
    expected = reference_logprobs(model, forked, completion)
    assert completion.logprobs == pytest.approx(expected, abs=1e-4)
    assert (completion.cached_tokens, engine.forks) == ((6, 1) if packed else (0, 0))


def test_a_session_may_ask_its_prompt_again(make_engine, ask, request_of):
    engine = make_engine()
    (first,) = ask(engine, request_of(PROMPT, new=4))
    (again,) = ask(engine, request_of(PROMPT, new=4))
    assert again.logprobs == pytest.approx(first.logprobs, abs=1e-5)
    assert again.token_ids == first.token_ids


def test_a_slot_that_is_used_again_shows_nothing_of_its_last_session(
    make_engine, build_model, ask, request_of, reference_logprobs
):
    model = build_model()
    engine = make_engine(model)
    ask(engine, *(request_of([50 - i] * 90, f"long{i}", new=3) for i in range(3)))
    for i in range(3):
        engine.release(f"long{i}")
    requests = [request_of([i, 2, 3], f"short{i}", new=5) for i in range(3)]
    for request, completion in zip(requests, ask(engine, *requests), strict=True):
        expected = reference_logprobs(model, request.prompt_ids, completion)
        assert completion.logprobs == pytest.approx(expected, abs=1e-4)


def test_a_released_session_starts_from_nothing(make_engine, ask, request_of):
    engine = make_engine()
    ask(engine, request_of(PROMPT))
    engine.release("s")
    (completion,) = ask(engine, request_of(PROMPT))
    assert completion.cached_tokens == 0


def test_release_of_an_unknown_session_is_fine(make_engine):
    make_engine().release("nobody")


def test_more_sessions_than_slots_are_answered_all_the_same(make_engine, ask, request_of):
    requests = [request_of([i, i + 1], f"s{i}", seed=i) for i in range(7)]
    roomy = ask(make_engine(), *requests)
    tight = ask(make_engine(max_sessions=2), *requests)
    assert [c.token_ids for c in tight] == [c.token_ids for c in roomy]


def test_an_idle_session_that_lost_its_slot_goes_on(
    make_engine, build_model, ask, request_of, reference_logprobs
):
    model = build_model()
    engine = make_engine(model, max_sessions=1)
    (first,) = ask(engine, request_of(PROMPT, "a"))
    ask(engine, request_of([1, 2], "b"))
    prompt = [*PROMPT, *first.token_ids, 9]
    (second,) = ask(engine, request_of(prompt, "a"))
    expected = reference_logprobs(model, prompt, second)
    assert second.logprobs == pytest.approx(expected, abs=1e-4)


def test_growing_the_cache_keeps_what_it_holds():
    cache = SlotCache()
    cache.ensure(2, 10)
    keys, _ = cache.layer(0, torch.ones(1, 3, 5, 4), torch.ones(1, 3, 5, 6))
    filled = torch.randn_like(keys)
    keys.copy_(filled)
    cache.ensure(5, 200)
    grown, values = cache.layer(0, keys, keys)
    assert torch.equal(grown[: filled.shape[0], :, : filled.shape[2]], filled)
    assert (grown.shape[0] >= 5, grown.shape[2] >= 200, values.shape[3]) == (True, True, 6)


def test_a_context_that_outgrows_the_cache_keeps_its_log_probs(
    make_engine, build_model, ask, request_of, reference_logprobs
):
    model = build_model()
    (completion,) = ask(make_engine(model), request_of(PROMPT, new=150))
    expected = reference_logprobs(model, PROMPT, completion)
    assert completion.logprobs == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("packed", [True, False])
def test_pitfall_32_new_weights_drop_the_cache_and_answers_name_their_version(
    packed, make_engine, build_model, ask, request_of, reference_logprobs
):
    model, newer = build_model(seed=0), build_model(seed=1)
    engine = make_engine(model, packed=packed)
    (old,) = ask(engine, request_of(PROMPT))
    engine._model.load_state_dict(newer.state_dict())
    engine.set_version(7)
    prompt = [*PROMPT, *old.token_ids, 5]
    (new,) = ask(engine, request_of(prompt))
    assert (old.policy_version, new.policy_version, new.cached_tokens) == (0, 7, 0)
    assert new.logprobs == pytest.approx(reference_logprobs(newer, prompt, new), abs=1e-4)


SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(SEQUENCES, st.data())
def test_the_prefix_tree_holds_exactly_the_live_sequences(sequences, data):
    tree, last, live = PrefixTree(), {}, {}
    for slot, ids in enumerate(sequences):
        node, found = tree.match(tree.root, slot, ids, 0)
        known = found[-1].end if found else 0
        expected = max((shared(ids, other) for other in live.values()), default=0)
        assert known == expected
        last[slot] = tree.append(node, slot, ids[known:], 0, 0) if known < len(ids) else node
        live[slot] = ids
        if data.draw(st.booleans()):
            victim = data.draw(st.sampled_from(sorted(live)))
            keep = data.draw(st.integers(0, len(live[victim])))
            last[victim] = tree.truncate(last[victim], victim, keep)
            live[victim] = live[victim][:keep]
        for owner, node in last.items():
            assert path(node) == live[owner]
    for slot in list(live):
        tree.truncate(last[slot], slot, 0)
    assert not tree.root.children


def shared(left, right):
    equal = (a == b for a, b in zip(left, right, strict=False))
    return len(list(itertools.takewhile(bool, equal)))


def path(node):
    ids = []
    while node is not None:
        ids = [*node.tokens, *ids]
        node = node.parent
    return ids
