"""What a set of evaluation episodes says: rates with intervals, pass@k, tables. Pure functions.

The unit of evidence is the task. Several samples of one task are not independent evidence about
the task distribution, so a rate is the mean over tasks of each task's own mean, and its interval
comes from resampling tasks. Episodes that the infrastructure broke leave every statistic and are
counted in `eval/failed_episodes`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from scalinginter.types import StopReason, Trajectory

Array = NDArray[np.float64]
Interval = tuple[float, float]


def wilson_interval(successes: float, total: int, confidence: float = 0.95) -> Interval:
    """Return the score interval of a binomial proportion (Wilson 1927), within [0, 1].

    `successes` may be fractional (a mean of task means, times the number of tasks).
    """
    if total < 1:
        raise ValueError(f"wilson_interval needs at least one trial, got total={total}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / total
    spread = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    center, scale = rate + z * z / (2 * total), 1 + z * z / total
    # Rounding must not push the bound past the rate itself at 0 and 1.
    low = 0.0 if rate <= 0 else max(0.0, (center - spread) / scale)
    high = 1.0 if rate >= 1 else min(1.0, (center + spread) / scale)
    return low, high


def bootstrap_mean(
    values: Array, confidence: float = 0.95, num_resamples: int = 2000, seed: int = 0
) -> tuple[Array, Array]:
    """Return the percentile bootstrap interval of the mean over axis 0.

    `values`: [N, ...], N repetitions; the two bounds have the shape of one of them.
    """
    picks = np.random.default_rng(seed).integers(0, len(values), (num_resamples, len(values)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(values[picks].mean(axis=1), [tail, 1 - tail], axis=0)
    return low, high


def bootstrap_interval(
    values: Sequence[float], confidence: float = 0.95, num_resamples: int = 2000, seed: int = 0
) -> Interval:
    """Return the percentile bootstrap interval of the mean of `values`, shape [N]."""
    data = np.asarray(values, dtype=np.float64)
    low, high = bootstrap_mean(data, confidence, num_resamples, seed)
    return float(low), float(high)


def rate_interval(samples_by_task: Sequence[Sequence[bool]], confidence: float = 0.95) -> Interval:
    """Return the interval of the mean over tasks of each task's success rate.

    One sample per task: Wilson. Several: bootstrap over tasks. Where every task has the same rate
    the bootstrap would claim certainty; Wilson with one trial per task stands in for it.
    """
    rates = [sum(samples) / len(samples) for samples in samples_by_task]
    if all(len(samples) == 1 for samples in samples_by_task) or len(set(rates)) == 1:
        return wilson_interval(sum(rates), len(rates), confidence)
    return bootstrap_interval(rates, confidence)


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Return the unbiased estimate of P(at least one of k samples is right).

    `1 - C(n - c, k) / C(n, k)` (Chen et al. 2021, arXiv 2107.03374, equation 1).
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"pass_at_k needs 1 <= k <= {num_samples} samples, got k={k}")
    if not 0 <= num_correct <= num_samples:
        raise ValueError(f"pass_at_k got {num_correct} correct out of {num_samples} samples")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def avg_at_k(samples: Sequence[bool], k: int) -> float:
    """Return the success rate of the first `k` samples of one task."""
    if not 1 <= k <= len(samples):
        raise ValueError(f"avg_at_k needs 1 <= k <= {len(samples)} samples, got k={k}")
    return sum(samples[:k]) / k


def stop_shares(stops: Sequence[StopReason]) -> dict[str, float]:
    """Return the share of episodes per stop reason; reasons of the infrastructure are left out."""
    counts = Counter(stops)
    return {
        reason.value: counts[reason] / len(stops) for reason in StopReason if not reason.is_failure
    }


def by_required_length(trajectories: Sequence[Trajectory]) -> dict[int, float]:
    """Return the success rate (mean over tasks) per required number of turns, ascending.

    Tasks whose required length is not known are left out.
    """
    groups: dict[int, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        if trajectory.task.required_turns is not None:
            groups[trajectory.task.required_turns].append(trajectory)
    return {length: _mean_over_tasks(groups[length], _success) for length in sorted(groups)}


def summarize(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return the `eval/*` metrics of these episodes; see the module's docstring for the unit.

    `pass_at_<k>` and `avg_at_<k>` are there when a task has several samples, for k = 1, 2, 4, ...
    and the number of samples; each is the mean over the tasks that have at least k samples.
    Without a usable episode only the two counts are returned.
    """
    kept = [t for t in trajectories if not t.stop.is_failure]
    metrics = {
        "eval/episodes": float(len(kept)),
        "eval/failed_episodes": float(len(trajectories) - len(kept)),
    }
    if not kept:
        return metrics
    samples = [[t.success for t in group] for group in _by_task(kept).values()]
    low, high = rate_interval(samples)
    metrics |= {
        "eval/success": _mean_over_tasks(kept, _success),
        "eval/success_low": low,
        "eval/success_high": high,
        "eval/reward": _mean_over_tasks(kept, lambda t: t.reward),
        "eval/turns_mean": sum(len(t.turns) for t in kept) / len(kept),
    }
    metrics |= _named("eval/stop", stop_shares([t.stop for t in kept]))
    metrics |= _named("eval/success_by_length", by_required_length(kept))
    return metrics | _at_k(samples) | _by_family(kept)


def _by_family(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Success, reward and turns of each environment, where there are several."""
    families: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        families[trajectory.family].append(trajectory)
    if len(families) == 1:
        return {}
    metrics: dict[str, float] = {}
    for name, played in families.items():
        metrics |= {
            f"eval/{name}/success": _mean_over_tasks(played, _success),
            f"eval/{name}/reward": _mean_over_tasks(played, lambda t: t.reward),
            f"eval/{name}/turns_mean": sum(len(t.turns) for t in played) / len(played),
        }
    return metrics


def _at_k(samples_by_task: Sequence[Sequence[bool]]) -> dict[str, float]:
    most = max(len(samples) for samples in samples_by_task)
    metrics: dict[str, float] = {}
    if most == 1:
        return metrics
    for k in sorted({2**i for i in range(most.bit_length())} | {most}):
        enough = [samples for samples in samples_by_task if len(samples) >= k]
        metrics[f"eval/pass_at_{k}"] = _mean(pass_at_k(len(s), sum(s), k) for s in enough)
        metrics[f"eval/avg_at_{k}"] = _mean(avg_at_k(s, k) for s in enough)
    return metrics


def _by_task(trajectories: Iterable[Trajectory]) -> dict[tuple[str, str], list[Trajectory]]:
    groups: dict[tuple[str, str], list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        groups[trajectory.family, trajectory.task.id].append(trajectory)
    return {task: sorted(groups[task], key=lambda t: t.index) for task in sorted(groups)}


def _mean_over_tasks(
    trajectories: Iterable[Trajectory], value: Callable[[Trajectory], float]
) -> float:
    groups = _by_task(trajectories).values()
    return _mean(_mean(value(t) for t in group) for group in groups)


def _success(trajectory: Trajectory) -> float:
    return float(trajectory.success)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _named(prefix: str, values: Mapping[str, float] | Mapping[int, float]) -> dict[str, float]:
    return {f"{prefix}/{name}": value for name, value in values.items()}
