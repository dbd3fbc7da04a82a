"""Which arm leads, and whether the seeds support it. Pure functions over numbers per seed.

Seeds are the repetitions. Two arms are compared on the seeds that both have: the same seed means
the same initial weights and the same evaluation tasks, so the differences are paired.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scalinginter.eval.metrics import bootstrap_interval

ALPHA = 0.05
TIE = 0.01  # differences of means below this are called a tie: one point of success
_EXACT_UP_TO = 16  # pairs; beyond, sign flips are drawn


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds with its bootstrap interval."""

    mean: float
    low: float
    high: float
    num_seeds: int


@dataclass(frozen=True, slots=True)
class Paired:
    """Arm `a` minus arm `b` over the seeds that both have."""

    a: str
    b: str
    difference: Estimate
    wins: int  # seeds on which a is ahead
    losses: int
    effect: float | None  # mean difference over the standard deviation of the differences
    p_value: float  # exact two-sided sign-flip test
    smallest_p: float  # what the test can give at best with this number of seeds


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who leads and how far the seeds support it."""

    leader: str | None  # None: nothing to compare, or a tie at the top
    headline: str
    details: tuple[str, ...]  # one sentence per other arm
    separated: bool  # every other arm is separated from the leader


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean and percentile bootstrap interval of one value per seed."""
    low, high = bootstrap_interval(values)
    return Estimate(float(np.mean(values)), low, high, len(values))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the two-sided p of the paired sign-flip test on the mean.

    Under the null hypothesis each difference is as likely as its negative, so p is the share of
    the 2^n sign assignments whose mean is at least as far from 0 as the one observed (Fisher 1935,
    section 21). Exact up to 16 pairs; beyond, 2^16 assignments are drawn with a fixed seed.
    """
    data = np.asarray(differences, dtype=np.float64)
    if len(data) <= _EXACT_UP_TO:
        signs = np.asarray(list(itertools.product((1.0, -1.0), repeat=len(data))))
    else:
        drawn = np.random.default_rng(0).integers(0, 2, (2**_EXACT_UP_TO, len(data)))
        signs = np.concatenate([np.ones((1, len(data))), drawn * 2.0 - 1.0])
    observed = abs(data.sum())
    # Sums of the same numbers in another order differ by rounding: those are equal, not smaller.
    tolerance = 1e-9 * np.abs(data).sum()
    return float(np.mean(np.abs(signs @ data) >= observed - tolerance))


def compare_pair(a: str, b: str, values: Mapping[str, Mapping[int, float]]) -> Paired | None:
    """Compare two arms; `values` is arm -> seed -> number. None when they share no seed."""
    shared = sorted(values[a].keys() & values[b].keys())
    if not shared:
        return None
    differences = np.asarray([values[a][seed] - values[b][seed] for seed in shared])
    spread = differences.std(ddof=1) if len(shared) > 1 else 0.0
    return Paired(
        a=a,
        b=b,
        difference=estimate(differences.tolist()),
        wins=int((differences > 0).sum()),
        losses=int((differences < 0).sum()),
        effect=float(differences.mean() / spread) if spread > 0 else None,
        p_value=sign_flip_p(differences.tolist()),
        smallest_p=min(1.0, 2.0 ** (1 - len(shared))),
    )


def task_bootstrap(a: Mapping[str, float], b: Mapping[str, float]) -> Estimate:
    """Return the mean of `a - b` over held-out tasks that both have, tasks resampled.

    `a`, `b`: success rate by task id, averaged over seeds. Says how far the choice of tasks
    matters for these trained policies; it says nothing about other training seeds. `num_seeds` of
    the result counts tasks.
    """
    shared = sorted(a.keys() & b.keys())
    if not shared:
        raise ValueError("task_bootstrap needs a task that both arms have")
    return estimate([a[task] - b[task] for task in shared])


def verdict(values: Mapping[str, Mapping[int, float]], what: str) -> Verdict:
    """Say which arm leads; `values` is arm -> seed -> number, `what` names it and the cost.

    Only seeds that every arm has finished are used, so that all means are of the same seeds.
    An arm is separated from the leader when the sign-flip p is at most 0.05 divided by the number
    of other arms (Bonferroni: the leader was picked after looking).
    """
    values = {arm: seeds for arm, seeds in values.items() if seeds}
    if len(values) < 2:
        have = f"only {next(iter(values))} has" if values else "no arm has"
        return Verdict(None, f"Nothing to compare yet: {have} a finished run.", (), False)
    shared = sorted(set.intersection(*(set(seeds) for seeds in values.values())))
    if not shared:
        return Verdict(None, "Nothing to compare yet: no seed has finished in all arms.", (), False)
    if any(len(seeds) > len(shared) for seeds in values.values()):
        what += f", seeds {', '.join(map(str, shared))} (finished in every arm)"
    values = {arm: {seed: seeds[seed] for seed in shared} for arm, seeds in values.items()}
    means = {arm: float(np.mean(list(seeds.values()))) for arm, seeds in values.items()}
    ranked = sorted(means, key=lambda arm: -means[arm])
    leader, others = ranked[0], ranked[1:]
    pairs = [pair for other in others if (pair := compare_pair(leader, other, values))]
    alpha = ALPHA / len(others)
    details = tuple(describe(pair, alpha) for pair in pairs)
    separated = all(pair.p_value <= alpha for pair in pairs)
    tied = [other for other in others if means[leader] - means[other] < TIE]
    if tied:
        names = " and ".join([leader, *tied])
        headline = f"{names} tie on {what}: {means[leader]:.2f} against {means[tied[0]]:.2f}."
        return Verdict(None, headline, details, separated)
    support = _support(pairs, separated)
    headline = f"{leader} leads on {what}: {means[leader]:.2f}"
    rivals = ", ".join(f"{arm} {means[arm]:.2f}" for arm in others)
    return Verdict(leader, f"{headline} ({rivals}); {support}.", details, separated)


def describe(pair: Paired, alpha: float) -> str:
    """Return one sentence on two arms; `alpha` is the p that separates them."""
    d, n = pair.difference, pair.difference.num_seeds
    lead = f"{pair.a} - {pair.b}: {d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}]"
    if n == 1:
        return f"{lead} on one seed, which says nothing about the spread between seeds."
    ahead = f"ahead on {pair.wins} of {n} seeds, p = {pair.p_value:.3g}"
    if pair.p_value <= alpha:
        return f"{lead}, {ahead}: the seeds separate the two."
    if abs(d.mean) < TIE:
        return f"{lead}, {ahead}: a tie."
    if pair.smallest_p > alpha:
        possible = f"{_count(n)} seeds cannot separate two arms here (smallest possible p"
        return f"{lead}, {ahead}: {possible} {pair.smallest_p:.3g}, needed {alpha:.3g})."
    return f"{lead}, {ahead}: within the noise between seeds (needed p {alpha:.3g})."


def _support(pairs: Sequence[Paired], separated: bool) -> str:
    if separated:
        return "the seeds separate it from every other arm"
    fewest = min((pair.difference.num_seeds for pair in pairs), default=0)
    if fewest <= 1:
        return "with one seed this is an observation, not evidence"
    if any(pair.smallest_p > ALPHA / len(pairs) for pair in pairs):
        every = all(pair.wins == pair.difference.num_seeds for pair in pairs)
        how = "on every seed, but" if every else "but"
        return f"{how} {_count(fewest)} seeds cannot separate the arms"
    return "but the seeds do not separate it from every other arm"


def _count(number: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return words[number] if number < len(words) else str(number)
