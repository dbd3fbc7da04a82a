"""Paired tests and verdicts against brute force and hand-made cases."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.compare.report import COVERAGE
from scalinginter.compare.stats import (
    compare_pair,
    estimate,
    sign_flip_p,
    task_bootstrap,
    verdict,
)

differences = st.lists(st.integers(-20, 20).map(lambda n: n / 20), min_size=1, max_size=8)


def seeds(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


@given(differences)
def test_the_sign_flip_p_is_the_one_of_brute_force(values: list[float]) -> None:
    observed = abs(sum(values))
    flips = itertools.product((1, -1), repeat=len(values))
    sums = [abs(sum(s * v for s, v in zip(flip, values, strict=True))) for flip in flips]
    assert sign_flip_p(values) == np.mean([total >= observed - 1e-9 for total in sums])


def test_three_seeds_cannot_give_a_p_below_a_quarter() -> None:
    assert sign_flip_p([0.5, 0.6, 0.7]) == 0.25


def test_six_seeds_of_one_sign_give_one_in_thirty_two() -> None:
    assert sign_flip_p([0.1, 0.2, 0.1, 0.3, 0.2, 0.1]) == 1 / 32


def test_equal_arms_have_a_p_of_one() -> None:
    assert sign_flip_p([0.0, 0.0, 0.0]) == 1.0


def test_many_pairs_are_tested_by_drawn_flips() -> None:
    assert sign_flip_p([0.1] * 30) < 1e-3


def test_the_p_is_at_most_alpha_about_as_often_as_alpha_under_the_null() -> None:
    rng = np.random.default_rng(0)
    p_values = [sign_flip_p(rng.normal(0, 1, 7).tolist()) for _ in range(600)]
    assert 0.02 < np.mean(np.array(p_values) <= 0.05) < 0.08


def test_only_shared_seeds_are_paired() -> None:
    pair = compare_pair("a", "b", {"a": {0: 0.5, 1: 0.7, 9: 1.0}, "b": {0: 0.4, 1: 0.8, 5: 0.0}})
    assert pair is not None
    assert (pair.difference.num_seeds, pair.wins, pair.losses) == (2, 1, 1)


def test_arms_without_a_shared_seed_are_not_compared() -> None:
    assert compare_pair("a", "b", {"a": {0: 0.5}, "b": {1: 0.5}}) is None


def test_the_effect_is_the_mean_difference_over_its_deviation() -> None:
    pair = compare_pair("a", "b", {"a": seeds(0.5, 0.7), "b": seeds(0.4, 0.4)})
    assert pair is not None
    assert pair.effect == pytest.approx(0.2 / np.std([0.1, 0.3], ddof=1))


def test_equal_differences_have_no_effect_size() -> None:
    pair = compare_pair("a", "b", {"a": seeds(0.75, 0.5), "b": seeds(0.5, 0.25)})
    assert pair is not None
    assert pair.effect is None


@pytest.mark.parametrize("num_seeds", [2, 3, 5])
def test_the_coverage_that_the_report_states_is_the_one_of_a_simulation(num_seeds: int) -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(1000):
        e = estimate(rng.normal(0, 1, num_seeds).tolist())
        hits += e.low <= 0 <= e.high
    assert hits / 1000 == pytest.approx(COVERAGE[num_seeds], abs=0.04)


def test_the_task_bootstrap_pairs_tasks() -> None:
    easy_first = {f"t{i}": float(i % 2) for i in range(40)}
    shifted = {task: value + 0.25 for task, value in easy_first.items()}
    result = task_bootstrap(shifted, easy_first)
    assert (result.mean, result.low, result.high) == pytest.approx((0.25, 0.25, 0.25))


def test_the_task_bootstrap_uses_tasks_that_both_have() -> None:
    assert task_bootstrap({"a": 1.0, "b": 0.0}, {"a": 0.0, "c": 1.0}).num_seeds == 1


def test_three_seeds_lead_without_separating() -> None:
    result = verdict({"short": seeds(0.1, 0.2, 0.1), "scaled": seeds(0.5, 0.6, 0.5)}, "success")
    assert result.leader == "scaled"
    assert not result.separated
    assert "on every seed, but three seeds cannot separate the arms" in result.headline


def test_a_lead_that_some_seeds_deny_is_not_on_every_seed() -> None:
    result = verdict({"short": seeds(0.1, 0.6, 0.1), "scaled": seeds(0.5, 0.5, 0.5)}, "success")
    assert result.leader == "scaled"
    assert "on every seed" not in result.headline


def test_eight_seeds_of_one_sign_separate_two_arms() -> None:
    low = seeds(*[0.1 + 0.01 * i for i in range(8)])
    high = {seed: value + 0.3 for seed, value in low.items()}
    result = verdict({"short": low, "scaled": high}, "success")
    assert result.separated
    assert "separate it from every other arm" in result.headline


def test_more_rivals_need_a_smaller_p() -> None:
    low = seeds(*[0.1 + 0.01 * i for i in range(6)])  # 6 seeds: p = 1/32, below 0.05, above 0.025
    high = {seed: value + 0.3 for seed, value in low.items()}
    two = verdict({"short": low, "scaled": high}, "success")
    three = verdict({"short": low, "long": low, "scaled": high}, "success")
    assert (two.separated, three.separated) == (True, False)


def test_noisy_seeds_are_called_noise() -> None:
    a = seeds(0.5, 0.1, 0.6, 0.2, 0.5, 0.3, 0.4, 0.1)
    b = seeds(0.1, 0.5, 0.2, 0.4, 0.3, 0.3, 0.1, 0.4)
    assert "within the noise" in verdict({"a": a, "b": b}, "success").details[0]


def test_a_point_of_success_is_a_tie() -> None:
    result = verdict({"a": seeds(0.500, 0.500), "b": seeds(0.505, 0.505)}, "success")
    assert result.leader is None
    assert "tie" in result.headline


def test_one_seed_is_an_observation() -> None:
    assert "not evidence" in verdict({"a": seeds(0.5), "b": seeds(0.1)}, "success").headline


def test_the_verdict_uses_seeds_that_every_arm_has_finished() -> None:
    result = verdict({"a": {0: 0.2, 1: 0.2, 2: 0.9}, "b": {0: 0.3, 1: 0.3}}, "success")
    assert result.leader == "b"
    assert "seeds 0, 1" in result.headline


@pytest.mark.parametrize(
    "values", [{}, {"a": seeds(0.5)}, {"a": seeds(0.5), "b": {}}, {"a": {0: 1.0}, "b": {1: 1.0}}]
)
def test_nothing_to_compare_has_no_leader(values: dict[str, dict[int, float]]) -> None:
    result = verdict(values, "success")
    assert result.leader is None
    assert "Nothing to compare yet" in result.headline
