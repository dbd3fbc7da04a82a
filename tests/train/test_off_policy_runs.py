"""Whole runs whose tokens another policy drew: they learn, are repeated and are resumed."""

import json

import pytest

from scalinginter.train.run import run_training

pytestmark = pytest.mark.slow

CORRECTIONS = {
    "token": {"correction": "token"},
    "turns": {"correction": "sequence", "sequence": "turn"},
    "mask": {"correction": "geometric_mask"},
    "gspo": {"kind": "gspo", "correction": "token", "clip_low": 0.2, "clip_high": 0.2},
}
CROSS = {
    "rollout__cross_policy": {"share": 0.4, "refresh_every": 2, "train": "correct"},
    "algorithm": {"correction": "sequence", "kl_coefficient": 0.01},
    "train__num_steps": 4,
    "eval__every": 10,
}


def metrics_of(run_dir, stage):
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [line["metrics"] for line in lines if line["stage"] == stage]


@pytest.fixture(scope="module", params=CORRECTIONS)
def stale(request, tmp_path_factory, toy_recipe):
    """A run of twelve steps whose groups are played up to two updates ahead."""
    run_dir = tmp_path_factory.mktemp("stale") / "run"
    config = toy_recipe(
        environment__params={"max_length": 8},
        horizon={"kind": "fixed", "turns": 9},
        eval={"horizon": 9, "num_tasks": 16},
        checkpoint__every=None,
        rollout__num_tasks=8,
        rollout__max_staleness=2,
        train={"num_steps": 12, "learning_rate": 0.005},
        algorithm=CORRECTIONS[request.param],
    )
    assert run_training(config, run_dir, quiet=True) == 0
    return run_dir


def test_stale_data_trains_with_each_correction(stale):
    start, *_, end = [metrics["eval/success"] for metrics in metrics_of(stale, "eval")]
    assert start < 0.5
    assert end > 0.8


def test_pitfall_32_the_weights_of_stale_tokens_are_logged_on_every_step(stale):
    steps = metrics_of(stale, "train")
    assert all("correction/weight_mean" in step for step in steps)
    assert all("correction/masked_share" in step for step in steps)
    assert any(step["correction/weight_max"] > 1.01 for step in steps)


@pytest.fixture(scope="module")
def cross(tmp_path_factory, toy_recipe):
    """A run of four steps in which an older policy writes turns that are trained."""
    run_dir = tmp_path_factory.mktemp("cross") / "run"
    assert run_training(toy_recipe(**CROSS), run_dir, quiet=True) == 0
    return run_dir


def test_pitfall_32_turns_of_an_older_policy_are_weighed_in_the_steps_that_have_some(cross):
    steps = metrics_of(cross, "train")
    older = [step["cross_policy/lag_mean"] > 0 for step in steps]
    assert [step["update/old_logprobs_recomputed"] == 1 for step in steps] == older
    assert [step["correction/weight_max"] > 1.001 for step in steps] == older


def test_two_runs_with_a_correction_write_the_same_numbers(tmp_path, toy_recipe, cross, numbers):
    assert run_training(toy_recipe(**CROSS), tmp_path / "run", quiet=True) == 0
    assert numbers(tmp_path / "run") == numbers(cross)


def test_pitfall_36_a_resumed_run_with_a_correction_writes_the_same_numbers(
    tmp_path, toy_recipe, cross, numbers
):
    half = toy_recipe(**(CROSS | {"train__num_steps": 2}))
    assert run_training(half, tmp_path / "run", quiet=True) == 0
    assert run_training(toy_recipe(**CROSS), tmp_path / "run", resume=True, quiet=True) == 0
    resumed = numbers(tmp_path / "run")
    assert [line for line in resumed if line in numbers(cross)] == numbers(cross)
