"""Evaluation statistics against closed forms, enumeration and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.eval.metrics import (
    avg_at_k,
    bootstrap_interval,
    by_required_length,
    pass_at_k,
    rate_interval,
    stop_shares,
    summarize,
    wilson_interval,
)
from scalinginter.types import (
    Completion,
    FinishReason,
    StopReason,
    Task,
    Trajectory,
    Turn,
)


def episode(
    task: str,
    *,
    success: bool = False,
    reward: float | None = None,
    required: int | None = None,
    stop: StopReason = StopReason.TERMINATED,
    num_turns: int = 2,
    index: int = 0,
) -> Trajectory:
    empty = Completion((), (), (), (), FinishReason.STOP, 0)
    earned = float(success) if reward is None else reward
    rewards = [0.0] * (num_turns - 1) + [earned]
    turns = tuple(Turn((1,), empty, "", "go", "ok", r) for r in rewards)
    return Trajectory(
        task=Task(task, "toy", required_turns=required),
        group_id=task,
        index=index,
        seed=0,
        horizon=10,
        turns=turns,
        stop=stop,
        success=success,
    )


def test_the_wilson_interval_of_5_in_10_is_the_published_one() -> None:
    assert wilson_interval(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


@given(total=st.integers(1, 500), data=st.data())
def test_the_wilson_interval_holds_the_rate_and_stays_in_the_unit_interval(
    total: int, data: st.DataObject
) -> None:
    wins = data.draw(st.integers(0, total))
    low, high = wilson_interval(wins, total)
    assert 0 <= low <= wins / total <= high <= 1
    assert low < high


def test_the_wilson_interval_covers_the_true_rate_about_as_often_as_it_says() -> None:
    total, rate = 40, 0.3
    covered = 0.0
    for wins in range(total + 1):
        low, high = wilson_interval(wins, total)
        chance = math.comb(total, wins) * rate**wins * (1 - rate) ** (total - wins)
        covered += chance * (low <= rate <= high)
    assert 0.92 < covered < 0.98


def test_the_bootstrap_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        low, high = bootstrap_interval(rng.normal(1.0, 2.0, 40).tolist(), num_resamples=400)
        hits += low <= 1.0 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_the_bootstrap_interval_is_a_function_of_its_seed() -> None:
    values = [0.1, 0.5, 0.9, 0.3]
    assert bootstrap_interval(values, seed=5) == bootstrap_interval(values, seed=5)


def test_repeating_a_sample_of_each_task_does_not_narrow_the_interval() -> None:
    once = [[i % 2 == 0, i % 4 == 0] for i in range(20)]
    many = [samples * 10 for samples in once]
    assert rate_interval(many) == pytest.approx(rate_interval(once))


def test_an_all_failing_policy_is_not_called_certain() -> None:
    assert rate_interval([[False, False]] * 16)[1] > 0.1


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_mean_over_all_subsets_of_k_samples(
    samples: list[bool], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(samples)))
    subsets = list(itertools.combinations(samples, k))
    enumerated = sum(any(subset) for subset in subsets) / len(subsets)
    assert pass_at_k(len(samples), sum(samples), k) == pytest.approx(enumerated)


@pytest.mark.parametrize("arguments", [(4, 2, 0), (4, 2, 5), (4, 5, 2), (4, -1, 2)])
def test_pass_at_k_refuses_impossible_counts(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="pass_at_k"):
        pass_at_k(*arguments)


def test_avg_at_k_uses_the_first_k_samples() -> None:
    assert avg_at_k([True, False, False, True], 2) == 0.5


def test_stop_shares_name_every_reason_that_is_not_a_failure() -> None:
    shares = stop_shares([StopReason.TERMINATED, StopReason.HORIZON, StopReason.HORIZON])
    assert shares == pytest.approx(
        {"terminated": 1 / 3, "horizon": 2 / 3, "tokens": 0, "context": 0, "parse": 0}
    )


def test_success_is_tabled_by_required_length_in_ascending_order() -> None:
    episodes = [
        episode("b", success=True, required=11),
        episode("a", success=True, required=3),
        episode("c", success=False, required=3),
        episode("unknown", success=True),
    ]
    assert list(by_required_length(episodes).items()) == [(3, 0.5), (11, 1.0)]


def test_a_task_counts_once_however_many_samples_it_has() -> None:
    episodes = [episode("easy", success=True, index=i) for i in range(9)] + [episode("hard")]
    assert summarize(episodes)["eval/success"] == 0.5


def test_pitfall_13_infrastructure_failures_leave_the_statistics_and_are_counted() -> None:
    good = [episode("a", success=True), episode("b", success=False)]
    broken = [
        episode("c", stop=stop, num_turns=9)
        for stop in (StopReason.ENV_ERROR, StopReason.TIMEOUT, StopReason.ENGINE_ERROR)
    ]
    assert summarize(good + broken) == summarize(good) | {"eval/failed_episodes": 3.0}


def test_only_counts_remain_when_every_episode_failed() -> None:
    broken = [episode("a", stop=StopReason.TIMEOUT)]
    assert summarize(broken) == {"eval/episodes": 0.0, "eval/failed_episodes": 1.0}


def test_the_summary_has_the_names_of_the_contract() -> None:
    episodes = [
        episode("a", success=True, required=3, index=0),
        episode("a", success=False, required=3, index=1, stop=StopReason.HORIZON),
        episode("b", success=False, required=5, index=0, reward=0.25),
        episode("b", success=False, required=5, index=1, stop=StopReason.PARSE),
    ]
    summary = summarize(episodes)
    low, high = summary.pop("eval/success_low"), summary.pop("eval/success_high")
    assert low <= 0.25 <= high
    assert summary == {
        "eval/episodes": 4.0,
        "eval/failed_episodes": 0.0,
        "eval/success": 0.25,
        "eval/reward": pytest.approx((0.5 + 0.125) / 2),
        "eval/turns_mean": 2.0,
        "eval/stop/terminated": 0.5,
        "eval/stop/horizon": 0.25,
        "eval/stop/tokens": 0.0,
        "eval/stop/context": 0.0,
        "eval/stop/parse": 0.25,
        "eval/success_by_length/3": 0.5,
        "eval/success_by_length/5": 0.0,
        "eval/pass_at_1": 0.25,
        "eval/avg_at_1": 0.5,
        "eval/pass_at_2": 0.5,
        "eval/avg_at_2": 0.25,
    }


def test_one_sample_per_task_has_no_pass_at_k() -> None:
    assert not [n for n in summarize([episode("a"), episode("b")]) if "_at_" in n]


@given(st.permutations(range(6)))
def test_the_order_of_the_episodes_does_not_matter(order: list[int]) -> None:
    episodes = [
        episode(f"t{i // 2}", success=i in (0, 3, 4), required=3 + i // 2, index=i % 2)
        for i in range(6)
    ]
    shuffled = summarize([episodes[i] for i in order])
    assert shuffled == pytest.approx(summarize(episodes))
