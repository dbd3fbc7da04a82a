"""Runs with `model.lora`: resumed to the bit, evaluated, merged."""

import argparse
import json

import pytest
import torch
from safetensors.torch import load_file

from scalinginter.cli import evaluate, merge_adapter
from scalinginter.errors import UserError
from scalinginter.train.run import run_training

LORA = {
    "model__lora": {"r": 4, "alpha": 8.0},
    "algorithm__kl_coefficient": 0.01,
    "sft__num_demonstrations": 4,
    "sft__num_epochs": 1,
    "train__learning_rate": 0.02,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, toy_recipe):
    """A run of two steps, and one that was stopped after the first and resumed."""
    whole, parts = (tmp_path_factory.mktemp(name) / "run" for name in ("whole", "parts"))
    config = toy_recipe(**LORA)
    assert run_training(config, whole, quiet=True) == 0
    half = toy_recipe(**(LORA | {"train__num_steps": 1}))
    assert run_training(half, parts, quiet=True) == 0
    assert run_training(config, parts, resume=True, quiet=True) == 0
    return whole, parts


def policy(run_dir, step=2):
    return run_dir / "checkpoints" / f"step-{step:06d}" / "policy"


def evaluation(checkpoint, output, schedule=None, changes=()):
    options = argparse.Namespace(
        checkpoint=checkpoint and str(checkpoint),
        schedule=schedule and str(schedule),
        horizon=[4],
        split="test",
        tasks=4,
        samples=1,
        set=list(changes),
        output=str(output),
    )
    assert evaluate.run(options) == 0
    return json.loads(output.read_text())["by_horizon"]


def test_the_checkpoint_holds_the_adapter_alone(runs):
    tensors = load_file(policy(runs[0]) / "adapter_model.safetensors")
    assert not (policy(runs[0]) / "model.safetensors").exists()
    assert all(".lora_" in name for name in tensors)


def test_the_adapter_is_trained(runs):
    first, last = (load_file(policy(runs[0], n) / "adapter_model.safetensors") for n in (1, 2))
    assert all(not torch.equal(first[name], last[name]) for name in first)


def test_pitfall_36_a_resumed_adapter_ends_with_the_same_bits(runs, numbers):
    whole, parts = (load_file(policy(run) / "adapter_model.safetensors") for run in runs)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert numbers(runs[0])[-1] == numbers(runs[1])[-1]


def test_engine_and_learner_agree_on_the_adapted_policy(runs, numbers):
    updates = [m for _, stage, m in numbers(runs[0]) if stage == "train"]
    assert max(m["update/logprob_gap_max"] for m in updates) < 1e-4


def test_the_reference_is_the_policy_after_the_cold_start(runs, numbers):
    updates = [m for _, stage, m in numbers(runs[0]) if stage == "train"]
    assert updates[0]["loss/kl"] == pytest.approx(0.0, abs=1e-7)
    assert updates[1]["loss/kl"] > 1e-5


def test_a_merged_policy_is_evaluated_like_the_run(runs, tmp_path, toy_file):
    options = argparse.Namespace(checkpoint=str(runs[0]), output=str(tmp_path / "merged"))
    assert merge_adapter.run(options) == 0
    expected = evaluation(runs[0], tmp_path / "a.json")
    merged = [f"model.path={tmp_path / 'merged'}"]
    got = evaluation(None, tmp_path / "b.json", schedule=toy_file(), changes=merged)
    timed = [name for name in expected["4"] if "seconds" in name or "_s" in name]
    for figures in (got["4"], expected["4"]):
        for name in timed:
            figures.pop(name)
    assert got == expected


def test_a_run_without_an_adapter_has_nothing_to_merge(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="nothing to merge"):
        merge_adapter.run(argparse.Namespace(checkpoint=str(tmp_path), output=None))
