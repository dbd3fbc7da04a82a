"""Everything a report says, computed once from the journals."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scalinginter.compare.curves import area, at_equal_cost, weights_at_equal_cost
from scalinginter.compare.runs import (
    UNITS,
    EqualCost,
    Plan,
    Run,
    equal_cost,
    load_runs,
    read_plan,
    setting_differences,
)
from scalinginter.compare.stats import (
    Estimate,
    Paired,
    Verdict,
    compare_pair,
    estimate,
    task_bootstrap,
    verdict,
)
from scalinginter.track.journal import EPISODES
from scalinginter.types import StopReason

PerSeed = dict[str, dict[int, float]]  # arm -> seed -> value, finished runs only
_LENGTH = "eval/success_by_length/"


@dataclass(frozen=True)
class Results:
    """A comparison's numbers. Only finished runs enter them; the others are named."""

    root: Path
    plan: Plan | None
    runs: tuple[Run, ...]

    @property
    def arms(self) -> list[str]:
        """The arms in the order given, finished or not."""
        return list(dict.fromkeys(run.arm for run in self.runs))

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.runs if run.finished]

    @property
    def incomplete(self) -> list[Run]:
        return [run for run in self.runs if not run.finished]

    @cached_property
    def equal(self) -> EqualCost:
        return equal_cost(self.finished)

    @cached_property
    def start(self) -> PerSeed:
        """Success at the first evaluation."""
        return self._per_seed(lambda run: run.first("eval/success"))

    @cached_property
    def final(self) -> PerSeed:
        """Success at the cost of the comparison."""
        return self._per_seed(lambda run: at_equal_cost(run, "eval/success", self.equal))

    @cached_property
    def auc(self) -> PerSeed:
        """Area under the success curve over the cost of the comparison, in [0, 1]."""
        return self._per_seed(lambda run: area(run, "eval/success", self.equal))

    @cached_property
    def costs(self) -> dict[str, PerSeed]:
        """Final costs by unit."""
        return {
            unit: self._per_seed(lambda run, unit=unit: run.last(f"cost/{unit}")) for unit in UNITS
        }

    @cached_property
    def by_length(self) -> dict[int, dict[str, Estimate]]:
        """Success per required length at the cost of the comparison: length -> arm -> estimate."""
        names = {n for run in self.finished for line in run.lines for n in line.metrics}
        lengths = sorted(int(n.removeprefix(_LENGTH)) for n in names if n.startswith(_LENGTH))
        table = {}
        for length in lengths:
            values = self._per_seed(
                lambda run, n=length: at_equal_cost(run, f"{_LENGTH}{n}", self.equal)
            )
            table[length] = {a: estimate(list(v.values())) for a, v in values.items() if v}
        return table

    @property
    def what(self) -> str:
        """The words for where the arms are compared."""
        unit, limit = self.equal.unit.replace("_", " "), f"{self.equal.limit:,.0f}"
        return f"equal {unit} ({limit})"

    @cached_property
    def final_verdict(self) -> Verdict:
        return verdict(self.final, f"final success at {self.what}")

    @cached_property
    def auc_verdict(self) -> Verdict:
        return verdict(self.auc, f"area under the curve to {self.what}")

    def pairs(self, values: PerSeed) -> list[Paired]:
        """Compare every two arms, the later one minus the earlier one."""
        arms = [arm for arm in self.arms if values.get(arm)]
        found = [compare_pair(b, a, values) for i, a in enumerate(arms) for b in arms[i + 1 :]]
        return [pair for pair in found if pair]

    @cached_property
    def by_task(self) -> dict[str, dict[str, float]]:
        """Success per held-out task at the cost of the comparison, averaged over seeds.

        Empty for arms whose episodes were not kept.
        """
        table: dict[str, dict[str, float]] = {}
        for arm in self.arms:
            samples: dict[str, list[float]] = defaultdict(list)
            for run in self.finished:
                if run.arm == arm:
                    weights = weights_at_equal_cost(run, self.equal)
                    for task, value in success_by_task(run.folder, weights).items():
                        samples[task].append(value)
            if samples:
                table[arm] = {task: sum(v) / len(v) for task, v in samples.items()}
        return table

    def task_pairs(self) -> list[tuple[str, str, Estimate]]:
        """Compare every two arms over the held-out tasks that both were evaluated on."""
        arms = list(self.by_task)
        return [
            (b, a, task_bootstrap(self.by_task[b], self.by_task[a]))
            for i, a in enumerate(arms)
            for b in arms[i + 1 :]
            if self.by_task[a].keys() & self.by_task[b].keys()
        ]

    @cached_property
    def differing(self) -> dict[str, dict[str, object]]:
        """Settings that are not the same in all arms: path -> arm -> value."""
        return setting_differences(self.runs)

    def _per_seed(self, value: Callable[[Run], float | None]) -> PerSeed:
        table: PerSeed = {arm: {} for arm in self.arms}
        for run in self.finished:
            number = value(run)
            if number is not None:
                table[run.arm][run.seed] = number
        return table


def load_results(root: str | Path) -> Results:
    """Read a comparison folder. Raises UserError when it holds no run."""
    folder = Path(root)
    return Results(folder, read_plan(folder), tuple(load_runs(folder)))


def success_by_task(run_dir: Path, weights: Mapping[int, float]) -> dict[str, float]:
    """Return the success rate per task from `episodes.jsonl`; {} if it has none of the evaluations.

    `weights`: share of each evaluation by its step. A task counts if it is in all of them.
    """
    samples: dict[int, dict[str, list[bool]]] = {step: defaultdict(list) for step in weights}
    path = run_dir / EPISODES
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        for raw in file:
            # Most lines are training episodes with all their tokens: told apart without parsing.
            if b'"stage": "eval"' not in raw[:80] or not raw.endswith(b"\n"):
                continue
            record = json.loads(raw)
            if record["step"] in samples and not StopReason(record["stop"]).is_failure:
                samples[record["step"]][record["task"]].append(record["success"])
    tasks = set.intersection(*(set(found) for found in samples.values())) if samples else set()
    return {
        task: sum(w * sum(samples[s][task]) / len(samples[s][task]) for s, w in weights.items())
        for task in sorted(tasks)
    }


def values_of(table: PerSeed, arm: str) -> Sequence[float]:
    """Return the values of one arm, seeds ascending."""
    return [table[arm][seed] for seed in sorted(table.get(arm, {}))]
