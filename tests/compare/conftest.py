"""Comparison folders with known numbers, written through the product's own journal."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from scalinginter.track.journal import Journal
from scalinginter.track.run_folder import RunInfo, write_config, write_run_info

Curve = Callable[[float], float]
WriteRun = Callable[..., Path]


def recipe(horizon: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a resolved recipe with a budget of 1,000 turns."""
    return {
        "name": "run",
        "seed": 0,
        "environment": {"id": "toy_corridor", "params": {}},
        "horizon": dict(horizon),
        "train": {"budget": {"turns": 1000}, "learning_rate": 0.001},
        "eval": {"horizon": 20, "every": 10},
    } | changes


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Return a function that writes a run whose success is f(share of its turns)."""

    def write(
        arm: str,
        seed: int,
        success: Curve,
        *,
        turns: int = 1000,
        horizon: int = 5,
        status: str = "finished",
        config: Mapping[str, Any] | None = None,
        tasks: Mapping[str, bool] | None = None,
    ) -> Path:
        folder = tmp_path / "cmp" / arm / f"seed{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        with Journal(folder) as journal:
            for i in range(11):
                cost = turns * i / 10
                costs = {
                    "cost/turns": cost,
                    "cost/generated_tokens": 4 * cost,
                    "cost/forward_tokens": 40 * cost,
                    "cost/seconds": cost / 20,
                    "cost/steps": float(i),
                }
                if i:
                    train = {"horizon/max_turns": float(horizon), "rollout/truncated_share": 0.5}
                    journal.log(i, "train", train | costs)
                value = success(i / 10)
                lengths = {
                    "eval/success_by_length/3": value,
                    "eval/success_by_length/11": value / 2,
                }
                journal.log(i, "eval", {"eval/success": value} | lengths | costs)
            records = [
                {"task": task, "success": won, "stop": "terminated", "required_turns": 3}
                for task, won in (tasks or {}).items()
            ]
            journal.episodes(10, "eval", records)
        own = recipe({"kind": "fixed", "turns": horizon}, seed=seed)
        write_config(folder, own if config is None else config)
        info = RunInfo(arm, seed, "cmp", arm, ["python", "train.py"], status)  # type: ignore[arg-type]
        write_run_info(folder, info)
        return folder

    return write
