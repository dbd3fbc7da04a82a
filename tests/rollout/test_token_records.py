"""The ids that were sampled are the ids that are recorded, sent again and trained."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.config.schema import ChatConfig
from scalinginter.rollout.record import episode_record
from scalinginter.train.batch import to_samples

WORDS = st.sampled_from(["left", "right", "jump", "le ft", "ri", "", "right right", "<|end|>", "é"])


def rows(trajectory):
    return to_samples(trajectory, np.ones(len(trajectory.turns), np.float32), 0)


def test_pitfall_01_a_word_spelled_in_other_tokens_stays_in_those_tokens(play, spec, renderer):
    [word] = renderer.encode("right")
    spelled = [i for letter in "right" for i in renderer.encode(f"x{letter}")[-1:]]
    assert word not in spelled
    trajectory, requests = play([spelled], spec(length=2, horizon=2))
    assert list(trajectory.turns[0].completion.token_ids[:-1]) == spelled
    assert contains(requests[1].prompt_ids, spelled)


def contains(ids, part):
    return any(ids[i : i + len(part)] == part for i in range(len(ids)))


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_pitfall_02_a_turn_never_changes_the_ids_before_it(play_any, script):
    trajectory, requests = play_any(script)
    for turn, before, after in zip(trajectory.turns, requests, requests[1:], strict=False):
        known = [*before.prompt_ids, *turn.completion.token_ids]
        assert after.prompt_ids[: len(known)] == known


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_the_training_row_is_the_last_prompt_and_its_answer(play_any, script):
    trajectory, requests = play_any(script)
    whole = [*requests[-1].prompt_ids, *trajectory.turns[-1].completion.token_ids]
    [row] = rows(trajectory)
    assert row.ids.tolist() == whole


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_pitfall_03_the_mask_marks_the_ids_that_the_engine_drew_and_no_others(play_any, script):
    trajectory, requests = play_any(script)
    [row] = rows(trajectory)
    drawn = set()
    for request, turn in zip(requests, trajectory.turns, strict=True):
        start = len(request.prompt_ids)
        drawn |= set(range(start, start + len(turn.completion.token_ids)))
    assert set(np.flatnonzero(row.mask).tolist()) == drawn


def test_pitfall_04_the_stop_id_of_an_answer_that_was_cut_is_context_and_not_trained(
    play, spec, renderer
):
    trajectory, requests = play(["left left left"], spec(horizon=2), max_tokens_per_turn=2)
    [row] = rows(trajectory)
    cut_at = len(requests[0].prompt_ids) + 2
    assert row.ids[cut_at] == renderer.stop_id
    assert not row.mask[cut_at]


def test_pitfall_28_only_admissible_actions_can_be_said_under_the_constraint(play, spec):
    chat = ChatConfig(constrain_to_admissible=True)
    _, requests = play(["right"], spec(length=1), chat=chat)
    constraint = requests[0].constraint
    assert len(constraint.allowed(constraint.start)) == 2


def test_an_episode_is_one_json_record(play, spec):
    trajectory, _ = play(["left", "right"], spec(length=1, horizon=3))
    record = json.loads(json.dumps(episode_record(trajectory)))
    assert [turn["action"] for turn in record["turns"]] == ["left", "right"]
