"""Learning curves on a cost axis: common grids, bands over seeds, areas.

Shapes: N points of one run, G points of the grid, S seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalinginter.compare.runs import EqualCost, Run
from scalinginter.eval.metrics import bootstrap_mean

Array = NDArray[np.float64]
GRID = 121  # points of an evaluation curve
TRAIN_GRID = 481  # of a curve of training steps: fine enough for a switch to look like one


@dataclass(frozen=True, slots=True)
class Band:
    """The seeds of one arm on one grid. All arrays have shape [G]."""

    cost: Array
    mean: Array
    low: Array
    high: Array
    num_seeds: int


def interpolate(cost: Array, value: Array, grid: Array) -> Array:
    """Return the value at each cost of `grid`, shape [G]: straight lines between the points.

    Before the first point its value holds, after the last point the last one.
    """
    return np.interp(grid, cost, value)


def hold(cost: Array, value: Array, grid: Array) -> Array:
    """Return, shape [G], the value of the step that was running at each cost.

    A training line carries the cost after its step, so the step that runs at cost c is the first
    one that ends at c or later.
    """
    index = np.searchsorted(cost, grid, side="left")
    return value[np.minimum(index, len(value) - 1)]


def smooth(values: Array, width: int) -> Array:
    """Return the centred running mean over `width` points (fewer at the ends), shape [G]."""
    half = width // 2
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    start, stop = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return (sums[stop] - sums[start]) / (stop - start)


def area_under_curve(cost: Array, value: Array, limit: float) -> float:
    """Return the mean height of the curve over costs from 0 to `limit` (area / limit).

    The curve is the one of `interpolate`; the result is exact for it.
    """
    if limit <= 0:
        raise ValueError(f"area_under_curve needs a positive limit, got {limit}")
    inside = (cost > 0) & (cost < limit)
    x = np.concatenate([[0.0], cost[inside], [limit]])
    y = np.concatenate(
        [interpolate(cost, value, x[:1]), value[inside], interpolate(cost, value, x[-1:])]
    )
    return float(np.trapezoid(y, x) / limit)


def eval_band(runs: Sequence[Run], metric: str, unit: str) -> Band | None:
    """Return the band of an evaluation metric; None when no run has it.

    The grid ends where the run that spent least ends, so that every seed is in every point.
    """
    curves = [run.points(metric, unit) for run in runs]
    curves = [(cost, value) for cost, value in curves if cost.size]
    if not curves:
        return None
    grid = np.linspace(0.0, min(cost[-1] for cost, _ in curves), GRID)
    return _band(grid, [interpolate(cost, value, grid) for cost, value in curves])


def train_band(runs: Sequence[Run], metric: str, unit: str, smoothing: int = 1) -> Band | None:
    """Return the band of a metric of the training steps; None when no run has it.

    `smoothing`: points of the grid that a running mean spans, for metrics of single steps.
    """
    curves = [run.points(metric, unit) for run in runs]
    curves = [(cost, value) for cost, value in curves if cost.size]
    if not curves:
        return None
    grid = np.linspace(0.0, min(cost[-1] for cost, _ in curves), TRAIN_GRID)
    return _band(grid, [smooth(hold(cost, value, grid), smoothing) for cost, value in curves])


def at_equal_cost(run: Run, metric: str, equal: EqualCost) -> float | None:
    """Return the metric of a finished run at the cost of the comparison.

    A step cannot be cut, so a run ends a little beyond its budget: within 10% its last evaluation
    counts. A run that went further is read off its curve.
    """
    cost, value = run.points(metric, equal.unit)
    if not cost.size:
        return None
    if cost[-1] <= 1.1 * equal.limit:
        return float(value[-1])
    return float(interpolate(cost, value, np.asarray([equal.limit]))[0])


def weights_at_equal_cost(run: Run, equal: EqualCost) -> dict[int, float]:
    """Return the evaluations that `at_equal_cost` reads, as weights by step that sum to 1."""
    cost = f"cost/{equal.unit}"
    lines = [line for line in run.lines if "eval/success" in line.metrics and cost in line.metrics]
    if not lines:
        return {}
    costs = np.asarray([line.metrics[cost] for line in lines])
    if costs[-1] <= 1.1 * equal.limit:
        return {lines[-1].step: 1.0}
    position = float(np.interp(equal.limit, costs, np.arange(len(lines))))
    below, share = int(position), position % 1.0
    weights = {lines[below].step: 1.0 - share}
    return weights | ({lines[below + 1].step: share} if share else {})


def area(run: Run, metric: str, equal: EqualCost) -> float | None:
    """Return the area under a run's curve up to the cost of the comparison, over that cost."""
    cost, value = run.points(metric, equal.unit)
    return area_under_curve(cost, value, equal.limit) if cost.size and equal.limit > 0 else None


def _band(grid: Array, values: Sequence[Array]) -> Band:
    stacked = np.stack(values)
    low, high = bootstrap_mean(stacked)
    return Band(grid, stacked.mean(axis=0), low, high, len(stacked))
