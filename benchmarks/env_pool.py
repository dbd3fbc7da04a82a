"""Steps a second and latency of the environment pool with many episodes at once.

The environment is a corridor of a few microseconds a step (`toy_faulty` without a fault is the same
corridor in worker processes), so that the figures are those of the pool.

python benchmarks/env_pool.py                      a cheap environment, 64 episodes
python benchmarks/env_pool.py --workers 1,2,4      other numbers of worker processes
"""

import argparse
import asyncio
import resource
import time

from scalinginter.env.pool import EnvPool, EnvSession
from scalinginter.env.toy import ToyCorridor


async def episode(session: EnvSession, steps: int, latencies_s: list[float]) -> None:
    """Walk on the spot for `steps` turns."""
    for _ in range(steps):
        start = time.perf_counter()
        await session.step("left")
        latencies_s.append(time.perf_counter() - start)


async def measure(env_id: str, workers: int, sessions: int, steps: int) -> dict[str, float]:
    """Run all episodes at once; return the figures of one line of the table."""
    pool = EnvPool(
        env_id,
        {"max_length": 8},
        num_workers=workers,
        turn_timeout_s=30.0,
        reset_timeout_s=60.0,
        want_admissible=True,
    )
    task = ToyCorridor(max_length=8).tasks("train")[7]
    start = time.perf_counter()
    opened = [await pool.open(task, seed=i, horizon=steps) for i in range(sessions)]
    opening_s = time.perf_counter() - start
    latencies_s: list[float] = []
    start, cpu_start_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*[episode(session, steps, latencies_s) for session in opened])
    elapsed_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start_s
    await pool.aclose()
    latencies_s.sort()
    return {
        "steps/s": sessions * steps / elapsed_s,
        "p50 ms": 1e3 * latencies_s[len(latencies_s) // 2],
        "p95 ms": 1e3 * latencies_s[int(0.95 * len(latencies_s))],
        "CPU us": 1e6 * cpu_s / (sessions * steps),
        "start s": opening_s,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2", help="numbers of worker processes")
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200, help="of one episode")
    options = parser.parse_args()
    rows = [("inline", "toy_corridor", 1)]
    rows += [(f"process x{n}", "toy_faulty", int(n)) for n in options.workers.split(",")]
    print(f"{options.sessions} episodes at once, {options.steps} steps each")
    print("| way | steps/s | p50 ms | p95 ms | CPU us | start s |\n|---|---|---|---|---|---|")
    for name, env_id, workers in rows:
        figures = asyncio.run(measure(env_id, workers, options.sessions, options.steps))
        print(f"| {name} | " + " | ".join(f"{value:.4g}" for value in figures.values()) + " |")
    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print("CPU us: of the trainer's process, for one step")
    print(f"largest worker: {peak_kib / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
