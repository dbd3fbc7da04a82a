"""A comparison folder as records: `<root>/<arm>/seed<k>/` are run folders.

    <root>/comparison.json    what was asked for: arms with their recipes, seeds, the command
    <root>/<arm>/seed<k>/     config.yaml, run.json, metrics.jsonl ... of one run
    <root>/report.md, plots/  what the runs say together

Only the journals give numbers; nothing here is remembered from the processes that wrote them.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalinginter.errors import UserError
from scalinginter.track.journal import MetricsLine, read_metrics
from scalinginter.track.run_folder import RUN_INFO, read_config, read_run_info, replace_file

PLAN = "comparison.json"
UNITS = ("turns", "generated_tokens", "forward_tokens", "seconds", "steps")
_SEED_FOLDER = re.compile(r"seed(\d+)")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a comparison was asked to do."""

    arms: Mapping[str, dict[str, Any]]  # resolved recipe by arm, in the order given
    seeds: tuple[int, ...]
    command: tuple[str, ...]

    def pairs(self) -> list[tuple[str, int]]:
        """Return (arm, seed) seed by seed: wherever one stops, the arms have equal numbers."""
        return [(arm, seed) for seed in self.seeds for arm in self.arms]

    def write(self, root: Path) -> None:
        """Write `comparison.json`."""
        content = {"arms": self.arms, "seeds": self.seeds, "command": self.command}
        replace_file(root / PLAN, json.dumps(content, indent=2) + "\n")


def read_plan(root: Path) -> Plan | None:
    """Return what `comparison.json` says; None when there is no such file."""
    path = root / PLAN
    if not path.is_file():
        return None
    content = json.loads(path.read_text())
    return Plan(content["arms"], tuple(content["seeds"]), tuple(content["command"]))


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a comparison, as its folder tells it."""

    folder: Path
    arm: str
    seed: int
    status: str  # as in run.json; "missing" when the run has not started
    command: tuple[str, ...]
    config: dict[str, Any]
    lines: tuple[MetricsLine, ...]

    @property
    def finished(self) -> bool:
        """Whether the run reached its end and was evaluated there."""
        return self.status == "finished" and bool(self.points("eval/success", "turns")[0].size)

    def points(self, metric: str, unit: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return cost in `unit`, shape [N] and not descending, and the metric there, shape [N]."""
        cost = f"cost/{unit}"
        pairs = [
            (line.metrics[cost], line.metrics[metric])
            for line in self.lines
            if metric in line.metrics and cost in line.metrics
        ]
        table = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def first(self, metric: str) -> float | None:
        """Return the metric's first value; None when it was never logged."""
        return next((line.metrics[metric] for line in self.lines if metric in line.metrics), None)

    def last(self, metric: str) -> float | None:
        """Return the metric's last value; None when it was never logged."""
        values = (line.metrics[metric] for line in reversed(self.lines) if metric in line.metrics)
        return next(values, None)


def load_run(folder: Path, arm: str, seed: int) -> Run:
    """Read one run folder; a folder without `run.json` gives a run that is missing."""
    if not (folder / RUN_INFO).is_file():
        return Run(folder, arm, seed, "missing", (), {}, ())
    info = read_run_info(folder)
    lines = tuple(read_metrics(folder))
    return Run(folder, arm, seed, info.status, tuple(info.command), read_config(folder), lines)


def load_runs(root: Path) -> list[Run]:
    """Read every planned run and every run folder under `root`, arm by arm, seeds ascending.

    Raises UserError when there is none.
    """
    plan = read_plan(root)
    planned = plan.pairs() if plan else []
    found = [
        (folder.parent.name, int(match[1]))
        for folder in sorted(root.glob("*/seed*"))
        if (match := _SEED_FOLDER.fullmatch(folder.name)) and (folder / RUN_INFO).is_file()
    ]
    if not planned and not found:
        raise UserError(
            f"{root} holds no comparison: no run folder matches {root}/<arm>/seed<k>. Give the "
            "folder that the comparison printed, or start one with several --schedule files."
        )
    arms = list(dict.fromkeys(arm for arm, _ in [*planned, *found]))
    pairs = sorted({*planned, *found}, key=lambda pair: (arms.index(pair[0]), pair[1]))
    return [load_run(run_folder(root, arm, seed), arm, seed) for arm, seed in pairs]


def run_folder(root: Path, arm: str, seed: int) -> Path:
    """Return where a run of the comparison lives."""
    return root / arm / f"seed{seed}"


def by_arm(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Group runs by arm, keeping their order."""
    arms: dict[str, list[Run]] = {}
    for run in runs:
        arms.setdefault(run.arm, []).append(run)
    return arms


@dataclass(frozen=True, slots=True)
class EqualCost:
    """The cost at which the arms are compared."""

    unit: str
    limit: float
    declared: bool  # every run had this limit as its budget; else it is the shortest run's cost


def equal_cost(runs: Sequence[Run]) -> EqualCost:
    """Return the budget that all runs share, else the smallest final cost of a run, in turns."""
    budgets = [run.config.get("train", {}).get("budget", {}) for run in runs]
    for unit in UNITS:
        limits = {budget.get(unit) for budget in budgets}
        if len(limits) == 1 and (limit := limits.pop()):
            return EqualCost(unit, float(limit), declared=True)
    costs = [cost for run in runs if (cost := run.last("cost/turns")) is not None]
    return EqualCost("turns", min(costs, default=0.0), declared=False)


def setting_differences(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Return `{path: {arm: value}}` of the settings that are not the same in all runs.

    A value that differs between the seeds of one arm is the text "x or y (by seed)". The run's name
    and its seed are what an arm and its repetitions are called; they are left out.
    """
    from scalinginter.config.load import differences

    configs = [(run.arm, comparable(run.config)) for run in runs if run.config]
    paths = dict.fromkeys(p for _, c in configs for p in differences(configs[0][1], c))
    table: dict[str, dict[str, Any]] = {}
    for path in paths:
        values: dict[str, list[Any]] = {}
        for arm, config in configs:
            known, value = values.setdefault(arm, []), _leaf(config, path)
            known.extend([value] if value not in known else [])
        table[path] = {
            arm: v[0] if len(v) == 1 else f"{' or '.join(map(str, v))} (by seed)"
            for arm, v in values.items()
        }
    return table


def comparable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without the run's name and seed."""
    return {key: value for key, value in config.items() if key not in ("name", "seed")}


def _leaf(config: Mapping[str, Any], path: str) -> Any:
    node: Any = config
    for key in path.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node
