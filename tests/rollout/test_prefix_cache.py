"""The share of episodes' contexts that came out of the engine's cache, counted by hand."""

import pytest

from scalinginter.rollout.prefix_cache import prefix_cache_metrics
from scalinginter.types import Completion, FinishReason, StopReason, Task, Trajectory, Turn


def turn(appended, answered, cached, forked=False):
    ids = tuple(range(answered))
    completion = Completion(
        token_ids=ids,
        logprobs=(0.0,) * answered,
        forced=(False,) * answered,
        allowed=(None,) * answered,
        finish=FinishReason.STOP,
        policy_version=0,
        cached_tokens=cached,
    )
    return Turn(tuple(range(appended)), completion, "", "", "", 0.0, forked)


def episode(*turns):
    return Trajectory(Task("t", "e"), "g", 0, 0, 9, turns, StopReason.HORIZON, False)


def share(*episodes):
    return prefix_cache_metrics(episodes)["rollout/prefix_cache_share"]


def test_the_share_is_of_the_contexts_before_the_turns_after_the_first():
    """Before the second turn stand 12 ids, before the third 12 + 4."""
    assert share(episode(turn(10, 2, 8), turn(3, 1, 11), turn(5, 2, 14))) == pytest.approx(
        (11 + 14) / (12 + 16)
    )


def test_cached_tokens_are_those_of_every_turn():
    metrics = prefix_cache_metrics(
        [episode(turn(10, 2, 8), turn(3, 1, 11)), episode(turn(9, 1, 5))]
    )
    assert metrics["rollout/cached_tokens"] == 8 + 11 + 5


def test_a_cached_observation_does_not_raise_the_share_over_1():
    assert share(episode(turn(10, 2, 0), turn(3, 1, 15))) == 1.0


def test_a_new_prompt_in_the_midst_of_an_episode_has_no_context_before_it():
    assert share(episode(turn(10, 2, 0), turn(20, 1, 0, forked=True), turn(4, 1, 21))) == 1.0


def test_episodes_of_one_turn_have_no_share():
    assert "rollout/prefix_cache_share" not in prefix_cache_metrics([episode(turn(10, 2, 8))])
