"""Answers under a constraint: always one of the set, with the log-probs of the masked policy."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalinginter.chat.constraint import TokenTrie
from scalinginter.types import FinishReason

STOP = 60
ANSWERS = st.sets(
    st.lists(st.integers(0, 4), min_size=0, max_size=4).map(lambda ids: (*ids, STOP)),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module")
def shared_model():
    return {}


@pytest.fixture
def constrained(request_of):
    """Return a function that makes a request whose answer must be one of `answers`."""

    def make(answers, session="s", *, new=8, seed=0, prompt=(1, 2, 3), **options):
        trie = TokenTrie.from_sequences(sorted(answers))
        return request_of(
            prompt,
            session,
            new=new,
            seed=seed,
            stop_ids=frozenset([STOP]),
            constraint=trie,
            **options,
        )

    return make


@pytest.mark.parametrize("packed", [True, False])
def test_an_answer_is_always_one_of_the_set_with_the_right_log_probs(
    packed, build_model, make_engine, ask, constrained, reference_logprobs
):
    model = build_model()
    engine = make_engine(model, packed=packed)

    @settings(max_examples=40, deadline=None)
    @given(ANSWERS, st.integers(-(2**70), 2**70))
    def check(answers, seed):
        engine.release("s")
        (completion,) = ask(engine, constrained(answers, seed=seed))
        expected = reference_logprobs(model, [1, 2, 3], completion)
        assert completion.token_ids in answers
        assert completion.finish == FinishReason.STOP
        assert completion.logprobs == pytest.approx(expected, abs=1e-4)
        for forced, allowed in zip(completion.forced, completion.allowed, strict=True):
            assert forced == (len(allowed) == 1)

    check()


def test_probabilities_of_all_answers_sum_to_one(make_engine, ask, constrained):
    answers = {(1, STOP), (2, 3, STOP), (2, 4, STOP), (2, STOP), (5, 6, 7, STOP)}
    engine = make_engine()
    requests = [constrained(answers, f"s{i}", seed=i) for i in range(200)]
    mass = {c.token_ids: math.exp(sum(c.logprobs)) for c in ask(engine, *requests)}
    assert set(mass) == answers
    assert sum(mass.values()) == pytest.approx(1, abs=1e-5)


def test_forced_ids_have_log_prob_zero_and_cost_no_pass_of_their_own(make_engine, ask, constrained):
    engine = make_engine()
    answers = {(1, 4, 4, 4, STOP), (2, 5, 5, 5, STOP)}
    (completion,) = ask(engine, constrained(answers))
    assert completion.forced == (False, True, True, True, True)
    assert completion.logprobs[1:] == (0, 0, 0, 0)
    assert completion.forwarded_tokens == 3  # the prompt, and nothing else


def test_forced_ids_before_a_choice_are_forwarded_together_with_the_prompt(
    make_engine, ask, constrained
):
    engine, passes = make_engine(), []
    engine._model.register_forward_hook(lambda *_: passes.append(1))
    (completion,) = ask(engine, constrained({(4, 4, 1, STOP), (4, 4, 2, STOP)}))
    assert completion.forced == (True, True, False, True)
    assert (completion.forwarded_tokens, len(passes)) == (3 + 2, 1)


def test_an_answer_without_a_choice_forwards_nothing(make_engine, ask, constrained):
    engine = make_engine()
    (completion,) = ask(engine, constrained({(4, 5, STOP)}))
    assert completion.token_ids == (4, 5, STOP)
    assert (completion.forwarded_tokens, engine.stats.forwarded_tokens) == (0, 0)


def test_ids_that_were_not_forwarded_go_with_the_next_turn(
    build_model, make_engine, ask, constrained, request_of, reference_logprobs
):
    model = build_model()
    engine = make_engine(model)
    (first,) = ask(engine, constrained({(1, 4, STOP), (2, 5, STOP)}))
    prompt = [1, 2, 3, *first.token_ids, 9]
    (second,) = ask(engine, request_of(prompt, new=1))
    assert (second.forwarded_tokens, second.cached_tokens) == (4, 3)
    assert second.logprobs == pytest.approx(reference_logprobs(model, prompt, second), abs=1e-4)


def test_a_limit_cuts_a_forced_chain(make_engine, ask, constrained):
    (completion,) = ask(make_engine(), constrained({(4, 5, 6, 7, STOP)}, new=3))
    assert (completion.token_ids, completion.finish) == ((4, 5, 6), FinishReason.LENGTH)


def test_greedy_answers_take_the_likeliest_allowed_id(
    build_model, make_engine, ask, constrained, reference_logprobs
):
    model, answers = build_model(), {(i, STOP) for i in range(20)}
    (greedy,) = ask(make_engine(model), constrained(answers, temperature=0.0))
    expected = reference_logprobs(model, [1, 2, 3], greedy)
    sampled = ask(make_engine(model), *(constrained(answers, f"s{i}", seed=i) for i in range(80)))
    assert greedy.logprobs == pytest.approx(expected, abs=1e-4)
    assert greedy.logprobs[0] == pytest.approx(max(c.logprobs[0] for c in sampled), abs=1e-5)


def test_a_constraint_that_runs_dry_is_refused(make_engine, ask, request_of):
    endless = TokenTrie.from_sequences([[1, 2]])  # no stop id at its end
    with pytest.raises(ValueError, match="must end with one of stop_ids"):
        ask(make_engine(), request_of([1], new=5, constraint=endless))


def test_a_least_number_of_tokens_does_not_go_with_a_constraint(make_engine, ask, constrained):
    with pytest.raises(ValueError, match="min_new_tokens"):
        ask(make_engine(), constrained({(1, STOP)}, min_new_tokens=2))
