"""Where the time of an update goes, and how far it is from what the machine can multiply.

`python benchmarks/update.py` plays one step of the workload of `trl_comparison.py`, repeats its
update, and prints CPU-seconds by kind of work, floating-point operations, and the rate of a large
matrix product on the same thread, which no update can beat.
"""

import argparse
import datetime
import json
import os
import tempfile
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from trl_comparison import SHAPES, VOCABULARY, cpu_model
from trl_ours import trainer_of

BASELINE = Path(__file__).resolve().parent / "baselines" / "update.json"
KINDS = [  # of operators, by a part of their name; the first that fits
    ("attention", ("scaled_dot_product", "flash_attention")),
    ("matrix products", ("::mm", "::addmm", "::bmm", "::baddbmm", "::linear")),
    ("optimizer", ("adam", "_foreach", "clip")),
]
ATTENTION = ("scaled_dot_product",)


def limit() -> float:
    """Floating-point operations a second of a product of two 1024 x 1024 matrices, at its best."""
    a, best = torch.randn(1024, 1024), float("inf")
    for _ in range(20):
        start = time.process_time()
        a @ a
        best = min(best, time.process_time() - start)
    return 2 * 1024**3 / best


def rows_of_a_step(trainer) -> list:
    """Take one step; return the rows that it trained on."""
    kept, update = [], trainer.learner.update

    def keep(rows):
        kept.extend(rows)
        return update(rows)

    trainer.learner.update = keep
    trainer.step()
    trainer.learner.update = update
    return kept


def attention_operations(rows, shape: dict[str, int]) -> float:
    """Of causal attention, forward (2 products) and backward (5); a prompt counts once a group."""

    def pairs(length: int) -> float:
        return length * (length + 1) / 2

    prompts = {row.group_id: row.prefix_length for row in rows}
    own = sum(pairs(len(row)) - pairs(row.prefix_length) for row in rows)
    every = own + sum(map(pairs, prompts.values()))
    width = shape["num_attention_heads"] * shape["head_dim"] * shape["num_hidden_layers"]
    return 2.0 * (2 + 5) * width * every


def by_kind(update) -> dict[str, float]:
    """CPU-seconds of one update by kind of operator; `the rest` is all else that torch does."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        update()
    seconds = dict.fromkeys([*(kind for kind, _ in KINDS), "the rest"], 0.0)
    for event in profiler.key_averages():
        fits = (kind for kind, parts in KINDS if any(part in event.key for part in parts))
        seconds[next(fits, "the rest")] += event.self_cpu_time_total / 1e6
    return seconds


def measure(args: argparse.Namespace, horizon: int) -> dict:
    """Measure the update at one horizon."""
    shape = SHAPES[args.size] | {"vocab_size": VOCABULARY}
    with tempfile.TemporaryDirectory() as folder:
        work = argparse.Namespace(
            workdir=Path(folder),
            shape=shape,
            horizon=horizon,
            steps=args.repeats + 3,
            prompts=4,
            generations=8,
            turn_tokens=20,
            opening_tokens=190,
            observation_tokens=23,
        )
        with trainer_of(work) as trainer:
            rows, seconds = rows_of_a_step(trainer), []
            for _ in range(args.repeats):
                start = time.process_time()
                trainer.learner.update(rows)
                seconds.append(time.process_time() - start)
            with FlopCounterMode(display=False) as counter:
                metrics = trainer.learner.update(rows)
            kinds = by_kind(lambda: trainer.learner.update(rows))
    counts = counter.get_flop_counts()["Global"]
    products = sum(n for name, n in counts.items() if not any(a in str(name) for a in ATTENTION))
    operations = products + attention_operations(rows, shape)
    return {
        "horizon": horizon,
        "size": args.size,
        "cpu_s": min(seconds),
        "padding_share": metrics["update/padding_share"],
        "forwarded_over_unique": metrics["update/forwarded_over_unique"],
        "forwarded_tokens": metrics["update/forward_tokens"],
        "operations": operations,
        "rate": operations / min(seconds),
        "seconds_by_kind": kinds,
        "load": os.getloadavg()[0],
    }


def show(result: dict, most: float) -> None:
    """Print one horizon."""
    print(f"\nH = {result['horizon']}, {result['size']}: {result['cpu_s']:.2f} CPU-seconds")
    total = sum(result["seconds_by_kind"].values())
    for kind, seconds in result["seconds_by_kind"].items():
        print(f"  {kind:<28} {seconds / total:>7.0%}")
    print(f"  {'padding':<28} {result['padding_share']:>7.1%}")
    print(f"  {'forwarded over unique':<28} {result['forwarded_over_unique']:>7.3f}")
    print(f"  {'operations, 10^9':<28} {result['operations'] / 1e9:>7.0f}")
    print(f"  {'10^9 a CPU-second':<28} {result['rate'] / 1e9:>7.1f}")
    print(f"  {'share of the limit':<28} {result['rate'] / most:>7.0%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--horizon", default="8,16", help="turns, comma-separated")
    parser.add_argument("--size", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--repeats", type=int, default=4, help="updates; the best one counts")
    parser.add_argument("--write", action="store_true", help="keep the result as the baseline")
    args = parser.parse_args()
    torch.set_num_threads(1)
    most = limit()
    print(f"a product of two 1024 x 1024 matrices: {most / 1e9:.1f} 10^9 a CPU-second")
    results = [measure(args, horizon) for horizon in map(int, args.horizon.split(","))]
    for result in results:
        show(result, most)
    if args.write:
        about = {"date": datetime.date.today().isoformat(), "cpu": cpu_model(), "limit": most}
        BASELINE.write_text(json.dumps(about | {"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
