"""Evaluation: held-out tasks at a full horizon, with seeds and environment instances of its own."""

from collections.abc import Sequence

import numpy as np

from scalinginter.config.schema import EvalConfig
from scalinginter.env.catalog import EnvCatalog
from scalinginter.rollout.collect import Collector, CollectPlan
from scalinginter.seeds import derive
from scalinginter.types import Task, Trajectory


def held_out_tasks(env: EnvCatalog, config: EvalConfig) -> Sequence[Task]:
    """Return the tasks to evaluate on: `num_tasks` of the split, drawn by the evaluation's seed.

    Drawn, because the order of a split may alternate between kinds of tasks.
    """
    tasks = env.tasks(config.split)
    generator = np.random.default_rng(derive("held out", config.seed))
    chosen = sorted(generator.permutation(len(tasks))[: config.num_tasks].tolist())
    return [tasks[index] for index in chosen]


async def evaluate(
    collector: Collector, tasks: Sequence[Task], config: EvalConfig, horizon: int | None = None
) -> list[Trajectory]:
    """Play every task `samples_per_task` times at `horizon` turns (default: the full horizon).

    The seeds depend on the evaluation seed, the task and the sample only: every evaluation of a run
    meets the same environments and the same random numbers, whatever the training horizon is.
    """
    plan = CollectPlan(
        tasks=tasks,
        group_size=config.samples_per_task,
        horizon=horizon or config.horizon,
        temperature=config.temperature,
        key=("eval", config.seed),
    )
    return (await collector.collect(plan)).trajectories
