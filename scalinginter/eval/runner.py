"""Evaluation: held-out tasks at a full horizon, with seeds and environment instances of its own."""

from collections.abc import Sequence

from scalinginter.config.schema import EvalConfig
from scalinginter.env.base import TextEnv
from scalinginter.rollout.collect import Collector, CollectPlan
from scalinginter.types import Task, Trajectory


def held_out_tasks(env: TextEnv, config: EvalConfig) -> Sequence[Task]:
    """Return the tasks to evaluate on: `num_tasks` of the split, spread evenly over its order."""
    tasks = env.tasks(config.split)
    count = min(config.num_tasks, len(tasks))
    return [tasks[i * len(tasks) // count] for i in range(count)]


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
