"""Curves on a cost axis against closed forms."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.compare.curves import (
    area,
    area_under_curve,
    at_equal_cost,
    eval_band,
    hold,
    smooth,
    train_band,
    weights_at_equal_cost,
)
from scalinginter.compare.runs import EqualCost, Run, load_run
from scalinginter.track.journal import MetricsLine

heights = st.lists(st.floats(0, 1), min_size=2, max_size=20)


def test_the_area_under_a_straight_line_to_one_is_a_half() -> None:
    assert area_under_curve(np.array([0.0, 10.0]), np.array([0.0, 1.0]), 10.0) == 0.5


def test_the_last_value_holds_up_to_the_limit() -> None:
    # 0 to 1 over half of the limit, then 1: 1/4 + 1/2.
    assert area_under_curve(np.array([0.0, 5.0]), np.array([0.0, 1.0]), 10.0) == pytest.approx(0.75)


def test_what_lies_beyond_the_limit_is_cut_in_the_middle_of_a_line() -> None:
    # The line reaches 0.5 at the limit: a triangle of mean height 0.25.
    assert area_under_curve(np.array([0.0, 20.0]), np.array([0.0, 1.0]), 10.0) == pytest.approx(
        0.25
    )


@given(heights)
def test_the_area_of_a_curve_lies_between_its_extremes(values: list[float]) -> None:
    cost = np.linspace(0, 7, len(values))
    result = area_under_curve(cost, np.array(values), 7.0)
    assert min(values) - 1e-9 <= result <= max(values) + 1e-9


@given(heights, st.floats(0.5, 30))
def test_the_area_is_that_of_a_fine_grid(values: list[float], limit: float) -> None:
    cost = np.linspace(0, 7, len(values))
    grid = np.linspace(0, limit, 20_001)
    fine = np.interp(grid, cost, values).mean()
    assert area_under_curve(cost, np.array(values), limit) == pytest.approx(fine, abs=2e-3)


def test_a_step_is_in_force_until_the_cost_at_which_it_ends() -> None:
    ends, horizons = np.array([10.0, 20.0, 30.0]), np.array([5.0, 10.0, 20.0])
    grid = np.array([0.0, 10.0, 10.1, 30.0, 99.0])
    assert hold(ends, horizons, grid).tolist() == [5.0, 5.0, 10.0, 20.0, 20.0]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.integers(1, 9))
def test_smoothing_is_the_mean_of_the_window(values: list[float], width: int) -> None:
    half = width // 2
    expected = [np.mean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]
    assert smooth(np.array(values), width) == pytest.approx(np.array(expected), abs=1e-9)


def test_seeds_that_evaluate_at_different_costs_meet_on_one_grid(write_run) -> None:
    folders = [write_run("a", 0, lambda f: f), write_run("a", 1, lambda f: f, turns=730)]
    band = eval_band([load_run(f, "a", i) for i, f in enumerate(folders)], "eval/success", "turns")
    # f is the share of the run's own turns, so at cost c the two are c / 1000 and c / 730.
    assert band is not None
    assert band.cost[-1] == 730
    assert band.mean == pytest.approx(band.cost * (1 / 1000 + 1 / 730) / 2)


def test_the_band_of_three_seeds_spans_the_seeds(write_run) -> None:
    runs = [
        load_run(write_run("a", seed, lambda f, seed=seed: 0.1 * seed), "a", seed)
        for seed in range(3)
    ]
    band = eval_band(runs, "eval/success", "seconds")
    assert band is not None
    assert (band.low[0], band.mean[0], band.high[0]) == pytest.approx((0.0, 0.1, 0.2))


def test_a_metric_that_was_never_logged_has_no_band(write_run) -> None:
    runs = [load_run(write_run("a", 0, lambda f: f), "a", 0)]
    assert eval_band(runs, "eval/pass_at_8", "turns") is None


def test_the_band_of_a_training_metric_comes_from_the_training_lines(write_run) -> None:
    runs = [load_run(write_run("a", 0, lambda f: f, horizon=7), "a", 0)]
    band = train_band(runs, "horizon/max_turns", "turns")
    assert band is not None
    assert set(band.mean.tolist()) == {7.0}


@pytest.mark.parametrize(
    ("turns", "expected"),
    [(1050, 1.0), (2000, 0.5)],
    ids=["overshoots by a step: last evaluation", "went further: read off the curve"],
)
def test_success_at_equal_cost(write_run, turns: int, expected: float) -> None:
    run = load_run(write_run("a", 0, lambda f: f, turns=turns), "a", 0)
    assert at_equal_cost(run, "eval/success", EqualCost("turns", 1000, True)) == expected


def test_the_area_of_a_run_stops_at_equal_cost(write_run) -> None:
    run = load_run(write_run("a", 0, lambda f: f, turns=2000), "a", 0)
    assert area(run, "eval/success", EqualCost("turns", 1000, True)) == pytest.approx(0.25)


def test_a_folder_without_a_run_has_no_points(tmp_path: Path) -> None:
    run = load_run(tmp_path, "a", 0)
    assert at_equal_cost(run, "eval/success", EqualCost("turns", 1000, True)) is None


@given(st.floats(1, 1200))
def test_the_weighted_evaluations_are_the_success_at_equal_cost(limit: float) -> None:
    costs, success = [0.0, 100.0, 350.0, 1000.0], [0.1, 0.5, 0.4, 0.9]
    lines = tuple(
        MetricsLine(step, "eval", 0.0, {"cost/turns": cost, "eval/success": value})
        for step, (cost, value) in enumerate(zip(costs, success, strict=True))
    )
    run = Run(Path("a"), "a", 0, "finished", (), {}, lines)
    equal = EqualCost("turns", limit, declared=True)
    weights = weights_at_equal_cost(run, equal)
    mean = sum(weight * success[step] for step, weight in weights.items())
    assert sum(weights.values()) == pytest.approx(1.0)
    assert mean == pytest.approx(at_equal_cost(run, "eval/success", equal))
