# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""Generalised advantage estimation over one episode: pure functions, in numpy.

A decision is one trained token (token level) or all trained tokens of one turn (turn level). What
was not sampled (prompts, observations, forced ids) is no decision: it lies between two of them and
takes no part, however long it is and however many rows the episode became.

    ids       prompt   a  b  </s>   observation   c  </s>   observation
    token            V0 V1 V2                   V3 V4                     V(after)
    turn             V0                         V1                        V(after)
    rewards                 r of turn 0            r of turn 1

The value of a decision is that of the state in which it is taken: it is read at the position before
its (first) token, where that token's logits are read too. For a turn that is the last id of its
context. `V(after)` counts where a limit of ours cut the episode; where the environment ended it
there is nothing to come, and it is 0.

Time is counted in turns at both levels: the discount applies from one turn to the next and not from
token to token, so that a longer answer is worth as much as a short one. Lambda counts decisions.

Shape suffixes: `_N` trained tokens of an episode in order, `_K` its turns, `_D` decisions.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Level = Literal["token", "turn"]
Floats = NDArray[np.float64]


def gae(
    rewards_D: Floats, values_D: Floats, final_value: float, gamma: float | Floats, lam: float
) -> Floats:
    """Return the advantage of each decision (arXiv 1506.02438, equation 16).

    A_d = sum over l of (gamma lam)^l delta_(d+l), delta_d = r_d + gamma V_(d+1) - V_d, where the
    value after the last decision is `final_value`: 0 at termination, V(after) at truncation.
    `gamma` may differ from decision to decision ([D]: the discount of what comes after each).
    """
    gamma_D = np.broadcast_to(gamma, rewards_D.shape)
    deltas_D = rewards_D + gamma_D * np.append(values_D[1:], final_value) - values_D
    advantages_D = np.empty_like(deltas_D)
    running = 0.0
    for d in range(len(deltas_D) - 1, -1, -1):
        running = deltas_D[d] + gamma_D[d] * lam * running
        advantages_D[d] = running
    return advantages_D


def adaptive_lambda(num_decisions: int, alpha: float) -> float:
    """Return lambda = 1 - 1 / (alpha * length), not below 0 (VAPO, arXiv 2504.05118, section 4.2).

    The weights lambda^l then sum to alpha * length: bootstrapping reaches as far in a long episode
    as in a short one.
    """
    return max(0.0, 1.0 - 1.0 / (alpha * num_decisions))


def place_rewards(rewards_K: Floats, turn_N: NDArray[np.integer]) -> Floats:
    """Return [N]: the reward of each turn on its last trained token, 0 elsewhere.

    Never on a token that the loss masks, where it would be lost. A turn of which nothing was
    sampled (every id was forced) decided nothing: its reward goes to the last decision before it,
    and what is earned before the first decision is nobody's.

    Args:
        rewards_K: Reward of each turn.
        turn_N: The turn of each trained token, ascending.
    """
    rewards_N = np.zeros(len(turn_N))
    last_K = np.searchsorted(turn_N, np.arange(len(rewards_K)), side="right") - 1
    earned_K = last_K >= 0
    np.add.at(rewards_N, last_K[earned_K], rewards_K[earned_K])
    return rewards_N


def turn_starts(turn_N: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return [N]: whether a trained token is the first one of its turn."""
    return np.diff(turn_N, prepend=-1) != 0


def estimate(
    rewards_K: Floats,
    turn_N: NDArray[np.integer],
    values_N: Floats,
    final_value: float,
    *,
    level: Level,
    gamma: float,
    lam: float,
    value_lam: float | None = None,
    adaptive_alpha: float | None = None,
) -> tuple[Floats, Floats]:
    """Return advantages [N] and value targets [N] of the trained tokens of one episode.

    At turn level all tokens of a turn share the advantage of the turn, and the value of its first
    token alone has a target: the other targets are NaN.

    A target is the lambda return A + V, with a lambda of its own (`value_lam`) on request: 1 keeps
    the bias of the values out of what they are trained on (VC-PPO, arXiv 2503.01491, section 4.2).

    Args:
        rewards_K: Reward of each turn.
        turn_N: The turn of each trained token, ascending.
        values_N: Value of the state before each trained token.
        final_value: Value of the state after the episode: 0 if the environment ended it.
        level: What a decision is.
        gamma: Discount from one turn to the next.
        lam: Of equation 16, per decision.
        value_lam: Of the targets; None: `lam`.
        adaptive_alpha: Instead of `lam`, see `adaptive_lambda`.
    """
    first_N = turn_starts(turn_N) if level == "turn" else np.ones(len(turn_N), dtype=np.bool_)
    decision_N = np.cumsum(first_N) - 1
    rewards_D = np.zeros(int(first_N.sum()))
    np.add.at(rewards_D, decision_N, place_rewards(rewards_K, turn_N))
    values_D = values_N[first_N].astype(np.float64)
    if adaptive_alpha is not None:
        lam = adaptive_lambda(max(len(values_D), 1), adaptive_alpha)
    ends_D = np.append(np.diff(turn_N[first_N]) != 0, True)  # of a turn, after the decision
    gamma_D = np.where(ends_D, gamma, 1.0)
    advantages_D = gae(rewards_D, values_D, final_value, gamma_D, lam)
    learned_D = advantages_D
    if value_lam is not None and value_lam != lam:
        learned_D = gae(rewards_D, values_D, final_value, gamma_D, value_lam)
    targets_N = np.full(len(turn_N), np.nan)
    targets_N[first_N] = learned_D + values_D
    return advantages_D[decision_N], targets_N


def moments(total: float, squares: float, count: float) -> tuple[float, float]:
    """Return mean and standard deviation (ddof 1) from sums, which add up over ranks.

    Of fewer than two values the deviation is 0.
    """
    if count < 2:
        return (total / count if count else 0.0), 0.0
    mean = total / count
    return mean, max(0.0, (squares - count * mean * mean) / (count - 1)) ** 0.5


def explained_variance(sums: tuple[float, float, float, float, float]) -> float:
    """Return 1 - Var(target - value) / Var(target): 1 is perfect, 0 no better than a constant.

    Args:
        sums: Count, and the sums of target, target^2, error and error^2; they add up over ranks.
    """
    count, target, squares, error, errors = sums
    _, deviation = moments(target, squares, count)
    _, left = moments(error, errors, count)
    return 1.0 - (left / deviation) ** 2 if deviation > 1e-9 else 0.0
