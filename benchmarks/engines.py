"""Rollouts of both engines: `python benchmarks/engines.py [--parts throughput latency] ...`.

    throughput  tokens and episodes a second, and the share of contexts out of the prefix cache:
                horizons x latencies of the environment, for the local engine (every episode on its
                own, and in lockstep: a batch waits for every environment) and for SGLang
    latency     wall seconds that 20 ms of environment latency add to 32 episodes of 8 turns

Every answer has exactly `--tokens` tokens and every episode runs to the horizon. SGLang is a real
server: on a machine without a GPU the one that `make sglang-cpu` installs. Rows are added to
`baselines/engines.json`, each with the machine, the day and the load.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from scalinginter.config.load import validate
from scalinginter.engine.base import GenerateRequest
from scalinginter.rollout.collect import Assignment, CollectPlan
from scalinginter.rollout.family import Families
from scalinginter.rollout.prefix_cache import prefix_cache_metrics
from scalinginter.rollout.stack import RolloutStack, load_recipe_policy
from scalinginter.types import Completion

HERE = Path(__file__).parent
ROOT = HERE.parent
BASELINE = HERE / "baselines" / "engines.json"
WAYS = ("lockstep", "local", "sglang")
GROUP = 8  # episodes


class FullLength:
    """An engine whose answers are as long as they may be: a stop id on the way ends nothing."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, request: GenerateRequest) -> Completion:
        return await self._engine.generate(replace(request, min_new_tokens=request.max_new_tokens))


@dataclass
class Bench:
    """One engine that is up, with environments of several latencies."""

    way: str
    model: str
    stack: RolloutStack
    runner: asyncio.Runner
    tokens: int
    count: int = 0

    def play(self, episodes: int, horizon: int, latency_ms: float) -> dict[str, float]:
        """Play groups of 8; return seconds and what came out."""
        name = f"ms{latency_ms:g}"
        family, self.count = self.stack.families[name], self.count + 1
        tasks = family.tasks("train")[: max(1, episodes // GROUP)]
        work = [Assignment(task, horizon, name) for task in tasks]
        plan = CollectPlan(work, min(GROUP, episodes), 1.0, ("bench", self.count))
        collector = self.stack.collector()
        started = time.perf_counter()
        played = self.runner.run(collector.collect(plan)).trajectories
        seconds = time.perf_counter() - started
        failed = [t.error or str(t.stop) for t in played if t.stop != "horizon"]
        if failed:
            raise SystemExit(
                f"{self.way}: {len(failed)} episodes failed, the first one: {failed[0]}"
            )
        tokens = sum(t.num_generated_tokens for t in played)
        assert tokens == len(played) * horizon * self.tokens
        return {
            "seconds": seconds,
            "tokens_per_s": tokens / seconds,
            "episodes_per_s": len(played) / seconds,
            **prefix_cache_metrics(played),
        }


@contextlib.contextmanager
def engine_up(
    way: str, options: argparse.Namespace, model: str, latencies: list[float]
) -> Iterator[Bench]:
    """Build an engine and bring it up."""
    recipe = validate(_recipe(way, options, model, latencies), "benchmark")
    torch.set_num_threads(1)
    with asyncio.Runner() as runner:
        families = Families(recipe, runner.run)
        stack = RolloutStack(recipe, load_recipe_policy(recipe, families), families)
        stack.engine = FullLength(stack.engine)
        bench = Bench(way, model, stack, runner, options.tokens)
        try:
            runner.run(stack.start())
            bench.play(GROUP, 2, latencies[0])  # the first batch of a kind is slower
            yield bench
        finally:
            runner.run(stack.aclose())


def _recipe(
    way: str, options: argparse.Namespace, model: str, latencies: list[float]
) -> dict[str, Any]:
    engine: dict[str, Any] = {"kind": "local"}
    small = model.startswith("tiny:")
    if way == "sglang":
        python = os.environ.get("SCALINGINTER_SGLANG_PYTHON", ROOT / ".venv-sglang/bin/python")
        command = [] if options.gpu else [str(python), str(ROOT / ".ci" / "sglang_cpu.py")]
        # Room for all episodes at once: else the server computes contexts again.
        room = [] if options.gpu else ["--max-total-tokens", "65536" if small else "16384"]
        launch = {"command": command, "args": room}
        engine = {"kind": "sglang", "start_timeout_s": 1800, "launch": launch}
    longest = max(options.horizons)
    return {
        "environments": [
            {
                "name": f"ms{latency:g}",
                "id": "async_rollouts:SlowForced",
                "params": {"latency_ms": latency},
                "max_concurrent": 256,
            }
            for latency in latencies
        ],
        "model": {"path": model},
        "engine": engine,
        "rollout": {
            "max_tokens_per_turn": options.tokens,
            "max_context": 256 + longest * (options.tokens + 64),
            "max_concurrent": 256,
            "deterministic": way == "lockstep",
            "episode_timeout_s": 3600,
        },
        "horizon": {"kind": "fixed", "turns": longest},
        "train": {"num_steps": 1},
        "eval": {"horizon": longest},
    }


def throughput(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row per model, engine, horizon and latency."""
    for model in options.models:
        small = model.startswith("tiny:")
        episodes = options.episodes if small else options.large_episodes
        horizons = options.horizons if small else options.large_horizons
        for way in options.engines:
            with engine_up(way, options, model, options.latencies) as bench:
                for horizon in horizons:
                    for latency in options.latencies:
                        got = bench.play(episodes, horizon, latency)
                        yield {
                            "model": model,
                            "engine": way,
                            "horizon": horizon,
                            "latency_ms": latency,
                            "episodes": episodes,
                        } | _rounded(got)


def latency(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield, for each engine, what 20 ms add to 32 episodes of 8 turns: the median over pairs of
    rollouts that follow each other, so that other load on the machine meets both."""
    for way in options.engines:
        with engine_up(way, options, options.models[0], [0.0, 20.0]) as bench:
            seconds = [
                [bench.play(32, 8, ms)["seconds"] for ms in (0.0, 20.0)]
                for _ in range(options.repeats)
            ]
        yield {
            "model": options.models[0],
            "engine": way,
            "seconds_0_ms": round(statistics.median(zero for zero, _ in seconds), 2),
            "seconds_20_ms": round(statistics.median(twenty for _, twenty in seconds), 2),
            "added_s": round(statistics.median(twenty - zero for zero, twenty in seconds), 2),
            "least_added_s": round(min(b for _, b in seconds) - min(a for a, _ in seconds), 2),
            "repeats": options.repeats,
        }


def _rounded(values: dict[str, float]) -> dict[str, float]:
    digits = {"tokens_per_s": 0, "rollout/cached_tokens": 0}
    short = {name: name.removeprefix("rollout/") for name in values}
    return {short[name]: round(value, digits.get(name, 3)) for name, value in values.items()}


def main() -> None:
    """Run what is asked for and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--parts", nargs="+", default=["throughput", "latency"], choices=["throughput", "latency"])
    add("--models", nargs="+", default=["tiny:small", "smollm2"])
    add("--engines", nargs="+", default=list(WAYS), choices=WAYS)
    add("--horizons", nargs="+", type=int, default=[5, 10, 20, 40])
    add("--large-horizons", nargs="+", type=int, default=[5], help="of models that are not tiny")
    add("--latencies", nargs="+", type=float, default=[0.0, 20.0, 200.0], help="milliseconds")
    add("--episodes", type=int, default=32)
    add("--large-episodes", type=int, default=8, help="of models that are not tiny")
    add("--tokens", type=int, default=12, help="of every answer")
    add("--repeats", type=int, default=5, help="pairs of the part latency")
    add("--gpu", action="store_true", help="SGLang as installed beside this package")
    add("--output", type=Path, default=BASELINE, help="rows are added to this file")
    options = parser.parse_args()
    found = json.loads(options.output.read_text()) if options.output.exists() else {}
    machine = f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"
    for part in options.parts:
        print(part, flush=True)
        for row in {"throughput": throughput, "latency": latency}[part](options):
            row |= {"load": round(os.getloadavg()[0], 1)}
            row |= {"day": datetime.date.today().isoformat(), "machine": machine}
            print(f"  {row}", flush=True)
            same = ("model", "engine", "horizon", "latency_ms")
            kept = [r for r in found.get(part, []) if any(r.get(k) != row.get(k) for k in same)]
            found[part] = [*kept, row]
            options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
