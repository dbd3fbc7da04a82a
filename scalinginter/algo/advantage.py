# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""Advantages of group methods: pure functions of rewards, in numpy.

Shape suffixes: `_G` members of one group, one entry per episode (however many rows it became);
`_K` turns of an episode.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

STD_EPSILON = 1e-6  # added to the standard deviation
EQUAL_REWARDS = 1e-9  # rewards closer than this are equal: their difference is rounding


def group_advantages(
    rewards_G: NDArray[np.float64],
    counted_G: NDArray[np.bool_] | None = None,
    *,
    normalize: bool,
) -> NDArray[np.float64]:
    """Return reward minus group mean, divided by the group's standard deviation on request.

    GRPO, DeepSeekMath (arXiv 2402.03300), section 4.1.2: A_i = (r_i - mean(r)) / std(r). The
    standard deviation is the sample one (ddof 1), as in TRL and verl, plus `STD_EPSILON`.

    Only members with `counted_G` (None: all) enter mean and deviation; the others get 0. A group
    whose counted rewards are all equal, or that counts fewer than two, says nothing: exactly 0 for
    everyone.
    """
    advantages_G = np.zeros_like(rewards_G, dtype=np.float64)
    counted_G = np.ones(len(rewards_G), dtype=np.bool_) if counted_G is None else counted_G
    counted = rewards_G[counted_G].astype(np.float64)
    if not has_variance(counted):
        return advantages_G
    centred = counted - counted.mean()
    scale = counted.std(ddof=1) + STD_EPSILON if normalize else 1.0
    advantages_G[counted_G] = centred / scale
    return advantages_G


def leave_one_out_advantages(rewards_G: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each reward less the mean of the others (RLOO, arXiv 2402.14740, section 3.3).

    Rewards that are all equal, or a single one, give exactly 0.
    """
    if not has_variance(rewards_G):
        return np.zeros_like(rewards_G, dtype=np.float64)
    size = len(rewards_G)
    return (rewards_G - rewards_G.mean()) * (size / (size - 1))


def overlong_penalty(lengths_G: NDArray[np.integer], most: int, cache: int) -> NDArray[np.float64]:
    """Return what an episode's length adds to its reward, between 0 and -1.

    DAPO (arXiv 2503.14476), equation 13: 0 up to `most - cache` tokens, from there linear to -1 at
    `most` tokens, and -1 beyond.
    """
    over_G = lengths_G.astype(np.float64) - (most - cache)
    return -np.clip(over_G / cache, 0.0, 1.0)


def returns_to_go(rewards_K: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """Return per turn k the sum over j >= k of gamma^(j - k) * reward of turn j."""
    returns_K = np.zeros_like(rewards_K, dtype=np.float64)
    total = 0.0
    for turn in reversed(range(len(rewards_K))):
        total = returns_K[turn] = rewards_K[turn] + gamma * total
    return returns_K


def turn_advantages(
    worth: Sequence[NDArray[np.float64]], *, everyone: bool, normalize: bool
) -> list[NDArray[np.float64]]:
    """Return `group_advantages` of the turns that have one number, turn number by turn number.

    Args:
        worth: Per episode of the group [num_turns].
        everyone: An episode that has ended stays in the comparison, with its last turn's worth;
            otherwise it leaves.
        normalize: Divide by the standard deviation among those compared.
    """
    advantages = [np.zeros_like(worth_K, dtype=np.float64) for worth_K in worth]
    for turn in range(max(map(len, worth), default=0)):
        running = [index for index, worth_K in enumerate(worth) if len(worth_K) > turn]
        compared = [i for i, worth_K in enumerate(worth) if len(worth_K)] if everyone else running
        values = np.array([worth[i][min(turn, len(worth[i]) - 1)] for i in compared])
        found = dict(zip(compared, group_advantages(values, normalize=normalize), strict=True))
        for index in running:
            advantages[index][turn] = found[index]
    return advantages


def has_variance(rewards: NDArray[np.float64]) -> bool:
    """Whether the rewards of a group differ, so that some of its episodes beat others."""
    return bool(len(rewards) > 1 and np.ptp(rewards) > EQUAL_REWARDS)
