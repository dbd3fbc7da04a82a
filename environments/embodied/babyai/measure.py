"""Plays the expert on every level and writes `levels.json`, the table of tasks:

    python -m environments.embodied.babyai.measure [--processes 2] [--seeds 120] [--levels NAME ...]

A seed is a task if the bot reaches the goal within its bounds and its start occurs neither before
it in the level nor in another split. A level needs tasks in every split. `--levels` measures some
levels and keeps what the table says of the others.
"""

import argparse
import hashlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from multiprocessing import get_context
from typing import Any, NamedTuple

from environments.embodied.babyai import expert
from environments.embodied.babyai.levels import TABLE, gym_ids, make_level, split_of

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
        digests.append(_digest(make_level(level, seed)))
        resets.append(time.perf_counter() - start)
        start = time.perf_counter()
        high, low = 0, 0
        try:
            taken = expert.walk(level, seed)
            high, low = len(expert.high_level_plan(level, seed, taken)), len(taken)
        except expert.ExpertError as error:
            failures[str(error)] += 1
        plans.append(time.perf_counter() - start)
        turns[0].append(high)
        turns[1].append(low)
    return Row(level, *turns, digests, dict(failures), (max(resets), max(plans)))


def _digest(level: Any) -> str:
    start = (level.mission, level.grid.encode().tolist(), [int(x) for x in level.agent_pos])
    return hashlib.sha256(repr((*start, int(level.agent_dir))).encode()).hexdigest()


def drop_repeated(rows: Sequence[Row]) -> None:
    """Take out, in place, the seeds whose start occurs before in the level or in another split."""
    first: dict[str, str] = {}
    for row in rows:
        own: set[str] = set()
        for seed, digest in enumerate(row.digests):
            if digest in own or first.setdefault(digest, split_of(seed)) != split_of(seed):
                row.high_level[seed] = row.primitive[seed] = 0
            own.add(digest)


def refusal(row: Row) -> str | None:
    """Return why a level has no tasks, or None if it has."""
    seeds = [seed for seed, turns in enumerate(row.primitive) if turns]
    if len(seeds) >= _LEAST and len({split_of(seed) for seed in seeds}) == 3:
        return None
    if row.failures:
        reason, times = max(row.failures.items(), key=lambda item: item[1])
        return (
            f"the expert fails on {sum(row.failures.values())} of {len(row.primitive)} seeds, "
            + (f"{times} times because {reason}")
        )
    return f"only {len(seeds)} different starts on {len(row.primitive)} seeds"


def write(rows: Sequence[Row], kept: dict[str, Any]) -> None:
    """Write the table, one line per level."""
    turns, refused, failures = (dict(kept.get(k, {})) for k in ("turns", "refused", "failures"))
    for row in rows:
        reason = refusal(row)
        for part in (turns, refused, failures):
            part.pop(row.level, None)
        if reason:
            refused[row.level] = reason
        else:
            turns[row.level] = {"high_level": row.high_level, "primitive": row.primitive}
        if row.failures:
            failures[row.level] = row.failures
    parts = {"turns": turns, "refused": refused, "failures": failures}
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
    parser.add_argument("--seeds", type=int, default=120, help="seeds per level")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    levels = args.levels or list(gym_ids())
    with get_context("spawn").Pool(args.processes) as pool:
        jobs = [pool.apply_async(measure, (level, args.seeds)) for level in levels]
        rows = []
        for job in jobs:
            rows.append(job.get())
            print(_line(rows[-1]), flush=True)
    drop_repeated(rows)
    kept = json.loads(TABLE.read_text("utf-8")) if args.levels and TABLE.exists() else {}
    write(rows, kept)


def _line(row: Row) -> str:
    high, low = (sorted(t for t in turns if t) or [0] for turns in (row.high_level, row.primitive))
    spans = "  ".join(f"{t[0]:3} {t[len(t) // 2]:3} {t[-1]:3}" for t in (high, low))
    reset, plan = row.slowest
    failed = sum(row.failures.values())
    return f"{row.level:22} {spans}  failed {failed:3}  reset {reset:.3f} s  plan {plan:.2f} s"


if __name__ == "__main__":
    main()
