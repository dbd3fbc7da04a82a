"""Plays the expert on every level and writes `levels.json`, the table of tasks:

    python -m environments.embodied.babyai.measure [--processes 2] [--seeds 100] [--levels NAME ...]

A seed is a task if the bot reaches the goal within its bounds and no seed before it starts alike.
The hash of the start (the grid, the agent's place, the mission) decides the split, over all levels.
A level needs tasks in every split. The table is written after each level; what it says of others
stays.
"""

import argparse
import hashlib
import json
import time
from collections import Counter
from importlib import metadata
from multiprocessing import get_context
from typing import Any, NamedTuple

from environments.embodied.babyai import expert
from environments.embodied.babyai.levels import TABLE, gym_ids, make_level
from scalinginter.env.base import SPLITS

_LEAST = 10  # tasks of a level


class Row(NamedTuple):
    """What was measured of a level."""

    level: str
    high_level: list[int]  # turns per seed, 0: no task
    primitive: list[int]
    digests: list[str]  # of the start, per seed
    failures: dict[str, int]  # why the expert failed -> how often
    slowest: tuple[float, float]  # seconds: reset, plan


def measure(level: str, num_seeds: int) -> Row:
    """Play the expert on the seeds 0, 1, ... of a level."""
    turns: tuple[list[int], list[int]] = ([], [])
    digests: list[str] = []
    failures: Counter[str] = Counter()
    resets, plans = [0.0], [0.0]
    gym_ids()  # imports, which are not part of a reset
    for seed in range(num_seeds):
        start = time.perf_counter()
        digest = _digest(make_level(level, seed))
        resets.append(time.perf_counter() - start)
        start = time.perf_counter()
        high, low = 0, 0
        try:
            if digest not in digests:
                taken = expert.walk(level, seed)
                high, low = len(expert.high_level_plan(level, seed, taken)), len(taken)
        except expert.ExpertError as error:
            failures[str(error)] += 1
        digests.append(digest)
        plans.append(time.perf_counter() - start)
        turns[0].append(high)
        turns[1].append(low)
    return Row(level, *turns, digests, dict(failures), (max(resets), max(plans)))


def _digest(level: Any) -> str:
    start = (level.mission, level.grid.encode().tolist(), [int(x) for x in level.agent_pos])
    return hashlib.sha256(repr((*start, int(level.agent_dir))).encode()).hexdigest()


def split_of(digest: str) -> int:
    """Return the index of a start's split: one in ten validates, one in ten tests."""
    return {0: 1, 1: 2}.get(int(digest, 16) % 10, 0)


def refusal(row: Row) -> str | None:
    """Return why a level has no tasks, or None if it has."""
    tasks = [split_of(d) for d, turns in zip(row.digests, row.primitive, strict=True) if turns]
    if len(tasks) >= _LEAST and len(set(tasks)) == len(SPLITS):
        return None
    if row.failures:
        reason, times = max(row.failures.items(), key=lambda item: item[1])
        return (
            f"the expert fails on {sum(row.failures.values())} of {len(row.primitive)} seeds, "
            + (f"{times} times because {reason}")
        )
    return f"only {len(tasks)} different starts on {len(row.primitive)} seeds"


def write(row: Row) -> None:
    """Put a level into the table: a line of its own."""
    kept = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    parts: dict[str, dict[str, Any]] = {
        k: kept.get(k, {}) for k in ("turns", "refused", "failures")
    }
    for part in parts.values():
        part.pop(row.level, None)
    reason = refusal(row)
    if reason:
        parts["refused"][row.level] = reason
    else:
        split = "".join(str(split_of(digest)) for digest in row.digests)
        turns = {"split": split, "high_level": row.high_level, "primitive": row.primitive}
        parts["turns"][row.level] = turns
    if row.failures:
        parts["failures"][row.level] = row.failures
    blocks = [f'"minigrid": {json.dumps(metadata.version("minigrid"))}']
    for name, part in parts.items():
        lines = [
            f" {json.dumps(key)}: {json.dumps(part[key], separators=(',', ':'))}"
            for key in sorted(part)
        ]
        blocks.append(f'"{name}": {{\n' + ",\n".join(lines) + "\n}")
    TABLE.write_text("{\n" + ",\n".join(blocks) + "\n}\n", "utf-8")


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--levels", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--seeds", type=int, default=100, help="seeds per level")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    levels = args.levels or list(gym_ids())
    with get_context("spawn").Pool(args.processes) as pool:
        jobs = [pool.apply_async(measure, (level, args.seeds)) for level in levels]
        for job in jobs:
            row = job.get()
            write(row)
            print(_line(row), flush=True)


def _line(row: Row) -> str:
    high, low = (sorted(t for t in turns if t) or [0] for turns in (row.high_level, row.primitive))
    spans = "  ".join(f"{t[0]:3} {t[len(t) // 2]:3} {t[-1]:3}" for t in (high, low))
    reset, plan = row.slowest
    failed = sum(row.failures.values())
    return f"{row.level:22} {spans}  failed {failed:3}  reset {reset:.3f} s  plan {plan:.2f} s"


if __name__ == "__main__":
    main()
