"""Comparisons through `train.py`, with the trainer itself."""

import json

import pytest

pytestmark = pytest.mark.slow


def evaluations(run_dir):
    """Return the turns spent at each evaluation."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [line["metrics"]["cost/turns"] for line in lines if line["stage"] == "eval"]


def test_a_comparison_goes_on_with_a_larger_budget(command, toy_file, tmp_path):
    """It is evaluated at every quarter of the larger one that is not spent yet."""
    changes = {"train": {"learning_rate": 0.003}, "eval": {"horizon": 4, "times": 4}}
    arms = [
        toy_file(f"{name}.yaml", horizon={"kind": "fixed", "turns": turns}, **changes)
        for name, turns in (("short", 2), ("long", 4))
    ]
    root = tmp_path / "compared"
    arguments = ["train.py", "--schedule", *arms, "--output", root, "--budget"]
    done = command(*arguments, "steps=4")
    assert done.returncode == 0, done.stdout + done.stderr
    before = evaluations(root / "short" / "seed0")
    done = command(*arguments, "steps=8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "short/seed0: continues from step 4" in done.stdout
    after = evaluations(root / "short" / "seed0")
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2
    assert "at equal steps (8)" in (root / "report.md").read_text()
    for script, option in (("train.py", "--resume"), ("eval.py", "--checkpoint")):
        refused = command(script, option, root)
        assert refused.returncode == 2
        assert f"{option} {root}/short/seed0" in refused.stderr


def test_what_cannot_be_a_comparison_is_refused(command, toy_file, tmp_path):
    path = toy_file("short.yaml")
    twice = command("train.py", "--schedule", path, path, "--output", tmp_path / "new")
    assert (twice.returncode, twice.stderr.count(f"--schedule names {path} twice")) == (2, 1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    single = command("train.py", "--schedule", path, "--seeds", "0,1", "--output", tmp_path / "run")
    assert (single.returncode, single.stderr.count("holds a single run")) == (2, 1)
