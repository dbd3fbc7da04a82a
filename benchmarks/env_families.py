"""Every environment with many episodes at once: steps a second, latency, memory of its workers.

python benchmarks/env_families.py                         all that are installed
python benchmarks/env_families.py --ids textcraft,sql     some of them
python benchmarks/env_families.py --ids toy_corridor,toy_faulty    the pool itself: a corridor of
    a few microseconds a step, in the event loop and in worker processes
python benchmarks/env_families.py --write                 keep it in baselines/env_families.json

An episode is the expert's plan on a test task, again and again until it has made `--steps` steps.
A step's latency is what an episode waits for: with workers, its turn in their queue included.
`CPU ms` is what a step and its share of the resets cost the trainer's process, `load` is that of
the machine.
"""

import argparse
import asyncio
import datetime
import json
import os
import time
from pathlib import Path
from typing import Any

from scalinginter.env.catalog import EnvCatalog
from scalinginter.env.describe import resident_mib
from scalinginter.env.pool import EnvPool
from scalinginter.env.registry import environment_ids, make
from scalinginter.errors import RunFailedError, UserError

BASELINE = Path(__file__).parent / "baselines" / "env_families.json"
SKIPPED = ("agentgym", "agentrl", "remote")  # need a server


async def play(
    pool: EnvPool, plans: list[tuple[Any, tuple[str, ...]]], first: int, options: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """One of the concurrent episodes; returns the seconds of its resets and of its steps."""
    resets_s: list[float] = []
    steps_s: list[float] = []
    while len(steps_s) < options.steps:
        task, plan = plans[(first + len(resets_s)) % len(plans)]
        start = time.perf_counter()
        session = await pool.open(task, seed=0, horizon=len(plan))
        resets_s.append(time.perf_counter() - start)
        for action in plan[: options.steps - len(steps_s)]:
            start = time.perf_counter()
            observation = await session.step(action)
            steps_s.append(time.perf_counter() - start)
            if observation.terminated:
                break
        await session.close()
    return resets_s, steps_s


def measure(env_id: str, options: argparse.Namespace) -> dict[str, float | str]:
    """Return one line of the table."""
    limits = {"reset_timeout_s": 300.0, "want_admissible": False}
    catalog = EnvCatalog(env_id, {}, **limits)
    tasks = catalog.tasks("test")
    chosen = tasks[:: max(1, len(tasks) // options.plans)][: options.plans]
    played = [(task, catalog.expert(task)) for task in chosen]
    plans = [(task, episode.plan) for task, episode in played if episode is not None]
    asyncio.run(catalog.aclose())
    if not plans:
        raise UserError("no expert")
    isolation = make(env_id).isolation
    before = resident_mib()
    pool = EnvPool(env_id, {}, num_workers=options.workers, turn_timeout_s=120.0, **limits)

    async def run() -> tuple[list[tuple[list[float], list[float]]], float, float, float]:
        start, cpu_start_s = time.perf_counter(), time.process_time()
        games = [play(pool, plans, i, options) for i in range(options.episodes)]
        done = await asyncio.gather(*games)
        elapsed_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start_s
        memory = resident_mib() - before
        await pool.aclose()
        return done, elapsed_s, cpu_s, memory

    done, elapsed_s, cpu_s, memory = asyncio.run(run())
    resets_s = sorted(second for resets, _ in done for second in resets)
    steps_s = sorted(second for _, steps in done for second in steps)
    return {
        "steps": len(steps_s),
        "isolation": isolation if isolation == "inline" else f"{isolation} x{options.workers}",
        "steps/s": len(steps_s) / elapsed_s,
        "step p50 ms": 1e3 * steps_s[len(steps_s) // 2],
        "step p95 ms": 1e3 * steps_s[int(0.95 * len(steps_s))],
        "reset p95 ms": 1e3 * resets_s[int(0.95 * len(resets_s))],
        "CPU ms": 1e3 * cpu_s / len(steps_s),
        "MiB": memory,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Print the table, line by line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", help="environments, separated by commas; default: all")
    parser.add_argument("--episodes", type=int, default=64, help="at once")
    parser.add_argument("--steps", type=int, default=50, help="of each of them")
    parser.add_argument("--plans", type=int, default=8, help="test tasks that are played")
    parser.add_argument("--workers", type=int, default=2, help="processes, where they are needed")
    parser.add_argument("--write", action="store_true", help=f"write {BASELINE.name}")
    options = parser.parse_args()
    ids = options.ids.split(",") if options.ids else environment_ids()
    table: dict[str, dict[str, float | str]] = {}
    for env_id in ids:
        if env_id in SKIPPED:
            continue
        try:
            table[env_id] = measure(env_id, options)
        except (UserError, RunFailedError) as error:
            print(f"{env_id}: left out: {str(error).splitlines()[0]}", flush=True)
            continue
        if len(table) == 1:
            print(f"| id | {' | '.join(table[env_id])} |\n|---|{'---|' * len(table[env_id])}")
        cells = [v if isinstance(v, str) else f"{v:.3g}" for v in table[env_id].values()]
        print(f"| {env_id} | {' | '.join(cells)} |", flush=True)
        if options.write:
            keep(table)


def keep(table: dict[str, dict[str, float | str]]) -> None:
    """Write what was measured into the baseline; other rows stay."""
    before = json.loads(BASELINE.read_text())["table"] if BASELINE.exists() else {}
    about = {
        "command": "python benchmarks/env_families.py --write",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
    }
    rows = dict(sorted((before | table).items()))
    BASELINE.write_text(json.dumps({"about": about, "table": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
