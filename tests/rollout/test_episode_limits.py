"""Every limit is separate and has a stop reason of its own."""

import asyncio

import pytest

from scalinginter.config.schema import ChatConfig
from scalinginter.errors import EngineFailure
from scalinginter.types import StopReason


def test_an_episode_that_reaches_its_goal_is_terminated(play, spec):
    trajectory, _ = play(["right"], spec(length=3, horizon=5))
    assert (trajectory.stop, trajectory.success, len(trajectory.turns)) == ("terminated", True, 3)


def test_pitfall_12_an_episode_cut_by_the_horizon_is_truncated_and_not_terminated(play, spec):
    trajectory, _ = play(["left"], spec(length=3, horizon=4))
    assert (trajectory.stop, len(trajectory.turns)) == (StopReason.HORIZON, 4)


def test_a_goal_on_the_last_turn_counts_as_reached(play, spec):
    trajectory, _ = play(["right"], spec(length=3, horizon=3))
    assert trajectory.stop is StopReason.TERMINATED


def test_pitfall_08_generated_tokens_of_an_episode_have_a_limit_of_their_own(play, spec):
    trajectory, _ = play(["left"], spec(horizon=50), max_tokens_per_episode=7)
    assert trajectory.stop is StopReason.TOKENS
    assert trajectory.num_generated_tokens == 7


def test_pitfall_08_the_context_has_a_limit_of_its_own(play, spec):
    trajectory, _ = play(["left"], spec(horizon=50), max_context=80, max_tokens_per_turn=4)
    assert trajectory.stop is StopReason.CONTEXT


def test_pitfall_08_no_prompt_that_is_sent_leaves_less_room_than_it_asks_for(play, spec):
    _, requests = play(["left"], spec(horizon=50), max_context=80, max_tokens_per_turn=4)
    assert max(len(r.prompt_ids) + r.max_new_tokens for r in requests) <= 80


def test_pitfall_08_a_turn_has_a_limit_of_its_own(play, spec):
    trajectory, _ = play(["left left left left"], spec(horizon=2), max_tokens_per_turn=3)
    assert [len(turn.completion.token_ids) for turn in trajectory.turns] == [3, 3]


def test_answers_without_an_action_end_the_episode_where_the_recipe_says_so(play, spec):
    trajectory, _ = play([" "], spec(horizon=9), max_parse_failures=2)
    assert (trajectory.stop, len(trajectory.turns)) == (StopReason.PARSE, 2)


def test_an_answer_without_an_action_costs_a_turn_and_gets_help(play, spec):
    trajectory, _ = play([" ", "right"], spec(length=1, horizon=3))
    assert trajectory.turns[0].action is None
    assert "No action found" in trajectory.turns[0].observation
    assert trajectory.success


def test_only_answers_in_a_row_count_as_failing(play, spec):
    trajectory, _ = play([" ", "left"], spec(horizon=6), max_parse_failures=2)
    assert trajectory.stop is StopReason.HORIZON


def test_an_engine_that_fails_ends_the_episode_as_such(make_runner, spec):
    runner = make_runner(["right"])

    async def fail(request):
        raise EngineFailure("gone")

    runner.engine.generate = fail
    trajectory = asyncio.run(runner.run(spec()))
    assert (trajectory.stop, trajectory.error) == (StopReason.ENGINE_ERROR, "gone")


def test_an_episode_has_a_deadline(make_runner, spec):
    runner = make_runner(["right"], episode_timeout_s=0.05)

    async def hang(request):
        await asyncio.sleep(60)

    runner.engine.generate = hang
    assert asyncio.run(runner.run(spec())).stop is StopReason.TIMEOUT


@pytest.mark.parametrize(
    ("fault", "stop"), [("raise_on", StopReason.ENV_ERROR), ("hang_on", StopReason.TIMEOUT)]
)
def test_pitfall_13_a_failing_environment_is_a_stop_reason_and_not_a_reward(
    play, spec, fault, stop
):
    episode = spec(env="toy_faulty")
    params = {fault: [episode.task.id]}
    trajectory, _ = play(["right"], episode, env="toy_faulty", params=params, turn_timeout_s=0.5)
    assert trajectory.stop is stop


def test_the_turns_that_are_left_are_shown_where_the_recipe_says_so(play, spec, renderer):
    chat = ChatConfig(show_turns_left=True)
    _, requests = play(["left"], spec(horizon=2), chat=chat)
    assert renderer.decode(requests[1].prompt_ids).count("Turns left: 1") == 1
