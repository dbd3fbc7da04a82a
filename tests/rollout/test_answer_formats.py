"""Episodes answered with calls of tools."""

import pytest

from scalinginter.chat.formats import answer_format
from scalinginter.config.schema import ChatConfig
from scalinginter.env.base import ACT
from scalinginter.env.catalog import EnvCatalog
from scalinginter.rollout.demonstrations import demonstrate

MALFORMED = ["right", "<act>right", '<tool_call>{"name": "fly"}</tool_call>', "```", "{" * 300]


@pytest.mark.parametrize("form", ["tool_call", "tags"])
def test_pitfall_28_a_call_in_the_told_form_acts(play, spec, form):
    answer = answer_format(form, [ACT], "toy").write("right")
    trajectory, _ = play(
        [answer], spec(length=3), chat=ChatConfig(format=form), max_tokens_per_turn=200
    )
    assert (trajectory.success, trajectory.turns[0].action) == (True, "right")


@pytest.mark.parametrize("form", ["react", "tool_call", "tags"])
def test_every_malformed_answer_costs_one_turn_and_is_answered_with_help(play, spec, form):
    trajectory, _ = play(
        MALFORMED,
        spec(horizon=len(MALFORMED)),
        chat=ChatConfig(format=form),
        max_tokens_per_turn=400,
        max_context=4096,
    )
    assert [(t.action, len(t.observation) > 20) for t in trajectory.turns] == [(None, True)] * 5


def test_pitfall_7_the_note_on_a_second_call_stands_below_the_observation(play, spec):
    twice = "<act>right</act><act>right</act>"
    trajectory, _ = play(
        [twice], spec(length=3), chat=ChatConfig(format="tags"), max_tokens_per_turn=200
    )
    assert trajectory.turns[0].observation.endswith("calls was made: one per answer.")


@pytest.mark.parametrize("form", ["react", "tool_call", "tags"])
def test_the_expert_answers_in_the_form_of_the_recipe(renderer, form):
    env = EnvCatalog("toy_corridor", {})
    played = demonstrate(env, env.tasks("train")[:3], renderer, ChatConfig(format=form), 4096)
    form = answer_format(form, env.tools, "toy_corridor")
    assert all(form.parse(t.text.removesuffix("<|end|>")).action for p in played for t in p.turns)
