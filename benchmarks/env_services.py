"""Steps a second and latency of 64 episodes at once: here, in processes, behind servers.

The environment is a corridor of a few microseconds a step (`toy_faulty` without a fault is the same
corridor in worker processes), so that the figures are those of the way to it. Servers run in a
process of their own on this machine.

python benchmarks/env_services.py                          writes baselines/env_services.json, too
python benchmarks/env_services.py --output '' --steps 50   the table alone, soon
"""

import argparse
import asyncio
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scalinginter.env.pool import EnvPool, EnvSession
from scalinginter.env.toy import ToyCorridor

MAX_LENGTH = 8
BASELINE = Path(__file__).parent / "baselines" / "env_services.json"
COMMAND = "import sys; from scalinginter.cli.main import main; sys.exit(main())"


@contextmanager
def server(sessions: int) -> Iterator[tuple[int, int]]:
    """Serve the corridor; yield the server's port and process id."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        limits = ["--max-sessions", str(2 * sessions), "--port-file", str(port_file)]
        arguments = ["serve-env", "toy_corridor", "--param", f"max_length={MAX_LENGTH}", *limits]
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments], stdout=subprocess.DEVNULL
        )
        try:
            while not port_file.exists():
                if process.poll() is not None:
                    raise SystemExit("the server did not start")
                time.sleep(0.05)
            yield int(port_file.read_text()), process.pid
        finally:
            process.terminate()
            process.wait()


async def episode(session: EnvSession, steps: int, latencies_s: list[float]) -> None:
    """Walk on the spot for `steps` turns."""
    for _ in range(steps):
        start = time.perf_counter()
        await session.step("left")
        latencies_s.append(time.perf_counter() - start)


async def measure(pool: EnvPool, sessions: int, steps: int) -> dict[str, float]:
    """Run all episodes at once; return the figures of one line of the table."""
    task = ToyCorridor(max_length=MAX_LENGTH).tasks("train")[MAX_LENGTH - 1]
    start = time.perf_counter()
    opened = await asyncio.gather(
        *[pool.open(task, seed=i, horizon=steps) for i in range(sessions)]
    )
    opening_s = time.perf_counter() - start
    await asyncio.gather(*[episode(session, 3, []) for session in opened])  # warm up
    latencies_s: list[float] = []
    start, cpu_start_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*[episode(session, steps, latencies_s) for session in opened])
    elapsed_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start_s
    for session in opened:
        await session.close()
    await pool.aclose()
    latencies_s.sort()
    return {
        "steps_per_s": sessions * steps / elapsed_s,
        "p50_ms": 1e3 * latencies_s[len(latencies_s) // 2],
        "p95_ms": 1e3 * latencies_s[int(0.95 * len(latencies_s))],
        "cpu_us": 1e6 * cpu_s / (sessions * steps),
        "start_s": opening_s,
    }


def run(env_id: str, params: dict, options: argparse.Namespace, **how: object) -> dict[str, float]:
    """Measure one way to the corridor."""
    pool = EnvPool(
        env_id,
        params,
        num_workers=options.workers,
        turn_timeout_s=60.0,
        reset_timeout_s=120.0,
        want_admissible=False,
        **how,
    )
    return asyncio.run(measure(pool, options.sessions, options.steps))


def one_round(options: argparse.Namespace, port: int, pid: int) -> dict[str, dict[str, float]]:
    """Measure every way once, so that other load on the machine meets them all."""
    corridor = {"max_length": MAX_LENGTH}
    results = {
        "inline": run("toy_corridor", corridor, options),
        "thread": run("toy_corridor", corridor, options, inline_in_threads=True),
        f"process x{options.workers}": run("toy_faulty", corridor, options),
    }
    for name, scheme in (("HTTP", "http"), ("websocket", "ws")):
        before_s = cpu_of(pid)
        figures = run("remote", {"url": f"{scheme}://127.0.0.1:{port}"}, options)
        taken_s = cpu_of(pid) - before_s  # with the opening and the warm-up
        figures["server_cpu_us"] = 1e6 * taken_s / (options.sessions * options.steps)
        results[name] = figures
    return results


def cpu_of(pid: int) -> float:
    """Return the CPU seconds that a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def server_memory_mib(pid: int) -> float:
    """Return the resident memory of a process (Linux)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def machine() -> dict[str, object]:
    """Return what the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(": ")[1] for line in lines if line.startswith("model name")), "?")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    """Print the table and write the baseline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100, help="of one episode")
    parser.add_argument("--rounds", type=int, default=5, help="medians are over these")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--output", default=str(BASELINE), help="JSON file; '' writes none")
    options = parser.parse_args()
    about = machine()
    with server(options.sessions) as (port, pid):
        rounds = [one_round(options, port, pid) for _ in range(options.rounds)]
        memory_mib = server_memory_mib(pid)
    results = {
        name: {key: statistics.median(r[name][key] for r in rounds) for key in figures}
        for name, figures in rounds[0].items()
    }
    print(
        f"{options.sessions} episodes at once, {options.steps} steps each, "
        f"medians of {options.rounds} rounds"
    )
    print("| way | steps/s | p50 ms | p95 ms | CPU us | start s | server CPU us |")
    print("|---|---|---|---|---|---|---|")
    for name, figures in results.items():
        print(f"| {name} | " + " | ".join(f"{value:.4g}" for value in figures.values()) + " |")
    print("CPU us: of this process, for one step. The server's memory: " + f"{memory_mib:.0f} MiB")
    if options.output:
        record = {
            "date": datetime.date.today().isoformat(),
            "machine": about,
            "command": "python benchmarks/env_services.py",
            "sessions": options.sessions,
            "steps": options.steps,
            "rounds": options.rounds,
            "server_memory_mib": round(memory_mib, 1),
            "results": {
                name: {key: round(value, 3) for key, value in figures.items()}
                for name, figures in results.items()
            },
        }
        Path(options.output).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
