"""Several environments in one run: places, horizons, metrics."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.config.load import validate
from scalinginter.config.schema import FamilyConfig
from scalinginter.errors import ConfigError, UserError
from scalinginter.eval.metrics import summarize
from scalinginter.horizon import Progress
from scalinginter.rollout.family import Families
from scalinginter.train.horizons import FamilyHorizons
from scalinginter.train.tasks import share_out
from scalinginter.types import StopReason, Task, Trajectory

BASE = {
    "horizon": {"kind": "fixed", "turns": 10},
    "train": {"num_steps": 2},
    "eval": {"horizon": 20},
}


def recipe(*environments, **blocks):
    return validate({**BASE, "environments": list(environments), **blocks}, "test")


def family(name, **keys):
    return FamilyConfig(id="toy_corridor", name=name, **keys)


def places(families, num_tasks, num_steps):
    taken = Counter({f.name: 0 for f in families})
    for step in range(num_steps):
        taken.update(share_out(families, num_tasks, taken, step))
    return taken


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=5), st.integers(1, 40))
def test_every_place_of_a_step_is_given_to_an_environment(weights, num_tasks):
    families = [family(f"f{i}", weight=w) for i, w in enumerate(weights)]
    assert sum(places(families, num_tasks, 3).values()) == 3 * num_tasks


@pytest.mark.parametrize(
    ("weights", "expected"), [((1, 1), (30, 30)), ((3, 1), (45, 15)), ((1, 0.05), (57, 3))]
)
def test_places_follow_the_weights_over_the_steps(weights, expected):
    families = [family("a", weight=float(weights[0])), family("b", weight=float(weights[1]))]
    taken = places(families, num_tasks=3, num_steps=20)
    assert (taken["a"], taken["b"]) == expected


def test_a_quota_is_kept_on_every_step_beside_the_weights():
    families = [family("a", weight=1.0), family("b", weight=1e-9, quota=2)]
    assert share_out(families, 8, {"a": 0, "b": 0}, 0) == {"a": 6, "b": 2}


def test_the_shares_depend_on_the_tasks_taken_so_far_only():
    families = [family("a"), family("b", weight=0.3, quota=1)]
    first = share_out(families, 5, {"a": 0, "b": 0}, 0)
    assert share_out(families, 5, first, 1) == share_out(families, 5, dict(first), 1)


def test_a_family_has_the_horizon_of_its_own_block_or_the_common_one_scaled():
    horizons = FamilyHorizons(
        recipe(
            {"id": "toy_corridor", "name": "a", "horizon_scale": 0.25},
            {"id": "toy_corridor", "name": "b"},
            horizons={"b": {"kind": "staged", "stages": [2, 4], "every": 1}},
        )
    )
    turns = [{n: h.turns for n, h in horizons.start(Progress(s)).items()} for s in (0, 1)]
    assert turns == [{"a": 3, "b": 2}, {"a": 3, "b": 4}]


def test_a_gate_counts_the_episodes_of_its_own_environment_in_scaled_turns():
    gate = {"kind": "success_gated", "stages": [4, 8], "threshold": 1.0, "window": 1}
    horizons = FamilyHorizons(
        recipe(
            {"id": "toy_corridor", "name": "a", "horizon_scale": 0.5},
            {"id": "toy_corridor", "name": "b"},
            horizons={"a": gate, "b": gate},
        )
    )
    horizons.start(Progress(0))
    horizons.observe({"a": [episode("a", 2, True)], "b": [episode("b", 4, False)]})
    assert {n: h.turns for n, h in horizons.start(Progress(1)).items()} == {"a": 4, "b": 4}


def episode(name, horizon, success):
    task = Task("t", "toy_corridor")
    return Trajectory(task, "g", 0, 0, horizon, (), StopReason.TERMINATED, success, family=name)


def test_two_environments_may_have_tasks_of_one_id():
    metrics = summarize([episode("a", 2, True), episode("b", 2, False)])
    assert (metrics["eval/a/success"], metrics["eval/b/success"]) == (1.0, 0.0)
    assert metrics["eval/success_high"] > 0.9


def test_a_horizon_for_an_environment_that_is_not_there_names_the_nearest():
    with pytest.raises(ConfigError, match=r"horizons.toy_corrido.*did you mean 'toy_corridor'"):
        recipe({"id": "toy_corridor"}, horizons={"toy_corrido": {"kind": "fixed", "turns": 2}})


def test_two_environments_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two environments are called 'toy_corridor'"):
        recipe({"id": "toy_corridor"}, {"id": "toy_corridor"})


def test_environment_and_environments_exclude_each_other():
    with pytest.raises(ConfigError, match="exactly one of environment and environments"):
        recipe({"id": "toy_corridor"}, environment={"id": "toy_corridor"})


def test_quotas_above_the_tasks_of_a_step_are_refused():
    with pytest.raises(ConfigError, match="quotas sum to 17"):
        recipe({"id": "toy_corridor", "quota": 17})


def tasks_of(config, split="train"):
    families = Families(recipe({"id": "toy_corridor", **config}))
    tasks = families["toy_corridor"].tasks(split)
    asyncio.run(families.aclose())
    return tasks


def test_a_recipe_chooses_tasks_by_their_required_length():
    lengths = {task.required_turns for task in tasks_of({"required_turns": [2, 3]})}
    assert lengths == {2, 3}


def test_a_length_that_no_task_has_is_refused_with_those_that_there_are():
    with pytest.raises(UserError, match=r"needs 90 to 99 turns .*there are tasks of 1 to \d+ turn"):
        tasks_of({"required_turns": [90, 99]})
