"""N steps equal k steps, a resume, and the rest: to the bit."""

import json

import pytest
import torch
from safetensors.torch import load_file

from scalinginter.train.run import run_training

ONE = {"environment": {"id": "toy_corridor"}}
SEVERAL = {
    "environment": None,
    "environments": [
        {"id": "toy_corridor", "name": "short", "params": {"max_length": 2}, "quota": 1},
        {"id": "toy_corridor", "name": "long", "weight": 0.4, "horizon_scale": 2.0},
    ],
}


@pytest.fixture(scope="module", params=[ONE, SEVERAL], ids=["one environment", "several"])
def recipe_of_four(request):
    return request.param | {
        "train__num_steps": 4,
        "train__num_minibatches": 2,
        "train__warmup_steps": 2,
        "algorithm": {"kl_coefficient": 0.01, "kl_target": 1e-3, "reference_every": 3},
        "sft__num_demonstrations": 4,
        "sft__num_epochs": 1,
        "horizon": {
            "kind": "success_gated",
            "stages": [1, 2, 3],
            "threshold": 0.1,
            "window": 2,
        },
    }


@pytest.fixture
def whole_and_parts(tmp_path, toy_recipe, recipe_of_four):
    """One run of four steps, and one that was stopped after step 2 and resumed."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    config = toy_recipe(**recipe_of_four)
    assert run_training(config, whole, quiet=True) == 0
    half = toy_recipe(**(recipe_of_four | {"train__num_steps": 2}))
    assert run_training(half, parts, quiet=True) == 0
    assert run_training(config, parts, resume=True, quiet=True) == 0
    return whole / "checkpoints" / "step-000004", parts / "checkpoints" / "step-000004"


def leaves(value, prefix=""):
    """Every leaf of a nested state, by path."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        return {prefix: value.tolist() if torch.is_tensor(value) else value}
    return {k: v for key, item in items for k, v in leaves(item, f"{prefix}/{key}").items()}


@pytest.mark.slow
def test_pitfall_36_a_resumed_run_ends_with_the_same_bits(whole_and_parts, numbers):
    whole, parts = whole_and_parts
    weights = [load_file(folder / "policy" / "model.safetensors") for folder in whole_and_parts]
    learners = [leaves(torch.load(f / "learner.pt", weights_only=True)) for f in (whole, parts)]
    states = [json.loads((folder / "state.json").read_text()) for folder in (whole, parts)]
    for state in states:
        state.pop("journal")
        state["costs"].pop("seconds")
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert learners[0] == learners[1]
    assert states[0] == states[1]


@pytest.mark.slow
def test_pitfall_36_a_resumed_run_writes_the_same_journal(whole_and_parts, numbers):
    whole, parts = (numbers(folder.parent.parent) for folder in whole_and_parts)
    # The stopped run evaluated at what was its end; everything else is the same.
    assert [line for line in parts if line in whole] == whole


@pytest.mark.slow
def test_two_runs_with_one_seed_write_the_same_numbers(tmp_path, toy_recipe, numbers):
    for name in ("a", "b"):
        run_training(toy_recipe(), tmp_path / name, quiet=True)
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")


@pytest.mark.slow
def test_another_seed_writes_other_numbers(tmp_path, toy_recipe, numbers):
    for seed in (0, 1):
        run_training(toy_recipe(seed=seed), tmp_path / str(seed), quiet=True)
    assert numbers(tmp_path / "0") != numbers(tmp_path / "1")
