"""One process against several: `python benchmarks/processes.py [--processes 2] [--steps 6]`.

The same training, step by step, in one process and in several of one thread each: wall seconds a
step, and CPU-seconds a step of the process that has most to do. On a machine with other work to do
the second is what a step would take on free cores, waiting for each other left out.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

from scalinginter.compare.jobs import Events, Job, run_jobs
from scalinginter.compare.run import PRELOAD
from scalinginter.config.load import recipe_dict, validate

BASELINE = Path(__file__).resolve().parent / "baselines" / "processes.json"
WARM_UP = 1  # steps that are not counted
GOAL = 1.6


def recipe(steps, turns):
    """Episodes of a fixed number of turns; every generated token is trained."""
    return {
        "name": "processes",
        "environment": {"id": "toy_forced", "params": {"length": turns}},
        "horizon": {"kind": "fixed", "turns": turns},
        "model": {"path": "tiny:base", "device": "cpu"},
        "rollout": {
            "num_tasks": 16,
            "group_size": 8,
            "max_tokens_per_turn": 20,
            "max_context": 1024,
        },
        "algorithm": {"entropy_bonus": 0.001},  # no token is left out for its advantage of 0
        "train": {"num_steps": steps, "learning_rate": 1e-4, "micro_batch_tokens": 2048},
        "eval": {"horizon": turns, "num_tasks": 1},
        "checkpoint": {"every": None},
        "track": {"mlflow": False, "episodes": False},
    }


def measured(config, run_dir, clocks):
    """Train and write down what every step took, wall and CPU, in this process."""
    from scalinginter.train.loop import Trainer
    from scalinginter.train.run import run_training

    step, taken = Trainer.step, []

    def timed(trainer):
        started = time.perf_counter(), time.process_time()
        step(trainer)
        taken.append([time.perf_counter() - started[0], time.process_time() - started[1]])

    Trainer.step = timed
    code = run_training(config, run_dir, quiet=True)
    (Path(clocks) / os.environ.get("RANK", "0")).write_text(json.dumps(taken))
    return code


def run(processes, config, folder):
    """Return medians over the steps after the first: wall, most CPU of a process, CPU of all."""
    clocks = folder / f"clocks{processes}"
    clocks.mkdir()
    arguments = {"config": config, "run_dir": folder / f"run{processes}", "clocks": str(clocks)}
    codes = []
    events = Events(
        lambda job: None, lambda job, code: codes.append(code), lambda jobs: None, lambda jobs: None
    )
    job = Job(f"{processes} processes", arguments, folder / f"log{processes}", processes)
    run_jobs([job], "processes:measured", 1, PRELOAD, events)
    assert codes == [0], job.log.read_text()
    ranks = [json.loads(path.read_text())[WARM_UP:] for path in clocks.iterdir()]
    steps = list(zip(*ranks, strict=True))
    return {
        "wall_s": statistics.median(max(wall for wall, _ in step) for step in steps),
        "most_cpu_s": statistics.median(max(cpu for _, cpu in step) for step in steps),
        "all_cpu_s": statistics.median(sum(cpu for _, cpu in step) for step in steps),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2, help="of one, then several; best counts")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    config = recipe_dict(validate(recipe(options.steps, options.turns), "benchmark"))
    before = os.getloadavg()[0]
    rounds = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            rounds.append({n: run(n, config, Path(folder)) for n in (1, options.processes)})
    one, several = (
        {key: min(r[n][key] for r in rounds) for key in rounds[0][n]}
        for n in (1, options.processes)
    )
    result = {
        "what": "medians over steps, the least of the rounds",
        "processes": options.processes,
        "turns": options.turns,
        "one": one,
        "several": several,
        "speedup_wall": one["wall_s"] / several["wall_s"],
        "speedup_cpu": one["most_cpu_s"] / several["most_cpu_s"],
        "goal": GOAL,
        "load_before_and_after": [before, os.getloadavg()[0]],
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.date.today().isoformat(),
    }
    for name, row in (("one process", one), (f"{options.processes} processes", several)):
        print(
            f"{name:14} {row['wall_s']:7.2f} s a step, {row['most_cpu_s']:6.2f} CPU-seconds in the "
            f"busiest process, {row['all_cpu_s']:6.2f} in all"
        )
    print(
        f"speed-up: {result['speedup_wall']:.2f} by the clock, {result['speedup_cpu']:.2f} by the "
        f"busiest process (goal {GOAL} on free cores); load {before:.1f}"
    )
    BASELINE.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
