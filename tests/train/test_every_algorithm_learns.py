"""Each algorithm of the registry learns a corridor of up to eight turns, whatever the seed."""

import json

import pytest

from scalinginter.algo.registry import ALGORITHMS
from scalinginter.train.run import run_training

VARIANTS = {
    **{kind: {"kind": kind} for kind in ALGORITHMS},
    "reinforce_pp_baseline": {"kind": "reinforce_pp", "group_baseline": True},
    "turn_grpo_running": {"kind": "turn_grpo", "compare": "running"},
    "grpo_by_task": {"kind": "grpo", "normalize_by_task": True},
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", VARIANTS)
def test_it_learns_a_corridor(tmp_path, toy_recipe, name, seed):
    config = toy_recipe(
        seed=seed,
        environment__params={"max_length": 8},
        horizon={"kind": "fixed", "turns": 9},
        eval={"horizon": 9, "num_tasks": 16},
        checkpoint__every=None,
        algorithm=VARIANTS[name],
        rollout__num_tasks=8,
        train={"num_steps": 8, "learning_rate": 0.005},
    )
    run_training(config, tmp_path / "run", quiet=True)
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    start, *_, end = [m["metrics"]["eval/success"] for m in lines if m["stage"] == "eval"]
    assert start < 0.5
    assert end > 0.8
