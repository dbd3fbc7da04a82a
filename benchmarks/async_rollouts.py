"""What it gains not to wait: `python benchmarks/async_rollouts.py [rollouts] [training]`.

    rollouts   32 episodes of 8 turns of 12 tokens in an environment that takes its time: every
               episode on its own, against lockstep (a batch waits for every environment)
    training   TextCraft in an environment that takes its time: seconds to a success rate and who
               waits for whom, synchronous against ahead of the learner by 1 and 2 updates

Latencies are fixed per call, or drawn with a long tail (log-normal with sigma 1, same mean).
"""

import argparse
import asyncio
import json
import math
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

from environments.game.textcraft.env import TextCraft
from scalinginter.config.load import validate
from scalinginter.config.schema import Recipe
from scalinginter.env.base import TextEnv
from scalinginter.env.toy import ToyForced
from scalinginter.rollout.collect import Assignment, CollectPlan
from scalinginter.rollout.family import Families
from scalinginter.rollout.stack import RolloutStack, load_recipe_policy
from scalinginter.train.run import run_training

HERE = Path(__file__).parent
LATENCIES_MS = (0.0, 20.0, 200.0)


class _Slow:
    """Sleeps before every answer; how long is drawn by what it is asked."""

    def __init__(self, latency_ms: float, tail: bool) -> None:
        self._latency_s, self._tail = latency_ms / 1000, tail

    def sleep(self, *key: object) -> None:
        factor = 1.0
        if self._tail:
            factor = math.exp(random.Random(repr(key)).gauss(-0.5, 1.0))  # mean 1
        time.sleep(self._latency_s * factor)


class SlowForced(ToyForced):
    """Runs to the horizon, whatever is said, and takes its time."""

    isolation: ClassVar[Any] = "thread"

    def __init__(self, *, latency_ms: float = 0.0, tail: bool = False, num_tasks: int = 64) -> None:
        super().__init__(num_tasks=num_tasks)
        self._slow = _Slow(latency_ms, tail)

    def step(self, action: str) -> Any:
        self._slow.sleep(self._number, self._turns, action)
        return super().step(action)


class SlowCraft(TextCraft):
    """TextCraft that takes its time."""

    isolation: ClassVar[Any] = "thread"

    def __init__(self, *, latency_ms: float = 0.0, tail: bool = False, **params: Any) -> None:
        super().__init__(**params)
        self._slow, self._calls = _Slow(latency_ms, tail), 0

    def step(self, action: str) -> Any:
        self._calls += 1
        self._slow.sleep(self._calls, action)
        return super().step(action)


def _environment(kind: type[TextEnv], **params: Any) -> dict[str, Any]:
    return {"id": f"async_rollouts:{kind.__name__}", "params": params, "max_concurrent": 128}


def rollouts(repeats: int) -> list[dict[str, Any]]:
    """Time 4 groups of 8 episodes; return a row per latency."""
    rows = []
    for tail in (False, True):
        for latency in LATENCIES_MS[tail:]:
            row = {"latency_ms": latency, "tail": tail, **_rollout_seconds(latency, tail, repeats)}
            rows.append(row)
            print(f"  {row}", flush=True)
    return rows


def _rollout_seconds(latency_ms: float, tail: bool, repeats: int) -> dict[str, float]:
    """Medians of both ways, which take turns so that other load on the machine meets both."""
    recipes = {name: _rollout_recipe(latency_ms, tail, name) for name in ("lockstep", "free")}
    seconds: dict[str, list[float]] = {name: [] for name in recipes}
    with asyncio.Runner() as runner:
        stacks = {}
        for name, recipe in recipes.items():
            families = Families(recipe, runner.run)
            stacks[name] = RolloutStack(recipe, load_recipe_policy(recipe, families), families)
        collectors = {name: stack.collector() for name, stack in stacks.items()}
        for number in range(repeats + 1):
            for name, stack in stacks.items():
                [family] = list(stack.families)
                work = [Assignment(task, 8, family.name) for task in family.tasks("train")[:4]]
                started = time.perf_counter()
                plan = CollectPlan(work, 8, 1.0, ("bench", number))
                runner.run(collectors[name].collect(plan))
                seconds[name].append(time.perf_counter() - started)
        for stack in stacks.values():
            runner.run(stack.aclose())
    return {f"{name}_s": round(statistics.median(v[1:]), 3) for name, v in seconds.items()}


def _rollout_recipe(latency_ms: float, tail: bool, name: str) -> Recipe:
    return validate(
        {
            "environment": _environment(SlowForced, latency_ms=latency_ms, tail=tail),
            "model": {"path": "tiny:small"},
            "rollout": {"max_tokens_per_turn": 12, "deterministic": name == "lockstep"},
            "horizon": {"kind": "fixed", "turns": 8},
            "train": {"num_steps": 1},
            "eval": {"horizon": 8},
        },
        "benchmark",
    )


def training(level: float, seeds: int, turns: int) -> list[dict[str, Any]]:
    """Train to a success rate; return a row per latency and staleness: medians over the seeds."""
    rows = []
    for latency, tail in ((0.0, False), (20.0, True)):
        for staleness in (0, 1, 2):
            runs = [_train(latency, tail, staleness, seed, level, turns) for seed in range(seeds)]
            row: dict[str, Any] = {"latency_ms": latency, "tail": tail, "max_staleness": staleness}
            reached = [run["seconds"] for run in runs if run["seconds"] is not None]
            row |= {"reached": f"{len(reached)} of {seeds}"}
            row |= {"seconds": round(statistics.median(reached), 1) if reached else None}
            for name in ("step_s", "learner_idle_share", "lag_mean"):
                row[name] = round(statistics.mean(run[name] for run in runs), 3)
            rows.append(row)
            print(f"  {row}", flush=True)
    return rows


def _train(
    latency_ms: float, tail: bool, staleness: int, seed: int, level: float, turns: int
) -> dict[str, Any]:
    params = {"brief": True, "min_depth": 1, "max_depth": 2, "num_goals": 2}
    config = {
        "seed": seed,
        "environment": _environment(SlowCraft, latency_ms=latency_ms, tail=tail, **params),
        "model": {"path": "tiny:small"},
        "chat": {"constrain_to_admissible": True},
        "rollout": {
            "num_tasks": 8,
            "group_size": 8,
            "max_tokens_per_turn": 12,
            "max_context": 512,
            "max_staleness": staleness,
            "deterministic": False,
        },
        "horizon": {"kind": "fixed", "turns": 10},
        "train": {"budget": {"turns": turns}, "learning_rate": 1e-3},
        "eval": {"horizon": 10, "times": 16, "num_tasks": 48},
        "checkpoint": {"every": None},
        "track": {"mlflow": False, "episodes": False},
    }
    with tempfile.TemporaryDirectory() as folder:
        run_training(config, Path(folder) / "run", quiet=True)
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    steps = [r["metrics"] for r in records if r["stage"] == "train"]
    passed = (
        r["metrics"]["cost/seconds"]
        for r in records
        if r["stage"] == "eval" and r["metrics"]["eval/success"] >= level
    )
    waits = [m["time/rollout_s"] / (m["time/rollout_s"] + m["time/update_s"]) for m in steps]
    return {
        "seconds": next(passed, None),
        "step_s": statistics.mean(m["time/step_s"] for m in steps),
        "learner_idle_share": statistics.mean(waits),
        "lag_mean": statistics.mean(m.get("async/lag_mean", 0.0) for m in steps),
    }


def main() -> None:
    """Run what is asked for and write `baselines/async_rollouts.json`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["rollouts", "training"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--level", type=float, default=0.7, help="success rate to reach")
    parser.add_argument("--turns", type=int, default=5_000, help="budget of each training")
    options = parser.parse_args()
    target = HERE / "baselines" / "async_rollouts.json"
    results = json.loads(target.read_text()) if target.exists() else {}
    for part in options.parts:
        print(part, flush=True)
        if part == "rollouts":
            results[part] = rollouts(options.repeats)
        else:
            found = training(options.level, options.seeds, options.turns)
            results[part] = {"level": options.level, "seeds": options.seeds, "rows": found}
        target.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    import async_rollouts  # environments are found by the name of their module

    async_rollouts.main()
