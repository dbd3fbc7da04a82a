"""The scripted engine says what its script says, or says why it cannot."""

import pytest

from scalinginter.chat.constraint import TokenTrie
from scalinginter.engine.scripted import ScriptedEngine
from scalinginter.types import FinishReason

STOP = 60


def answers(engine, ask, request_of, sessions):
    requests = [request_of([1], name, new=9, stop_ids=frozenset([STOP])) for name in sessions]
    return [ask(engine, request)[0].token_ids for request in requests]


def test_every_session_goes_through_the_script_on_its_own(ask, request_of):
    engine = ScriptedEngine([[5, STOP], [6, STOP]])
    said = answers(engine, ask, request_of, ["a", "a", "b", "a"])
    assert said == [(5, STOP), (6, STOP), (5, STOP), (5, STOP)]


def test_a_released_session_starts_the_script_again(ask, request_of):
    engine = ScriptedEngine([[5, STOP], [6, STOP]])
    answers(engine, ask, request_of, ["a"])
    engine.release("a")
    assert answers(engine, ask, request_of, ["a"]) == [(5, STOP)]


def test_text_is_encoded_and_ended_with_a_stop_id(ask, request_of):
    engine = ScriptedEngine(["abc"], encode=lambda text: [ord(c) - 96 for c in text])
    assert answers(engine, ask, request_of, ["a"]) == [(1, 2, 3, STOP)]


def test_a_function_may_answer_from_the_request(ask, request_of):
    engine = ScriptedEngine(lambda request: [request.prompt_ids[-1] + 1, STOP])
    assert answers(engine, ask, request_of, ["a"]) == [(2, STOP)]


def test_a_script_is_certain_of_what_it_says(ask, request_of):
    (completion,) = ask(ScriptedEngine([[5, 6]]), request_of([1], new=2))
    assert (completion.logprobs, completion.finish) == ((0.0, 0.0), FinishReason.LENGTH)


def test_the_script_says_which_ids_a_constraint_forced(ask, request_of):
    trie = TokenTrie.from_sequences([[5, 6, STOP], [7, STOP]])
    engine = ScriptedEngine([[5, 6, STOP]])
    (completion,) = ask(engine, request_of([1], new=9, stop_ids=frozenset([STOP]), constraint=trie))
    assert completion.token_ids == (5, 6, STOP)
    assert completion.forced == (False, True, True)
    assert completion.allowed == ((5, 7), (6,), (STOP,))


@pytest.mark.parametrize("script", [[8, STOP], [5, 8, STOP]])
def test_a_script_that_the_constraint_forbids_is_refused(script, ask, request_of):
    trie = TokenTrie.from_sequences([[5, 6, STOP], [7, STOP]])
    with pytest.raises(ValueError, match="forbids the scripted answer"):
        ask(
            ScriptedEngine([script]),
            request_of([1], new=9, stop_ids=frozenset([STOP]), constraint=trie),
        )


def test_a_script_shorter_than_what_is_asked_for_is_refused(ask, request_of):
    with pytest.raises(ValueError, match="has 2 ids"):
        ask(ScriptedEngine([[5, 6]]), request_of([1], new=3))


def test_an_empty_script_is_refused():
    with pytest.raises(ValueError, match="script is empty"):
        ScriptedEngine([])


def test_text_without_an_encoder_is_refused(ask, request_of):
    with pytest.raises(ValueError, match="pass encode"):
        ask(ScriptedEngine(["look"]), request_of([1]))
