"""Training with groups that are played beside the update: bounded lag, nothing lost, it learns."""

import json
import shutil
import signal
import threading
from collections import Counter

import pytest

from scalinginter.engine.local import LocalEngine
from scalinginter.rollout import stack
from scalinginter.train.run import run_training


def records(run_dir, name, stage="train"):
    lines = map(json.loads, (run_dir / name).read_text().splitlines())
    return [line for line in lines if line["stage"] == stage]


def groups(run_dir):
    """How many episodes of each group were trained."""
    return Counter(episode["group"] for episode in records(run_dir, "episodes.jsonl"))


def lags(run_dir):
    """The lag of every trained token's answer, by step."""
    trained = records(run_dir, "episodes.jsonl")
    updates = {line["step"]: line["metrics"] for line in records(run_dir, "metrics.jsonl")}
    version, at = 0, {}
    for step in sorted(updates):
        at[step] = version
        version += not updates[step]["update/skipped"]
    return [
        at[episode["step"]] - version
        for episode in trained
        for turn in episode["turns"]
        for version in turn.get("versions", [turn["version"]])
    ]


@pytest.fixture(scope="module", params=[1, 2])
def finished(request, tmp_path_factory, toy_recipe):
    """A run of ten steps with a staleness of 1 or 2."""
    run_dir = tmp_path_factory.mktemp("async") / "run"
    config = toy_recipe(rollout__max_staleness=request.param, train__num_steps=10, eval__every=5)
    assert run_training(config, run_dir, quiet=True) == 0
    return request.param, run_dir


@pytest.mark.slow
def test_no_trained_token_is_further_behind_than_the_recipe_allows(finished):
    bound, run_dir = finished
    assert 0 < max(lags(run_dir)) <= bound


@pytest.mark.slow
def test_the_logged_lag_is_that_of_the_episodes(finished):
    _, run_dir = finished
    logged = [line["metrics"]["async/lag_max"] for line in records(run_dir, "metrics.jsonl")]
    assert max(logged) == max(lags(run_dir))


@pytest.mark.slow
def test_every_group_is_trained_once_and_whole(finished):
    _, run_dir = finished
    assert set(groups(run_dir).values()) == {4}


@pytest.mark.slow
def test_it_learns(finished):
    _, run_dir = finished
    curve = [line["metrics"]["eval/success"] for line in records(run_dir, "metrics.jsonl", "eval")]
    assert curve[-1] == 1.0


@pytest.mark.slow
def test_pitfall_36_a_run_that_was_killed_trains_every_group_once(tmp_path, toy_recipe):
    run_dir = tmp_path / "run"
    blocks = {"rollout__max_staleness": 1, "eval__every": 20}
    assert run_training(toy_recipe(train__num_steps=5, **blocks), run_dir, quiet=True) == 0
    for step in (4, 5):  # as if it had been killed before they were saved
        shutil.rmtree(run_dir / "checkpoints" / f"step-{step:06d}")
    more = toy_recipe(train__num_steps=7, **blocks)
    assert run_training(more, run_dir, resume=True, quiet=True) == 0
    counts = groups(run_dir)
    assert (len(counts), set(counts.values())) == (7 * 4, {4})
    # Of the groups that began before the last step none is missing.
    assert {f"train/0/{block}/{i}" for block in range(6) for i in range(4)} <= set(counts)


@pytest.mark.slow
def test_ctrl_c_during_an_update_keeps_the_update_and_what_was_under_way(
    tmp_path, toy_recipe, monkeypatch
):
    run_dir, stopped = tmp_path / "run", threading.Event()

    class Stopping(LocalEngine):
        async def generate(self, request):
            if threading.active_count() > 1 and self.version == 2 and not stopped.is_set():
                stopped.set()
                signal.raise_signal(signal.SIGINT)
            return await super().generate(request)

    monkeypatch.setattr(stack, "LocalEngine", Stopping)
    config = toy_recipe(rollout__max_staleness=1, train__num_steps=6, eval__every=20)
    assert run_training(config, run_dir, quiet=True) == 130
    assert run_training(config, run_dir, resume=True, quiet=True) == 0
    counts = groups(run_dir)
    assert (len(counts), set(counts.values())) == (6 * 4, {4})
