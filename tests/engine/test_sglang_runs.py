"""Training over a real SGLang server, through the command line: launched, resumed on another one,
and with groups in flight over changes of the weights."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.xdist_group("sglang"), pytest.mark.timeout(1000)]

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def train(tmp_path_factory, toy_recipe):
    """Return a function that trains the toy recipe with a block `engine` and returns its folder."""

    def run(engine, **changes):
        folder = tmp_path_factory.mktemp("run")
        engine = {"kind": "sglang", "start_timeout_s": 900, **engine}
        file = folder / "toy.yaml"
        file.write_text(yaml.safe_dump(toy_recipe(engine=engine, eval__every=None, **changes)))
        command("--schedule", file, "--output", folder / "run")
        return folder / "run"

    return run


def command(*arguments):
    done = subprocess.run(
        [sys.executable, ROOT / "train.py", *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def lines(run_dir, name):
    found = map(json.loads, (run_dir / name).read_text().splitlines())
    return [line for line in found if line["stage"] == "train"]


@pytest.fixture(scope="module")
def resumed(train, sglang_launch, sglang_engine):
    """A run of two steps on a server that it launched; the third one on a server that was there."""
    run_dir = train({"launch": sglang_launch})
    url = sglang_engine.upkeep.fleet.servers[0].url
    settings = ["train.num_steps=3", "engine.launch=null", f"engine.url={url}"]
    command("--resume", run_dir, "--set", *settings)
    yield run_dir
    sglang_engine.runner.run(sglang_engine.sync(sglang_engine.version + 1))


@pytest.fixture(scope="module")
def stale(train, sglang_engine):
    """A run with a staleness of 1 that learns so slowly that every step has something to learn."""
    url = sglang_engine.upkeep.fleet.servers[0].url
    yield train(
        {"url": url},
        train={"num_steps": 8, "learning_rate": 1e-5},
        horizon={"kind": "fixed", "turns": 4},
        rollout__max_staleness=1,
    )
    sglang_engine.runner.run(sglang_engine.sync(sglang_engine.version + 1))


def test_a_launched_server_leaves_with_the_run(resumed):
    assert (resumed / "engine" / "server0.log").exists()
    assert not (resumed / "engine" / "server0.pid").exists()


def test_a_resumed_run_goes_on_where_it_stopped_with_another_server(resumed):
    assert [line["step"] for line in lines(resumed, "metrics.jsonl")] == [1, 2, 3]


def test_every_group_of_a_resumed_run_is_trained_once_and_whole(resumed):
    counts = Counter(episode["group"] for episode in lines(resumed, "episodes.jsonl"))
    assert (len(counts), set(counts.values())) == (3 * 4, {4})


def test_pitfall_32_every_step_is_played_by_the_policy_of_that_step(resumed):
    version, updates = 0, {}
    for line in lines(resumed, "metrics.jsonl"):
        updates[line["step"]] = version
        version += not line["metrics"]["update/skipped"]
    episodes = lines(resumed, "episodes.jsonl")
    assert {(e["step"], *e["policy_versions"]) for e in episodes} == set(updates.items())


def test_contexts_of_later_turns_come_out_of_the_servers_cache(resumed):
    for line in lines(resumed, "metrics.jsonl"):
        assert line["metrics"]["rollout/cached_tokens"] > 0
        assert line["metrics"]["rollout/prefix_cache_share"] > 0.9


def test_groups_are_played_over_changes_of_the_weights(stale):
    assert any(len(episode["policy_versions"]) == 2 for episode in lines(stale, "episodes.jsonl"))


def test_no_token_of_a_server_is_further_behind_than_the_recipe_allows(stale):
    lags = [line["metrics"]["async/lag_max"] for line in lines(stale, "metrics.jsonl")]
    assert max(lags) == 1


def test_the_lag_is_that_of_the_tokens_as_the_server_reports_them(stale):
    version, logged = 0, {}
    for line in lines(stale, "metrics.jsonl"):
        logged[line["step"]] = (version, line["metrics"]["async/lag_mean"])
        version += not line["metrics"]["update/skipped"]
    tokens = {step: [] for step in logged}
    for episode in lines(stale, "episodes.jsonl"):
        for turn in episode["turns"]:
            versions = turn.get("versions", [turn["version"]] * len(turn["token_ids"]))
            tokens[episode["step"]] += versions
    for step, (version, mean) in logged.items():
        lags = [version - one for one in tokens[step]]
        assert sum(lags) / len(lags) == pytest.approx(mean)
