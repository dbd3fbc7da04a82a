"""`eval.py` with a model behind a service: the tables of a checkpoint, through the command line."""

import asyncio
import json
import sys

import pytest

from scalinginter.chat.formats import answer_format
from scalinginter.cli.main import main
from scalinginter.config.schema import ChatConfig, RolloutConfig
from scalinginter.env.pool import EnvPool
from scalinginter.env.registry import make
from scalinginter.rollout.episode import EpisodeRunner, EpisodeSpec
from scalinginter.rollout.record import episode_record
from scalinginter.types import StopReason

FREE = {"chat__constrain_to_admissible": False, "eval__num_tasks": 9}


@pytest.fixture
def evaluate(service, toy_file, tmp_path, capsys, monkeypatch):
    """Return a function that runs `eval` and returns its code, figures, output and errors."""
    monkeypatch.setattr(sys, "argv", ["eval.py"])

    def run(*arguments, engine=None, settings=(), **changes):
        path = toy_file(**(FREE | changes))
        engine = engine or {"kind": "openai", "base_url": service.url, "model": "small"}
        asked = [f"engine.{key}={json.dumps(value)}" for key, value in engine.items()]
        output = tmp_path / "figures.json"
        given = ["--schedule", path, "--output", output, *arguments, "--set", *asked, *settings]
        code = main(["eval", *map(str, given)])
        figures = json.loads(output.read_text()) if output.exists() else None
        shown = capsys.readouterr()
        return code, figures, shown.out, shown.err

    return run


@pytest.fixture
def play(service, with_engine):
    """Return a function that plays one corridor with the service."""

    def run(length=2, horizon=5, show_turns_left=False, **limits):
        tasks = make("toy_corridor").tasks("train")
        task = next(t for t in tasks if t.required_turns == length)
        pool = EnvPool(
            "toy_corridor",
            {},
            num_workers=1,
            turn_timeout_s=60,
            reset_timeout_s=60,
            want_admissible=False,
        )
        chat = ChatConfig(show_turns_left=show_turns_left)

        async def use(engine):
            runner = EpisodeRunner(pool, engine, None, chat, RolloutConfig(**limits))
            try:
                return await runner.run(EpisodeSpec(task, "g", 0, 1, 2, horizon, 1.0))
            finally:
                await pool.aclose()

        return with_engine(use)

    return run


def test_a_service_has_the_figures_of_a_policy_that_says_the_same(service, evaluate):
    """Right, and now and then left: both answer by what they are asked."""
    scripted = {"kind": "scripted", "script": ["right", "left", "right"]}
    said = ["right", "left", "right"]

    def answer(body):
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return service.said(said[turn % 3])

    service.answer = answer
    _, expected, *_ = evaluate("--horizon", "1,2,4", engine=scripted)
    code, figures, *_ = evaluate("--horizon", "1,2,4")
    assert code == 0
    assert 0 < expected["by_horizon"]["2"]["eval/success"] < 1
    assert figures["by_horizon"] == expected["by_horizon"]


def test_the_table_has_lengths_intervals_and_what_it_took(service, evaluate):
    _, _, out, _ = evaluate("--horizon", "2,4", "--samples", "2")
    for row in ("success, 95% from", "success, 3 turns needed", "pass@2", "reward", "turns mean"):
        assert row in out
    assert "small at http://" in out
    assert f"{len(service.bodies) - 1} answers" in out  # the first one was a trial
    assert "requests sent again" in out


def test_the_figures_name_the_model(service, evaluate):
    assert evaluate()[1]["policy"] == f"small at {service.url}"


def test_no_more_requests_run_at_once_than_the_recipe_allows(service, evaluate):
    running, most, together = set(), [], asyncio.Event()

    async def answer(number):
        running.add(number)
        most.append(len(running))
        if len(running) == 3:
            together.set()
        if number > 1:  # the first one is a trial, alone
            await asyncio.wait_for(together.wait(), 60)
            await asyncio.sleep(0.01)
        running.discard(number)
        return service.said("right")

    service.answer = lambda body: answer(len(service.bodies))
    code, *_ = evaluate(settings=["engine.max_concurrent=3"])
    assert (code, max(most)) == (0, 3)


def test_the_conversation_is_sent_whole_in_every_turn(service, play):
    play(length=2, show_turns_left=True)
    first, second = (body["messages"] for body in service.bodies)
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert second[:2] == first
    assert second[2]["content"] == "right"
    assert second[3]["content"].endswith("1 to go\nTurns left: 4")


def test_the_system_message_says_the_form_of_answers(service, play):
    play()
    told = service.bodies[0]["messages"][0]["content"]
    assert answer_format("plain", (), "toy_corridor").instructions in told


def test_an_episode_of_a_service_claims_no_ids(play):
    record = episode_record(play())
    assert all("token_ids" not in turn and "logprobs" not in turn for turn in record["turns"])
    assert [turn["counted_tokens"] for turn in record["turns"]] == [2, 2]


def test_pitfall_08_the_tokens_of_an_episode_are_those_that_the_service_counts(service, play):
    service.answer = lambda body: service.said("left")
    trajectory = play(horizon=50, max_tokens_per_episode=5)
    assert (trajectory.stop, len(trajectory.turns)) == (StopReason.TOKENS, 3)
    assert [body["max_tokens"] for body in service.bodies] == [5, 3, 1]


def test_pitfall_12_an_episode_over_the_models_context_is_truncated(service, play):
    too_long = service.refused(400, "maximum context length is 9", "context_length_exceeded")
    service.first(service.said("left"), too_long)
    trajectory = play()
    assert (trajectory.stop, len(trajectory.turns)) == (StopReason.CONTEXT, 1)


def test_pitfall_13_a_service_that_fails_ends_the_episode_as_such(service, play):
    service.first(service.said("left"), service.refused(402, "pay"))
    trajectory = play()
    assert (trajectory.stop, len(trajectory.turns)) == (StopReason.ENGINE_ERROR, 1)
    assert "HTTP 402: pay" in trajectory.error


def test_an_evaluation_that_only_fails_says_why(service, evaluate):
    service.answer = lambda body: (
        service.said("ok") if len(service.bodies) == 1 else service.refused(402, "pay")
    )
    code, _, _, error = evaluate()
    assert code == 1
    assert "every episode failed" in error
    assert "HTTP 402: pay" in error


def test_a_wrong_key_ends_an_evaluation_before_it_begins(service, evaluate):
    service.answer = lambda body: service.refused(401, "who are you")
    code, _, _, error = evaluate()
    assert (code, len(service.bodies)) == (2, 1)
    assert "who are you" in error


def test_a_checkpoint_and_a_service_are_two_models(service, tmp_path, evaluate, toy_file):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    code, _, _, error = evaluate("--checkpoint", tmp_path / "model")
    assert code == 2
    assert "names the model already, small" in error


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["engine.model=null"], "needs base_url"),
        (["engine.base_url=api.openai.com"], "must start with http:// or https://"),
        (["chat.constrain_to_admissible=true"], "cannot be held to a constraint"),
        (["engine.api_key_env=SCALINGINTER_NO_SUCH_KEY"], "is not set"),
        (["engine.kind=local"], "base_url and model belong to kind: openai"),
        (["engine.basurl=x"], "did you mean 'base_url'"),
    ],
)
def test_a_block_that_cannot_be_is_refused(service, evaluate, settings, sentence):
    code, _, _, error = evaluate(settings=settings)
    assert code == 2
    assert sentence in error


def test_a_key_in_the_place_of_its_name_is_refused_and_not_repeated(evaluate):
    code, _, _, error = evaluate(settings=["engine.api_key_env=sk-12345"])
    assert code == 2
    assert "never the key itself" in error
    assert "sk-12345" not in error


def test_training_with_a_service_is_refused(service, toy_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    engine = {"kind": "openai", "base_url": service.url, "model": "small"}
    path = toy_file(engine=engine, chat__constrain_to_admissible=False)
    code = main(["train", "--schedule", str(path), "--output", str(tmp_path / "run")])
    assert code == 2
    assert "is for evaluation only" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
