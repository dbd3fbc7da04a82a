"""Cross-policy sampling: an older policy writes a share of the turns; what it wrote is known."""

import json

import pytest
import torch

from scalinginter.train.run import run_training

CROSS = {
    "rollout__cross_policy": {"share": 0.4, "refresh_every": 3, "train": "mask"},
    "algorithm__kl_coefficient": 0.01,  # every step updates
    "train__num_steps": 5,
    "eval__every": 10,
}


def turns(run_dir, stage="train"):
    lines = map(json.loads, (run_dir / "episodes.jsonl").read_text().splitlines())
    return [(e["step"], turn) for e in lines if e["stage"] == stage for turn in e["turns"]]


@pytest.fixture(scope="module")
def masked(tmp_path_factory, toy_recipe):
    run_dir = tmp_path_factory.mktemp("cross") / "run"
    assert run_training(toy_recipe(**CROSS), run_dir, quiet=True) == 0
    return run_dir


@pytest.mark.slow
def test_the_older_policy_writes_its_share_of_the_turns(masked):
    written = [turn.get("cross_policy", False) for _, turn in turns(masked)]
    assert 0.25 < sum(written) / len(written) < 0.55


@pytest.mark.slow
def test_the_older_policy_is_refreshed_every_so_many_steps(masked):
    older = {(step, t["version"]) for step, t in turns(masked) if t.get("cross_policy")}
    assert older == {(1, 0), (2, 0), (3, 0), (4, 3), (5, 3)}


@pytest.mark.slow
def test_an_evaluation_is_the_present_policys_alone(masked):
    assert not any(turn.get("cross_policy") for _, turn in turns(masked, "eval"))


@pytest.mark.slow
def test_its_share_and_its_age_are_logged(masked, numbers):
    trained = [metrics for _, stage, metrics in numbers(masked) if stage == "train"]
    assert [metrics["cross_policy/lag_mean"] for metrics in trained] == [0, 1, 2, 0, 1]
    assert all(0 < metrics["cross_policy/share"] < 1 for metrics in trained)


@pytest.mark.slow
def test_masked_turns_are_not_trained_and_corrected_ones_are(tmp_path, toy_recipe, masked, numbers):
    blocks = CROSS | {"train__num_steps": 1}
    blocks["rollout__cross_policy"] = CROSS["rollout__cross_policy"] | {"train": "correct"}
    assert run_training(toy_recipe(**blocks), tmp_path / "run", quiet=True) == 0
    tokens = [
        next(m["update/tokens"] for _, stage, m in numbers(run) if stage == "train")
        for run in (masked, tmp_path / "run")
    ]
    assert tokens[0] < tokens[1]


@pytest.mark.slow
def test_pitfall_36_a_resumed_run_goes_on_with_the_same_older_policy(
    tmp_path, toy_recipe, masked, numbers
):
    half = toy_recipe(**(CROSS | {"train__num_steps": 2}))
    assert run_training(half, tmp_path / "run", quiet=True) == 0
    assert run_training(toy_recipe(**CROSS), tmp_path / "run", resume=True, quiet=True) == 0
    resumed = numbers(tmp_path / "run")
    assert [line for line in resumed if line in numbers(masked)] == numbers(masked)


def test_a_turn_of_the_older_policy_is_context_where_it_is_masked(make_turn):
    rows = make_turn(trained=False)
    assert rows == []


@pytest.fixture
def make_turn():
    """Return a function that makes the training rows of an episode of one turn."""
    from scalinginter.train.batch import to_samples
    from scalinginter.types import Completion, FinishReason, StopReason, Task, Trajectory, Turn

    def make(trained):
        completion = Completion(
            (3, 4),
            (-1.0, -1.0),
            (False, False),
            (None, None),
            FinishReason.STOP,
            0,
            trained=trained,
        )
        turn = Turn((1, 2), completion, "", "a", "b", 1.0)
        task = Task("t", "toy")
        episode = Trajectory(task, "g", 0, 0, 1, (turn,), StopReason.TERMINATED, True)
        return to_samples(episode, torch.ones(1).numpy(), 0)

    return make
