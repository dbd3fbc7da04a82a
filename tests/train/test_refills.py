"""Groups that say nothing are replaced: how often, by what, what it costs, and resumed."""

import json
from collections import Counter
from itertools import pairwise

import pytest

from scalinginter.config.load import validate
from scalinginter.errors import ConfigError
from scalinginter.train.run import run_training

FAMILIES = [
    {"id": "toy_corridor", "name": "short", "params": {"max_length": 2}},
    {"id": "toy_corridor", "name": "long", "params": {"max_length": 6}},
]
REFILLS = {
    "algorithm": {"kind": "grpo_tcr", "max_refills": 2, "kl_coefficient": 0.01},
    "environment": None,
    "environments": FAMILIES,
    "rollout__num_tasks": 5,
    "train__num_steps": 4,
    "train__learning_rate": 3e-4,
    "eval__every": 10,
}


def lines_of(run_dir, name):
    lines = map(json.loads, (run_dir / name).read_text().splitlines())
    return [line for line in lines if line["stage"] == "train"]


def groups_of(run_dir):
    """Return by step and group its task, environment, and the rewards of its episodes."""
    found = {}
    for e in lines_of(run_dir, "episodes.jsonl"):
        group = found.setdefault((e["step"], e["group"]), (e["task"], e["family"], []))
        group[2].append(e["reward"])
    return found


@pytest.fixture(scope="module")
def refilled(tmp_path_factory, toy_recipe):
    run_dir = tmp_path_factory.mktemp("refilled") / "run"
    assert run_training(toy_recipe(**REFILLS), run_dir, quiet=True) == 0
    return run_dir


@pytest.mark.slow
def test_every_group_without_signal_is_replaced_by_one_of_its_environment(refilled):
    groups = groups_of(refilled)
    for step in range(1, 5):
        own = {name: group for (s, name), group in groups.items() if s == step}
        rounds = [{n: g for n, g in own.items() if mark in n} for mark in ("refill1", "refill2")]
        rounds.insert(0, {n: g for n, g in own.items() if "refill" not in n})
        for before, after in pairwise(rounds):
            silent = sorted(
                family for _, family, rewards in before.values() if len(set(rewards)) == 1
            )
            assert sorted(family for _, family, _ in after.values()) == silent


@pytest.mark.slow
def test_some_groups_were_replaced_at_all(refilled):
    assert any("refill1" in name for _, name in groups_of(refilled))


@pytest.mark.slow
def test_what_was_dropped_and_refilled_is_counted(refilled):
    for line in lines_of(refilled, "metrics.jsonl"):
        metrics = line["metrics"]
        played = 5 + metrics["rollout/refilled_groups"]
        assert metrics["rollout/dropped_groups"] == metrics["rollout/zero_variance_groups"]
        assert metrics["rollout/episodes"] == 4 * played


@pytest.mark.slow
def test_only_groups_with_a_signal_are_trained(refilled):
    groups = groups_of(refilled)
    drawn = Counter()  # by step: tokens of such groups that were drawn, not forced
    for e in lines_of(refilled, "episodes.jsonl"):
        if len(set(groups[e["step"], e["group"]][2])) > 1:
            drawn[e["step"]] += sum(x != 0 for turn in e["turns"] for x in turn["logprobs"])
    for line in lines_of(refilled, "metrics.jsonl"):  # a KL trains every token that there is
        assert line["metrics"]["update/tokens"] == drawn[line["step"]]


@pytest.mark.slow
def test_no_task_is_played_twice_before_all_were_played(refilled):
    tasks = [task for task, family, _ in groups_of(refilled).values() if family == "long"]
    assert len(tasks) == len(set(tasks)) <= 32


@pytest.mark.slow
def test_refills_do_not_change_the_environments_shares_of_a_step(refilled, tmp_path, toy_recipe):
    plain = REFILLS | {"algorithm": {"kind": "grpo"}}
    assert run_training(toy_recipe(**plain), tmp_path / "run", quiet=True) == 0

    def shares(run_dir):
        groups = groups_of(run_dir)
        return [
            sorted(g[1] for (s, n), g in groups.items() if s == step and "refill" not in n)
            for step in range(1, 5)
        ]

    assert shares(refilled) == shares(tmp_path / "run")


@pytest.mark.slow
def test_pitfall_36_a_resumed_run_refills_with_the_same_groups(
    refilled, tmp_path, toy_recipe, numbers
):
    half = toy_recipe(**(REFILLS | {"train__num_steps": 2}))
    assert run_training(half, tmp_path / "run", quiet=True) == 0
    assert run_training(toy_recipe(**REFILLS), tmp_path / "run", resume=True, quiet=True) == 0
    resumed = numbers(tmp_path / "run")
    assert [line for line in resumed if line in numbers(refilled)] == numbers(refilled)


@pytest.mark.slow
def test_pitfall_15_refilling_is_bounded_counted_in_the_costs_and_the_step_is_skipped(
    tmp_path, toy_recipe, numbers
):
    config = toy_recipe(
        environment={"id": "toy_forced"},  # every episode earns nothing
        chat__constrain_to_admissible=False,
        horizon={"kind": "fixed", "turns": 2},
        algorithm={"kind": "grpo_tcr", "max_refills": 2},
        train__num_steps=1,
    )
    assert run_training(config, tmp_path / "run", quiet=True) == 0
    (metrics,) = [m for _, stage, m in numbers(tmp_path / "run") if stage == "train"]
    assert metrics["update/skipped"] == 1.0
    assert metrics["rollout/dropped_groups"] == 4 * 3
    assert metrics["cost/turns"] == 4 * 3 * 4 * 2


def test_refills_are_refused_where_groups_are_played_ahead(toy_recipe):
    config = toy_recipe(algorithm={"kind": "grpo_tcr"}, rollout__max_staleness=1)
    with pytest.raises(ConfigError, match=r"set algorithm\.max_refills: 0"):
        validate(config, "a recipe")
