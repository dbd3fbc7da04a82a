"""Groups are collected whole; failures are retried on the same task and leave the statistics."""

import asyncio

import pytest

from scalinginter.config.load import validate
from scalinginter.config.schema import ChatConfig, EvalConfig
from scalinginter.env.catalog import EnvCatalog
from scalinginter.env.registry import make
from scalinginter.eval.runner import evaluate, held_out_tasks
from scalinginter.horizon import Horizon
from scalinginter.rollout.collect import Assignment, Collector, CollectPlan
from scalinginter.rollout.demonstrations import demonstrate
from scalinginter.rollout.family import Families
from scalinginter.train.metrics import rollout_metrics


@pytest.fixture
def collect(make_runner):
    """Return a function that plays groups of tasks and returns the collection."""

    def run(tasks, script=("right",), size=2, horizon=5, retries=2, concurrent=8, **options):
        runner = make_runner(list(script), **options)
        collector = Collector({"": runner}, max_concurrent=concurrent, max_retries=retries)
        assignments = [Assignment(task, horizon, "") for task in tasks]
        plan = CollectPlan(assignments, size, 1.0, ("train", 0, 7))

        async def to_end():
            collection = await collector.collect(plan)
            await runner.pool.aclose()
            return collection

        return asyncio.run(to_end())

    return run


@pytest.fixture
def tasks():
    return EnvCatalog("toy_corridor", {}, want_admissible=True).tasks("train")


def test_pitfall_10_every_group_is_of_full_size(collect, tasks):
    groups = collect(tasks[:3], size=4).groups
    assert [len(group.trajectories) for group in groups] == [4, 4, 4]


def test_pitfall_10_groups_of_the_same_task_are_told_apart(collect, tasks):
    groups = collect([tasks[0], tasks[0]]).groups
    assert groups[0].id != groups[1].id


def test_groups_come_in_the_order_of_their_tasks(collect, tasks):
    groups = collect(tasks[:5], concurrent=2).groups
    assert [group.trajectories[0].task for group in groups] == list(tasks[:5])


def test_every_episode_of_a_collection_has_a_seed_of_its_own(collect, tasks):
    trajectories = collect(tasks[:3], size=3).trajectories
    assert len({t.seed for t in trajectories}) == 9


def faulty(tasks, **params):
    return {"env": "toy_faulty", "params": params}, make("toy_faulty", **params).tasks("train")[:4]


def test_pitfall_38_a_failed_episode_is_played_again_on_the_same_task(collect, tmp_path):
    ids = [t.id for t in make("toy_faulty").tasks("train")[:2]]
    options, tasks = faulty(None, raise_on=ids, once_in=str(tmp_path))
    collection = collect(tasks, **options)
    assert [t.stop.is_failure for t in collection.trajectories] == [False] * 8
    assert collection.num_retries >= 2


def test_pitfall_13_an_episode_that_keeps_failing_leaves_the_statistics(collect):
    ids = [t.id for t in make("toy_faulty").tasks("train")[:1]]
    options, tasks = faulty(None, raise_on=ids)
    metrics = rollout_metrics(collect(tasks, retries=0, **options), {"": Horizon(5)})
    assert metrics["rollout/success"] == 1.0
    assert metrics["stop/env_error"] == pytest.approx(2 / 8)


def test_pitfall_29_a_hung_environment_does_not_hang_the_others(collect):
    ids = [t.id for t in make("toy_faulty").tasks("train")[:1]]
    options, tasks = faulty(None, hang_on=ids)
    collection = collect(tasks, retries=0, turn_timeout_s=3.0, **options)
    stops = [str(t.stop) for t in collection.trajectories]
    assert stops[2:] == ["terminated"] * 6


def test_pitfall_29_a_crashed_environment_does_not_end_the_others(collect, tmp_path):
    ids = [t.id for t in make("toy_faulty").tasks("train")[:1]]
    options, tasks = faulty(None, crash_on=ids, once_in=str(tmp_path))
    collection = collect(tasks, retries=3, **options)
    assert all(t.success for t in collection.trajectories)


def test_an_environment_can_have_fewer_places_than_the_collection(make_runner, tasks):
    runner = make_runner(["right"])
    collector = Collector({"a": runner}, max_concurrent=8, max_retries=0, limits={"a": 2})
    plan = CollectPlan([Assignment(t, 5, "a") for t in tasks[:6]], 2, 1.0, ("train",))
    asyncio.run(collector.collect(plan))
    assert runner.engine.most_alive == 2


def test_pitfall_15_groups_without_variance_are_counted(collect, tasks):
    metrics = rollout_metrics(collect(tasks[:3]), {"": Horizon(5)})
    assert metrics["rollout/zero_variance_groups"] == 3.0


def test_the_share_of_truncated_episodes_is_logged(collect, tasks):
    metrics = rollout_metrics(collect(tasks[:3], horizon=2), {"": Horizon(2)})
    assert metrics["rollout/truncated_share"] == pytest.approx(1 / 3)


def test_rewards_are_logged_by_required_length(collect, tasks):
    metrics = rollout_metrics(collect(tasks[:3], horizon=2), {"": Horizon(2)})
    assert [metrics[f"reward/by_length/{n}"] for n in (1, 2, 3)] == [1.0, 1.0, 0.0]


def corridor():
    blocks = {"horizon": {"kind": "fixed", "turns": 2}, "train": {"num_steps": 1}}
    blocks |= {"environment": {"id": "toy_corridor"}, "eval": {"horizon": 9}}
    return Families(validate(blocks, "test"))


def run_evaluation(make_runner, config, horizon=None):
    runners = {"toy_corridor": make_runner(["right"])}
    held_out = held_out_tasks(corridor(), config, horizon)
    collector = Collector(runners, max_concurrent=8, max_retries=0)
    return asyncio.run(evaluate(collector, held_out, config))


def test_pitfall_23_an_evaluation_runs_at_the_full_horizon_of_the_recipe(make_runner):
    played = run_evaluation(make_runner, EvalConfig(horizon=9, num_tasks=4))
    assert {t.horizon for t in played} == {9}


def test_pitfall_23_every_evaluation_meets_the_same_tasks_and_seeds(make_runner):
    config = EvalConfig(horizon=9, num_tasks=4)
    first, second = (run_evaluation(make_runner, config, h) for h in (9, 3))
    assert [(t.task.id, t.seed) for t in first] == [(t.task.id, t.seed) for t in second]


def test_pitfall_23_held_out_tasks_are_not_training_tasks(tasks):
    held_out = held_out_tasks(corridor(), EvalConfig(horizon=9, num_tasks=99))
    assert not {a.task.id for a in held_out} & {t.id for t in tasks}


def test_demonstrations_succeed(renderer, tasks):
    env = EnvCatalog("toy_corridor", {}, want_admissible=True)
    played = demonstrate(env, tasks[:6], renderer, ChatConfig(), 512)
    assert all(t.success for t in played)


def test_demonstrations_that_do_not_fit_the_context_are_left_out(renderer, tasks):
    env = EnvCatalog("toy_corridor", {}, want_admissible=True)
    played = demonstrate(env, tasks[:6], renderer, ChatConfig(), 10)
    assert played == []


def test_a_demonstration_under_the_constraint_records_what_was_allowed(renderer, tasks):
    env = EnvCatalog("toy_corridor", {}, want_admissible=True)
    chat = ChatConfig(constrain_to_admissible=True)
    [played] = demonstrate(env, tasks[:1], renderer, chat, 512)
    completion = played.turns[0].completion
    assert completion.forced == (False, True)
    assert len(completion.allowed[0]) == 2


def test_the_rest_of_a_group_is_cut_off_when_it_takes_too_long(make_runner, tasks):
    runner = make_runner(["right"])
    generate = runner.engine.generate

    async def slow(request):
        if request.session.endswith("#3"):
            await asyncio.sleep(3600)
        return await generate(request)

    runner.engine.generate = slow
    collector = Collector({"": runner}, max_concurrent=8, max_retries=2, straggler_timeout_s=1.0)
    plan = CollectPlan([Assignment(tasks[0], 5, "")], 4, 1.0, ("train",))
    [group] = asyncio.run(collector.collect(plan)).groups
    assert [str(t.stop) for t in group.trajectories] == ["terminated"] * 3 + ["timeout"]
    assert runner.turns_in_play == []


def test_pitfall_38_a_group_is_waited_for_unless_the_recipe_says_otherwise(make_runner, tasks):
    runner = make_runner(["right"])
    generate, others = runner.engine.generate, asyncio.Event()

    async def last(request):
        if request.session.endswith("#3"):
            await others.wait()
        elif request.session.endswith("#2"):
            asyncio.get_running_loop().call_later(0.1, others.set)
        return await generate(request)

    runner.engine.generate = last
    collector = Collector({"": runner}, max_concurrent=8, max_retries=0)
    plan = CollectPlan([Assignment(tasks[0], 5, "")], 4, 1.0, ("train",))
    [group] = asyncio.run(collector.collect(plan)).groups
    assert [str(t.stop) for t in group.trajectories] == ["terminated"] * 4
