"""Episodes become rows: ids, masks and log-probs exactly as the engine recorded them."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.train.batch import to_samples
from scalinginter.types import (
    Completion,
    FinishReason,
    StopReason,
    Task,
    TrainingSample,
    Trajectory,
    Turn,
)


@st.composite
def turns(draw, forked=False):
    context = draw(st.lists(st.integers(0, 99), min_size=1, max_size=5))
    ids = draw(st.lists(st.integers(0, 99), min_size=1, max_size=5))
    forced = draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
    completion = Completion(
        token_ids=tuple(ids),
        logprobs=tuple(draw(st.floats(-5, 0, width=32)) for _ in ids),
        forced=tuple(forced),
        allowed=tuple(draw(st.sampled_from([None, (i,), (i, i + 1)])) for i in ids),
        finish=FinishReason.STOP,
        policy_version=0,
    )
    is_fork = forked and draw(st.booleans())
    return Turn(tuple(context), completion, "", None, "", 0.0, is_fork)


def episode(its_turns, stop=StopReason.TERMINATED):
    return Trajectory(Task("t", "toy"), "g", 0, 0, 9, tuple(its_turns), stop, False)


def rows(its_turns):
    advantages = np.arange(1, len(its_turns) + 1, dtype=np.float32)
    return to_samples(episode(its_turns), advantages, 4)


def plain(context, ids, *, forced=None, forked=False):
    forced = forced or [False] * len(ids)
    completion = Completion(
        tuple(ids),
        tuple(-float(i) for i in ids),
        tuple(forced),
        (None,) * len(ids),
        FinishReason.LENGTH,
        0,
    )
    return Turn(tuple(context), completion, "", None, "", 0.0, forked)


@given(st.lists(turns(), min_size=1, max_size=4))
def test_pitfall_01_the_ids_of_a_row_are_those_that_passed_through_the_engine(its_turns):
    expected = [i for t in its_turns for i in (*t.context_ids, *t.completion.token_ids)]
    for row in rows(its_turns):
        assert row.ids.tolist() == expected


@given(st.lists(turns(forked=True), min_size=1, max_size=5))
def test_pitfall_03_an_id_is_trained_exactly_where_it_was_drawn(its_turns):
    drawn = [
        (token, logprob, allowed)
        for t in its_turns
        for token, logprob, forced, allowed in zip(
            t.completion.token_ids,
            t.completion.logprobs,
            t.completion.forced,
            t.completion.allowed,
            strict=True,
        )
        if not forced
    ]
    trained = [
        (int(row.ids[t]), float(row.logprobs[t]), row.allowed[t])
        for row in rows(its_turns)
        for t in np.flatnonzero(row.mask)
    ]
    assert trained == drawn


def test_pitfall_02_a_forked_turn_starts_a_new_row_with_its_whole_prompt():
    first, second = rows([plain([1, 2], [3]), plain([7, 8, 9], [4, 5], forked=True)])
    assert (first.ids.tolist(), second.ids.tolist()) == ([1, 2, 3], [7, 8, 9, 4, 5])


def test_rows_of_one_episode_share_its_number():
    assert {row.episode for row in rows([plain([1], [2]), plain([1], [2], forked=True)])} == {4}


def test_only_the_first_row_shares_the_prompt_of_its_group():
    lengths = [
        row.prefix_length for row in rows([plain([1, 2], [3]), plain([9], [4], forked=True)])
    ]
    assert lengths == [2, 0]


def test_pitfall_04_an_answer_cut_by_its_length_has_no_stop_token_to_train():
    cut, after = plain([1], [2, 3]), plain([50, 6], [7])  # 50 ends the turn: it is context
    (row,) = rows([cut, after])
    assert row.ids[row.mask].tolist() == [2, 3, 7]


def test_pitfall_05_environment_text_and_forced_ids_are_not_trained():
    (row,) = rows([plain([1], [2, 3], forced=[False, True]), plain([4, 5], [6])])
    assert row.mask.tolist() == [False, True, False, False, False, True]


def test_a_row_that_trains_nothing_is_left_out():
    assert rows([plain([1], [2], forced=[True])]) == []


def test_an_episode_that_does_not_count_has_no_rows():
    assert to_samples(episode([plain([1], [2])]), np.zeros(0, dtype=np.float32), 0) == []


def test_each_turn_carries_its_own_advantage_and_index():
    (row,) = rows([plain([1], [2]), plain([3], [4])])
    assert row.advantages[row.mask].tolist() == [1.0, 2.0]
    assert row.turn_index.tolist() == [0, 0, 1, 1]


def test_advantages_of_another_length_are_an_error():
    with pytest.raises(ValueError, match="2 advantages for 1 turns"):
        to_samples(episode([plain([1], [2])]), np.zeros(2, dtype=np.float32), 0)


@pytest.mark.parametrize("field", ["ids", "mask", "logprobs", "advantages", "turn_index"])
def test_pitfall_06_a_record_whose_fields_differ_in_length_cannot_be_made(field):
    (row,) = rows([plain([1], [2])])
    values = {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
    with pytest.raises(ValueError, match="one length"):
        TrainingSample(**(values | {field: values[field][:-1]}))
