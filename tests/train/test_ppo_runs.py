"""PPO through the whole product: it learns, and a resumed run is the uninterrupted one."""

import json

import pytest
import torch
from safetensors.torch import load_file

from scalinginter.train.run import run_training

LEVELS = {
    "token": {"kind": "ppo", "critic": {"kind": "model", "learning_rate": 0.01}},
    "turn": {"kind": "ppo", "gae": "turn", "gamma": 0.99, "lam": 0.9},
}


def successes(run_dir):
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [m["metrics"]["eval/success"] for m in lines if m["stage"] == "eval"]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("level", LEVELS)
def test_ppo_learns_a_corridor_of_up_to_eight_turns(tmp_path, toy_recipe, level, seed):
    config = toy_recipe(
        seed=seed,
        environment__params={"max_length": 8},
        horizon={"kind": "fixed", "turns": 9},
        eval={"horizon": 9, "num_tasks": 16},
        checkpoint__every=None,
        algorithm=LEVELS[level],
        rollout__num_tasks=8,
        train={"num_steps": 8, "learning_rate": 0.005},
    )
    run_training(config, tmp_path / "run", quiet=True)
    start, end = successes(tmp_path / "run")
    assert start < 0.5
    assert end > 0.85


@pytest.mark.parametrize("level", LEVELS)
def test_pitfall_36_a_resumed_ppo_run_ends_with_the_same_bits(tmp_path, toy_recipe, numbers, level):
    changes = {"algorithm": LEVELS[level] | {"kl_coefficient": 0.01}, "train__num_minibatches": 2}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    config = toy_recipe(**changes)
    run_training(config, whole, quiet=True)
    run_training(toy_recipe(**(changes | {"train__num_steps": 1})), parts, quiet=True)
    run_training(config, parts, resume=True, quiet=True)
    folders = [run / "checkpoints" / "step-000002" for run in (whole, parts)]
    policies = [load_file(folder / "policy" / "model.safetensors") for folder in folders]
    critics = [torch.load(f / "learner.pt", weights_only=True)["critic"] for f in folders]
    assert all(torch.equal(policies[0][name], policies[1][name]) for name in policies[0])
    assert all(torch.equal(critics[0][name], critics[1][name]) for name in critics[0])
    assert numbers(whole)[-1] == numbers(parts)[-1]


def test_a_cut_episode_brings_what_the_policy_would_have_seen_next(tmp_path, toy_recipe):
    config = toy_recipe(algorithm=LEVELS["turn"], horizon={"kind": "fixed", "turns": 1})
    run_training(config, tmp_path / "run", quiet=True)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    first = next(m["metrics"] for m in map(json.loads, lines) if m["stage"] == "train")
    assert first["value/bootstrapped_share"] == pytest.approx(first["stop/horizon"])
    assert first["stop/horizon"] > 0
