"""Weights in parts: what a launcher may ask for, and the parts themselves in a group of one."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from accelerate import Accelerator

from scalinginter.algo.registry import make_algorithm
from scalinginter.cli.main import main
from scalinginter.config.load import validate
from scalinginter.config.schema import GRPOConfig, TrainConfig
from scalinginter.errors import UserError
from scalinginter.train.learner import Learner
from scalinginter.train.ranks import joined
from scalinginter.train.sharding import DividedWeights, as_launched, make_weights

ROOT = Path(__file__).parents[2]


@pytest.fixture
def recipe(toy_recipe):
    """Return a function that makes a recipe."""
    return lambda **changes: validate(toy_recipe(**changes), source="a test")


@pytest.fixture
def fsdp(monkeypatch):
    """Return a function that sets what accelerate launch sets for FSDP."""

    def launch(**settings):
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
        monkeypatch.setenv("FSDP_VERSION", "2")
        for name, value in settings.items():
            monkeypatch.setenv(f"FSDP_{name}", value)

    return launch


@pytest.fixture
def alone():
    """A group of this one process."""
    with joined(torch.device("cpu"), 100.0, always=True):
        yield


def test_accelerate_that_asks_for_fsdp2_sets_the_recipe(recipe, fsdp):
    fsdp(OFFLOAD_PARAMS="true")
    train = as_launched(recipe()).train
    assert (train.sharding, train.cpu_offload) == ("fsdp2", True)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("VERSION", "1"), ("RESHARD_AFTER_FORWARD", "false"), ("ACTIVATION_CHECKPOINTING", "true")],
)
def test_what_accelerate_asks_for_and_cannot_have_is_refused(recipe, fsdp, setting, value):
    fsdp(**{setting: value})
    with pytest.raises(UserError, match=f"fsdp_{setting.lower()}: got {value}"):
        as_launched(recipe())


def test_deepspeed_is_refused_with_what_there_is_instead(recipe, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(UserError, match=r"use docs/cluster/fsdp2\.yaml"):
        as_launched(recipe())


def test_compiled_layers_and_accelerates_fsdp_are_refused_together(recipe, fsdp):
    fsdp()
    with pytest.raises(UserError, match="do not go together"):
        as_launched(recipe(train__compile=True))


def test_compiled_layers_in_parts_are_refused(recipe):
    both = {"train__sharding": "fsdp2", "train__compile": True}
    with pytest.raises(UserError, match="do not go together"):
        recipe(**both)


def test_an_offload_of_whole_weights_is_refused(toy_file, capsys):
    assert main(["train", "--schedule", str(toy_file(train__cpu_offload=True))]) == 2
    assert "cpu_offload needs sharding: fsdp2" in capsys.readouterr().err


def test_an_offload_from_main_memory_is_refused(recipe, tiny_policy):
    changed = recipe(train__sharding="fsdp2", train__cpu_offload=True)
    with pytest.raises(UserError, match="weights are in main memory already"):
        make_weights(changed, Accelerator(cpu=True), tiny_policy())


def test_parts_of_a_model_that_runs_row_by_row_are_refused(recipe, tiny_policy):
    changed = recipe(train__sharding="fsdp2")
    with pytest.raises(UserError, match="LlamaForCausalLM runs row by row"):
        make_weights(changed, Accelerator(cpu=True), tiny_policy(packed=False))


@pytest.fixture
def make_learner(tiny_policy):
    """Return a function that makes a learner with a reference, over parts or not."""

    def make(*, divided, dtype=torch.float32):
        accelerator = Accelerator(cpu=True)
        return Learner(
            tiny_policy(dtype=dtype),
            TrainConfig(num_steps=10, learning_rate=1e-2),
            make_algorithm(GRPOConfig(kl_coefficient=0.1, reference_every=1)),
            accelerator,
            weights=DividedWeights(accelerator) if divided else None,
        )

    return make


def weights(learner):
    return torch.cat([p.detach().flatten().float() for p in learner._policy.parameters()])


def saved(learner):
    """The policy's weights and the learner's state, as of now."""
    return copy.deepcopy(learner._policy.state_dict()), copy.deepcopy(learner.state_dict())


def test_parts_of_bf16_weights_have_fp32_master_weights(alone, make_learner, random_samples):
    learner = make_learner(divided=True, dtype=torch.bfloat16)
    learner.update(random_samples())
    masters = torch.cat([m.flatten() for m in learner.state_dict()["master"]])
    assert masters.dtype == torch.float32
    assert torch.equal(masters.bfloat16().float(), weights(learner))


@pytest.mark.parametrize("divided", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_of_parts_goes_on_in_parts_and_as_a_whole(
    alone, make_learner, random_samples, divided, dtype
):
    first = make_learner(divided=True, dtype=dtype)
    first.update(random_samples(seed=0))
    policy, state = saved(first)
    first.update(random_samples(seed=1))

    second = make_learner(divided=divided, dtype=dtype)
    second._policy.load_state_dict(policy)
    second.load_state_dict(state)
    second.update(random_samples(seed=1))
    exact = 0.0 if divided else 1e-5 if dtype == torch.float32 else 1e-2
    assert (weights(first) - weights(second)).norm() <= exact * weights(first).norm()


def test_an_update_of_parts_is_taken_back(alone, make_learner, random_samples):
    learner = make_learner(divided=True)
    policy, state = saved(learner)
    results = []
    for _ in range(2):
        learner._policy.load_state_dict(policy)
        learner.load_state_dict(state)
        learner.update(random_samples())
        results.append(weights(learner))
    assert torch.equal(*results)


@pytest.mark.slow
def test_accelerate_launch_trains_parts_of_weights(toy_file, tmp_path):
    config = "docs/cluster/fsdp2.yaml"
    launch = ["-m", "accelerate.commands.launch", "--config_file", config, "--num_processes=2"]
    run = tmp_path / "run"
    done = subprocess.run(
        [
            sys.executable,
            *launch,
            "train.py",
            "--schedule",
            toy_file(),
            "--output",
            tmp_path / "run",
        ],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    recorded = yaml.safe_load((run / "config.yaml").read_text())
    assert recorded["train"]["sharding"] == "fsdp2"
