"""Evaluation: held-out tasks at a full horizon, with seeds and environment instances of its own."""

from collections.abc import Sequence

import numpy as np

from scalinginter.config.schema import EvalConfig
from scalinginter.rollout.collect import Assignment, Collector, CollectPlan
from scalinginter.rollout.family import Families
from scalinginter.seeds import derive
from scalinginter.types import Task, Trajectory


def held_out_tasks(
    families: Families, config: EvalConfig, horizon: int | None = None
) -> list[Assignment]:
    """Return the tasks to evaluate on: `num_tasks` of each environment's split, drawn by the
    evaluation's seed, under its full horizon, or under `horizon` turns times its scale.

    Drawn, because the order of a split may alternate between kinds of tasks.
    """
    return [
        Assignment(task, turns, family.name)
        for family in families
        for turns in [
            family.config.scaled(horizon) if horizon else family.config.full_horizon(config.horizon)
        ]
        for task in _drawn(family.tasks(config.split), config)
    ]


def _drawn(tasks: Sequence[Task], config: EvalConfig) -> list[Task]:
    generator = np.random.default_rng(derive("held out", config.seed))
    chosen = sorted(generator.permutation(len(tasks))[: config.num_tasks].tolist())
    return [tasks[index] for index in chosen]


def evaluation_plan(held_out: Sequence[Assignment], config: EvalConfig) -> CollectPlan:
    """Return what an evaluation plays: every task `samples_per_task` times.

    The seeds depend on the evaluation seed, the task and the sample only: every evaluation of a run
    meets the same environments and the same random numbers, whatever the training horizon is.
    """
    return CollectPlan(
        assignments=held_out,
        group_size=config.samples_per_task,
        temperature=config.temperature,
        key=("eval", config.seed),
    )


async def evaluate(
    collector: Collector, held_out: Sequence[Assignment], config: EvalConfig
) -> list[Trajectory]:
    """Play an evaluation in this process."""
    return (await collector.collect(evaluation_plan(held_out, config))).trajectories
