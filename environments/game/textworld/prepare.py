"""Generates games ahead of training, and measures them.

python -m environments.game.textworld.prepare textworld_coin min_level=2 max_level=9 --measure
"""

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from environments.game.textworld.coin import CoinCollector
from environments.game.textworld.cooking import Cooking
from environments.game.textworld.play import LENGTHS, TextWorldEnv, known_lengths
from scalinginter.env.base import SPLITS, Split
from scalinginter.errors import UserError

ENVIRONMENTS: dict[str, type[TextWorldEnv]] = {
    "textworld_coin": CoinCollector,
    "textworld_cooking": Cooking,
}


def prepare(
    env_id: str,
    params: Mapping[str, Any],
    splits: Sequence[Split] = SPLITS,
    limit: int | None = None,
) -> int:
    """Generate the games of the first `limit` tasks of each split; return how many were made."""
    if env_id not in ENVIRONMENTS:
        raise UserError(f"{env_id!r} has no games; one of {', '.join(ENVIRONMENTS)} has")
    return ENVIRONMENTS[env_id](**params).prepare(splits, limit)


def measure(env: TextWorldEnv) -> dict[str, int]:
    """Play every expert plan; print latencies and lengths; return the length of each task."""
    lengths, resets, steps = {}, [], []
    for task in (task for split in SPLITS for task in env.tasks(split)):
        start = time.perf_counter()
        env.reset(options={"task": task})
        resets.append(1e3 * (time.perf_counter() - start))
        won = False
        for action in env.expert_plan():
            start = time.perf_counter()
            *_, info = env.step(action)
            steps.append(1e3 * (time.perf_counter() - start))
            won = info["success"]
        assert won, f"the expert fails on {task.id}"
        lengths[f"{env.environment}/{task.id}"] = len(env.expert_plan())
    print(f"reset ms: median {statistics.median(resets):.0f}, p95 {_p95(resets):.0f}")
    print(f"step ms: median {statistics.median(steps):.1f}, p95 {_p95(steps):.1f}")
    print("turns: tasks", dict(sorted(Counter(lengths.values()).items())))
    return lengths


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * len(values))]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", choices=list(ENVIRONMENTS))
    parser.add_argument("params", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--limit", type=int, help="tasks of each split")
    parser.add_argument("--measure", action="store_true", help="play them and print figures")
    parser.add_argument("--keep-lengths", action="store_true", help=f"write to {LENGTHS.name}")
    options = parser.parse_args()
    pairs = (pair.partition("=") for pair in options.params)
    params = {key: json.loads(value) for key, _, value in pairs}
    start = time.perf_counter()
    made = prepare(options.environment, params, limit=options.limit)
    print(f"{made} games made in {time.perf_counter() - start:.0f} s")
    if options.measure or options.keep_lengths:
        lengths = measure(ENVIRONMENTS[options.environment](**params))
        if options.keep_lengths:
            together = dict(sorted((known_lengths() | lengths).items()))
            LENGTHS.write_text(json.dumps(together, indent=0) + "\n")


if __name__ == "__main__":
    main()
