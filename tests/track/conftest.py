"""Run folders with known content, and one SQLite store for all tests of this folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scalinginter.track.journal import Journal
from scalinginter.track.run_folder import RunInfo, write_config, write_run_info

MakeRun = Callable[..., Path]
WriteSteps = Callable[[Path, int, int], dict[str, int]]


def episode(step: int, group: int, index: int) -> dict[str, Any]:
    """Return an episode of two turns; the first has no action."""
    turns = [
        {
            "text": f"go {turn}",
            "action": f"go {turn}" if turn else None,
            "observation": f"room {turn}",
            "reward": float(turn),
            "token_ids": [1, 2, 3],
            "logprobs": [-0.5, None, -1.5],
            "version": step,
        }
        for turn in range(2)
    ]
    return {
        "task": f"task-{group}",
        "group": f"{step}-{group}",
        "index": index,
        "horizon": 5,
        "stop": "terminated",
        "success": True,
        "reward": 1.0,
        "opening": [{"role": "user", "content": "Find the coin."}],
        "turns": turns,
    }


@pytest.fixture
def write_steps() -> WriteSteps:
    """Appends the steps from `first` to `last` to a run; returns the journal's offsets."""

    def write(run_dir: Path, first: int, last: int) -> dict[str, int]:
        with Journal(run_dir) as journal:
            for step in range(first, last + 1):
                metrics = {"reward/mean": step / 100, "cost/turns": 10.0 * step, "a@b[c]": 1.0}
                journal.log(step, "train", metrics | {"loss/kl": float("nan")})
                records = [episode(step, group, index) for group in range(3) for index in range(2)]
                journal.episodes(step, "train", records)
                if step % 2 == 0:
                    journal.log(step, "eval", {"eval/success": 0.5, "cost/turns": 10.0 * step})
            return journal.offsets()

    return write


@pytest.fixture
def make_run(tmp_path: Path, write_steps: WriteSteps) -> MakeRun:
    """Makes `<tmp_path>/cmp/<arm>/seed<k>` with so many steps."""

    def make(arm: str = "scaled", seed: int = 3, steps: int = 4) -> Path:
        run_dir = tmp_path / "cmp" / arm / f"seed{seed}"
        info = RunInfo(name="r", seed=seed, comparison="cmp", arm=arm, command=["train", "x.yaml"])
        write_run_info(run_dir, info)
        write_config(run_dir, {"seed": seed, "train": {"num_steps": 10, "note": "x" * 7000}})
        write_steps(run_dir, 1, steps)
        return run_dir

    return make


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of an SQLite store; each test takes an experiment of its own in it."""
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"
