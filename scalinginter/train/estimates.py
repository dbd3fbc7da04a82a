# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""From a critic's values to the advantages of a step's rows, once, before the first update.

    rows -> values -> GAE per episode -> whitened over the batch, or per environment

Where a limit of ours cut an episode, its last row is forwarded with what the policy would have seen
next (`Trajectory.next_ids`): the value of that state stands for all that was not played. Where that
would not have fitted the context, the state right after the last sampled token takes its place: it
knows the last action and not yet its result.

Shape suffixes: `_T` ids of a row, `_N` trained tokens of an episode.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scalinginter.algo.gae import estimate, explained_variance, moments
from scalinginter.config.algorithms import PPOConfig
from scalinginter.train.batch import pack
from scalinginter.train.critic import Critic, SumOverRanks, positions_of
from scalinginter.train.minibatch import idle_row
from scalinginter.types import TrainingSample, Trajectory

WHITEN_EPSILON = 1e-8  # added to the standard deviation
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimates:
    """Rows with advantages, values and targets, and what to log of them."""

    samples: list[TrainingSample]
    metrics: dict[str, float]
    forwarded: int  # tokens


def estimate_advantages(
    critic: Critic,
    samples: Sequence[TrainingSample],
    episodes: Sequence[Trajectory],
    *,
    max_tokens: int,
    sum_over_ranks: SumOverRanks,
    most_over_ranks: Callable[[float], float] = float,
) -> Estimates:
    """Give the rows of a step the advantages that the critic's present values say.

    Args:
        critic: Is not changed.
        samples: Rows of the episodes; `sample.episode` is a position in `episodes`.
        episodes: With the rewards of their turns, and why they ended.
        max_tokens: Of one forward pass.
        sum_over_ranks: Adds up numbers; every rank calls it, with rows or without.
        most_over_ranks: Finds the largest number. All ranks forward as many batches.
    """
    config = critic.config
    rows: dict[int, list[TrainingSample]] = {}
    for sample in samples:
        rows.setdefault(sample.episode, []).append(sample)
    probes = {number: _probes(own, episodes[number], config) for number, own in rows.items()}
    flat = [probe for own in probes.values() for probe in own]
    values, forwarded = _values(critic, flat, max_tokens, most_over_ranks)
    rest = iter(values)
    done: list[TrainingSample] = []
    for number, own in rows.items():
        values_N = np.concatenate([next(rest) for _ in probes[number]])
        done += _of_episode(own, episodes[number], values_N, config)
    whitened, metrics = _whitened(done, episodes, config, sum_over_ranks)
    cut = [float(sum(_bootstraps(episodes[number], config) for number in rows)), float(len(rows))]
    bootstrapped, count = sum_over_ranks(cut)
    metrics["value/bootstrapped_share"] = bootstrapped / max(count, 1.0)
    return Estimates(whitened, metrics, forwarded)


def _bootstraps(episode: Trajectory, config: PPOConfig) -> bool:
    return config.bootstrap_truncated and episode.stop.is_truncation


def _probes(
    own: list[TrainingSample], episode: Trajectory, config: PPOConfig
) -> list[TrainingSample]:
    """Return the rows of an episode as they are forwarded.

    Where a value is bootstrapped, one more trained token follows: nobody reads it, the value before
    it is the one of the state after the episode.
    """
    if not _bootstraps(episode, config):
        return own
    last, after = own[-1], episode.next_ids
    if after and episode.next_forked:
        return [*own, _followed(last, 0, after)]
    if after and last.turn_index[-1] == len(episode.turns) - 1:
        return [*own[:-1], _followed(last, len(last), after)]
    return [*own[:-1], _followed(last, int(np.flatnonzero(last.mask)[-1]) + 1, ())]


def _followed(sample: TrainingSample, keep: int, after: Sequence[int]) -> TrainingSample:
    """Return the first `keep` ids of a row, then `after`, then one trained id that nobody reads."""
    more = len(after) + 1
    added = np.zeros(more, dtype=np.bool_)
    added[-1] = True
    return TrainingSample(
        ids=np.concatenate([sample.ids[:keep], [*after, 0]]).astype(np.int64),
        mask=np.concatenate([sample.mask[:keep], added]),
        logprobs=np.zeros(keep + more, dtype=np.float32),
        advantages=np.zeros(keep + more, dtype=np.float32),
        turn_index=np.zeros(keep + more, dtype=np.int32),
        allowed=(*sample.allowed[:keep], *[None] * more),
        group_id=sample.group_id,
        episode=sample.episode,
        prefix_length=min(sample.prefix_length, keep),
    )


def _values(
    critic: Critic,
    rows: list[TrainingSample],
    max_tokens: int,
    most_over_ranks: Callable[[float], float],
) -> tuple[list[Floats], int]:
    """Return the values of each row's trained tokens, in order, and the tokens forwarded."""
    found: list[Floats] = [np.empty(int(row.mask.sum())) for row in rows]
    order = [np.cumsum(row.mask) - 1 for row in rows]  # position in the row -> trained token
    forwarded = 0
    batches = pack(rows, max_tokens, critic.device)
    idle = int(most_over_ranks(len(batches))) - len(batches)
    for batch in batches:
        values_N = critic.values(batch).double().cpu().numpy()
        positions_N = positions_of(batch)
        for row, at, value in zip(batch.row_N.tolist(), positions_N, values_N, strict=True):
            found[row][order[row][at]] = value
        forwarded += batch.num_forwarded(critic.packed)
    for batch in [b for _ in range(idle) for b in pack([idle_row()], 1, critic.device)]:
        critic.values(batch)  # of weights in parts every rank has to bring its own
    return found, forwarded


def _of_episode(
    own: list[TrainingSample], episode: Trajectory, values_N: Floats, config: PPOConfig
) -> list[TrainingSample]:
    """Fill in advantages, values and targets of the rows of one episode."""
    final = 0.0
    if _bootstraps(episode, config):
        values_N, final = values_N[:-1], float(values_N[-1])
    advantages_N, targets_N = estimate(
        np.array([turn.reward for turn in episode.turns], dtype=np.float64),
        np.concatenate([row.turn_index[row.mask] for row in own]),
        values_N,
        final,
        level=config.gae,
        gamma=config.gamma,
        lam=config.lam,
        value_lam=config.value_lam,
        adaptive_alpha=config.adaptive_lam,
    )
    cuts = np.cumsum([row.mask.sum() for row in own])[:-1]
    parts = zip(own, *(np.split(x, cuts) for x in (advantages_N, values_N, targets_N)), strict=True)
    return [
        replace(
            row,
            advantages=_spread(row, advantages, 0.0),
            values=_spread(row, values, 0.0),
            targets=_spread(row, targets, np.nan),
        )
        for row, advantages, values, targets in parts
    ]


def _spread(row: TrainingSample, entries: Floats, elsewhere: float) -> NDArray[np.float32]:
    spread_T = np.full(len(row), elsewhere, dtype=np.float32)
    spread_T[row.mask] = entries
    return spread_T


def _whitened(
    rows: list[TrainingSample],
    episodes: Sequence[Trajectory],
    config: PPOConfig,
    sum_over_ranks: SumOverRanks,
) -> tuple[list[TrainingSample], dict[str, float]]:
    """Bring the advantages of all decisions, on all ranks, to mean 0 and deviation 1.

    At turn level a turn is one decision, however many tokens it has. With `normalize_by_task` each
    environment's decisions are brought there by themselves.
    """
    decisions = [(row, np.isfinite(_targets(row))) for row in rows]
    targets = _joined([_targets(row)[at] for row, at in decisions])
    errors = targets - _joined([_values_of(row)[at] for row, at in decisions])
    by_task = config.normalize_by_task
    names = sorted({e.family for e in episodes}) if by_task else [""]  # the same on every rank
    tasks = [episodes[row.episode].family if by_task else "" for row in rows]
    advantages = {
        name: _joined(
            [row.advantages[at] for (row, at), t in zip(decisions, tasks, strict=True) if t == name]
        )
        for name in names
    }
    each = [_sums(x) for x in (targets, errors, *advantages.values())]
    totals = iter(sum_over_ranks([number for sums in each for number in sums]))
    summed = [(next(totals), next(totals), next(totals)) for _ in each]
    found = {name: moments(*sums) for name, sums in zip(names, summed[2:], strict=True)}
    if config.normalize_advantages:
        rows = [_scaled(row, *found[task]) for row, task in zip(rows, tasks, strict=True)]
    (target, target_squares, count), (error, error_squares, _) = summed[:2]
    explained = explained_variance((count, target, target_squares, error, error_squares))
    metrics = {
        "value/explained_variance": explained,
        "value/target_mean": target / max(count, 1.0),
        "value/error_mean": error / max(count, 1.0),
        "value/advantage_std": moments(*np.sum(summed[2:], axis=0).tolist())[1],
    }
    return rows, metrics


def _sums(values: Floats) -> tuple[float, float, float]:
    """Return sum, sum of squares and count, as `moments` takes them."""
    return float(values.sum()), float((values * values).sum()), float(len(values))


def _scaled(row: TrainingSample, mean: float, deviation: float) -> TrainingSample:
    scaled_T = (row.advantages - mean) / (deviation + WHITEN_EPSILON)
    return replace(row, advantages=scaled_T.astype(np.float32))


def _targets(row: TrainingSample) -> NDArray[np.float32]:
    assert row.targets is not None
    return row.targets


def _values_of(row: TrainingSample) -> NDArray[np.float32]:
    assert row.values is not None
    return row.values


def _joined(parts: list[NDArray[np.float32]]) -> Floats:
    return np.concatenate([np.zeros(0), *parts]).astype(np.float64)
