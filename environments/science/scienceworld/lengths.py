"""Measures gold paths and keeps their turns in `lengths.json`, so that `required_turns` is known.

python -m environments.science.scienceworld.lengths --variations 8 4 4
"""

import argparse
import json
import statistics
import time

from py4j.protocol import Py4JJavaError

from environments.science.scienceworld import jvm
from environments.science.scienceworld.gold import gold_plan
from environments.science.scienceworld.variations import (
    LENGTHS,
    TASKS,
    chosen_tasks,
    known_lengths,
    variations,
)
from scalinginter.env.base import SPLITS


def main() -> None:
    """Measure the first variations of every task in each split; keep what was known before."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--variations", type=int, nargs=3, default=[8, 4, 4], metavar="N")
    parser.add_argument(
        "--tasks", nargs="+", metavar="NAME", help="only these; Mendelian ones take minutes"
    )
    parser.add_argument("--heap-mb", type=int, default=384)
    options = parser.parse_args()
    names = TASKS if options.tasks is None else chosen_tasks(options.tasks)
    known = {name: dict(known_lengths().get(name, {})) for name in TASKS}
    for row in range(max(options.variations)):
        for name in names:
            for split, most in zip(SPLITS, options.variations, strict=True):
                numbers = variations(name, split)
                if row < min(most, len(numbers)):
                    _measure(known, name, numbers[row], options.heap_mb)
    for name, lengths in known.items():
        turns = sorted(lengths.values())
        if turns:
            spread = f"{turns[0]:4} to {turns[-1]:4}, median {statistics.median(turns):g}"
            print(f"{name:52} {len(turns):4} measured  {spread}")


def _measure(known: dict[str, dict[str, int]], name: str, number: int, heap_mb: int) -> None:
    if str(number) in known[name]:
        return
    start = time.perf_counter()
    try:
        plan = gold_plan(jvm.new_simulator(heap_mb), name, number, "")
    except Py4JJavaError as error:  # out of memory, for one: the others may fit
        print(f"{name} {number}: {str(error.java_exception)[:100]}", flush=True)
        return
    took = time.perf_counter() - start
    if plan is not None:
        known[name][str(number)] = len(plan)
        LENGTHS.write_text(_spelled(known))
    print(f"{name} {number}: {len(plan or [])} turns, {took:.1f} s", flush=True)


def _spelled(known: dict[str, dict[str, int]]) -> str:
    """Return the table as JSON, a task on a line."""
    rows = []
    for name in TASKS:
        ordered = sorted(known[name].items(), key=lambda item: int(item[0]))
        rows.append(f'"{name}": {json.dumps(dict(ordered))}')
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    main()
