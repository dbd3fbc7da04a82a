"""The guard: longer horizons that do not fit are not entered, and those that blow up are left."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from scalinginter.config.guard import GuardConfig
from scalinginter.config.load import validate
from scalinginter.errors import RunFailedError
from scalinginter.horizon import Horizon
from scalinginter.train.guard import USUAL, Guard
from scalinginter.train.memory import cache_bytes, saved_bytes, shortage, update_bytes
from scalinginter.train.run import run_training
from scalinginter.types import Completion, FinishReason, StopReason, Task, Trajectory, Turn

SHORT, LONG = Horizon(4, 0), Horizon(8, 1)
CALM = {"loss/grad_norm": 0.5, "update/kl": 0.0}


def episode(num_turns, ids_per_turn):
    completion = Completion((1,), (0.0,), (False,), (None,), FinishReason.STOP, 0)
    turn = Turn(tuple(range(ids_per_turn - 1)), completion, "", None, "", 0.0)
    stop = StopReason.HORIZON
    return Trajectory(Task("t", "e"), "g", 0, 0, 4, (turn,) * num_turns, stop, False, family="e")


class Loop:
    """What the guard talks to: notes what it was told."""

    def __init__(self, short="", **config):
        self.holds, self.asked, self.said, self.saves, self.short = [], [], [], 0, short
        hold = lambda horizons, until: self.holds.append((horizons, until))  # noqa: E731
        self.guard = Guard(GuardConfig(**config), hold, self.shortage, self.said.append)

    def shortage(self, tokens):
        self.asked.append(tokens)
        return self.short

    def save(self):
        self.saves += 1
        return Path("step-000009")

    def admit(self, horizon, step):
        return self.guard.admit({"e": horizon}, step, self.save)["e"]

    def judge(self, step, finite=True, **metrics):
        return self.guard.judge(step, [episode(2, 10)], CALM | metrics, finite)

    def calm_steps_then_longer(self):
        for step in range(USUAL):
            self.admit(SHORT, step)
            self.judge(step)
        return self.admit(LONG, USUAL)


def test_pitfall_24_memory_is_asked_for_the_longest_row_at_the_next_horizon():
    loop = Loop()
    loop.calm_steps_then_longer()
    assert loop.asked == [8 * 10]


def test_pitfall_24_a_horizon_that_does_not_fit_is_not_entered():
    assert Loop(short="no room").calm_steps_then_longer() == SHORT


def test_pitfall_24_a_horizon_that_does_not_fit_is_held_back_for_a_while():
    loop = Loop(short="no room", hold_steps=7)
    loop.calm_steps_then_longer()
    assert loop.holds == [({"e": SHORT}, USUAL + 7)]


def test_pitfall_24_a_checkpoint_is_made_before_a_longer_horizon():
    loop = Loop()
    loop.calm_steps_then_longer()
    assert (loop.saves, loop.guard.pinned) == (1, "step-000009")


def test_single_turns_of_a_line_make_no_checkpoint():
    loop = Loop()
    for step, turns in enumerate([10, 11, 11, 12]):
        loop.admit(Horizon(turns), step)
    assert loop.saves == 1  # at 12, a fifth more than 10


@pytest.mark.parametrize(
    "metrics",
    [{"loss/grad_norm": 7.9e8}, {"update/kl": 3.0}, {"update/nonfinite": 1.0}],
    ids=["gradient", "kl", "nonfinite"],
)
def test_pitfall_24_what_blows_up_after_a_switch_has_to_be_taken_back(metrics):
    loop = Loop()
    loop.calm_steps_then_longer()
    assert loop.judge(USUAL, **metrics) != ""


def test_pitfall_24_after_a_rollback_the_shorter_horizon_stays():
    loop = Loop(hold_steps=7)
    loop.calm_steps_then_longer()
    loop.guard.take_back(USUAL, "blown up")
    assert loop.holds == [({"e": SHORT}, USUAL + 1 + 7)]


def test_a_large_gradient_long_after_a_switch_is_told_only():
    loop = Loop(watch_steps=2)
    loop.calm_steps_then_longer()
    assert (loop.judge(USUAL + 2, **{"loss/grad_norm": 1e6}), len(loop.said)) == ("", 1)


def test_a_gradient_twice_as_large_is_no_alarm():
    loop = Loop()
    loop.calm_steps_then_longer()
    loop.judge(USUAL, **{"loss/grad_norm": 1.0})
    assert loop.guard.metrics()["guard/alarms"] == 0


def test_weights_that_are_not_finite_are_taken_back_at_any_time():
    assert Loop().judge(0, finite=False) != ""


def test_too_many_rollbacks_end_the_run():
    loop = Loop(max_rollbacks=1)
    loop.calm_steps_then_longer()
    loop.guard.take_back(USUAL, "blown up")
    with pytest.raises(RunFailedError, match="after 1 rollbacks"):
        loop.guard.take_back(USUAL + 1, "blown up")


def test_pitfall_36_a_guard_that_was_saved_judges_as_before():
    loop, other = Loop(), Loop()
    loop.calm_steps_then_longer()
    other.guard.load_state_dict(json.loads(json.dumps(loop.guard.state_dict())))
    assert other.judge(USUAL, **{"loss/grad_norm": 1e6}) != ""


def test_the_input_of_a_layer_is_what_autograd_keeps():
    layer, states = torch.nn.Linear(4, 4), torch.ones(3, 4, requires_grad=True)
    assert saved_bytes(layer, lambda: layer(states).sum()) == 3 * 4 * 4


def test_an_update_of_twice_the_tokens_takes_twice_the_activations(tiny_policy):
    policy = tiny_policy()
    sizes = {"packed": True, "vocabulary": 29}
    gradients = 4 * sum(p.numel() for p in policy.model.parameters())
    small, large = (update_bytes(policy.model, n, **sizes) - gradients for n in (1000, 2000))
    assert large == pytest.approx(2 * small, rel=1e-6)


def test_the_cache_of_a_token_is_keys_and_values_of_every_layer(tiny_policy):
    assert cache_bytes(tiny_policy().model, 10) == 2 * 2 * 2 * 6 * 10 * 4


def test_pitfall_24_more_than_there_is_free_is_told(tiny_policy, toy_recipe):
    data = toy_recipe(rollout__max_context=2**40, guard__memory_share=0.5)
    assert "GB are free on cpu" in shortage(validate(data, "test"), tiny_policy(), 2**40)


@pytest.fixture(scope="module")
def shaky(toy_recipe):
    """A recipe whose guard is set off by any gradient above the usual."""
    return toy_recipe(
        environment__params={"max_length": 3},
        horizon={"kind": "staged", "stages": [4, 8], "at_step": [0, USUAL]},
        eval__horizon=8,
        train__learning_rate=1e-5,
        guard={"grad_norm_ratio": 1.01, "min_grad_norm": 0.0, "hold_steps": 2, "max_rollbacks": 9},
        train__num_steps=USUAL + 6,
    )


@pytest.fixture(scope="module")
def shaken(shaky, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shaken") / "run"
    assert run_training(shaky, folder, quiet=True) == 0
    return folder


def _steps(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "guard/rollbacks" in line.get("metrics", line)]


def test_pitfall_24_a_run_that_was_taken_back_goes_on_at_the_shorter_horizon(shaken):
    steps = [line.get("metrics", line) for line in _steps(shaken)]
    back = next(i for i, step in enumerate(steps) if step["guard/rollbacks"] == 1)
    turns = [step["horizon/max_turns"] for step in steps[back : back + 3]]
    assert turns == [8, 4, 4]


def test_pitfall_36_a_run_with_rollbacks_is_resumed_to_the_bit(shaky, shaken, tmp_path):
    parts = tmp_path / "parts"
    half = shaky | {"train": shaky["train"] | {"num_steps": USUAL + 3}}
    assert run_training(half, parts, quiet=True) == 0
    assert run_training(shaky, parts, resume=True, quiet=True) == 0
    last = f"checkpoints/step-{USUAL + 6:06d}/policy/model.safetensors"
    whole, resumed = (load_file(folder / last) for folder in (shaken, parts))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
