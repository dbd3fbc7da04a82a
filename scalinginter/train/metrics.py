"""What one step's episodes say, as `stage/name` numbers; `stage/environment/name` where a run has
several environments."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from scalinginter.horizon import Horizon
from scalinginter.rollout.collect import Collection, says_something
from scalinginter.rollout.prefix_cache import prefix_cache_metrics
from scalinginter.types import StopReason, Trajectory, Turn


def rollout_metrics(collection: Collection, horizons: Mapping[str, Horizon]) -> dict[str, float]:
    """Return the metrics of a step's episodes. Broken ones are counted, not averaged.

    `horizons`: the ones in force, by environment; `horizon/max_turns` is the longest.
    """
    everything = collection.trajectories
    episodes = [t for t in everything if not t.stop.is_failure]
    longest = max(horizons.values(), key=lambda horizon: horizon.turns)
    metrics = {
        "horizon/max_turns": float(longest.turns),
        "horizon/stage": float(longest.stage),
        "rollout/episodes": float(len(episodes)),
        "rollout/retries": float(collection.num_retries),
        "rollout/zero_variance_groups": float(
            sum(not says_something(group) for group in (*collection.groups, *collection.dropped))
        ),
    }
    for reason in StopReason:
        metrics[f"stop/{reason}"] = _mean([t.stop is reason for t in everything])
    if len(horizons) > 1:
        metrics |= _by_family(collection, horizons)
    if not episodes:
        return metrics
    turns = [turn for t in episodes for turn in t.turns]
    metrics |= {
        "rollout/success": _mean([t.success for t in episodes]),
        "rollout/turns_mean": _mean([len(t.turns) for t in episodes]),
        "rollout/truncated_share": _mean([t.stop.is_truncation for t in episodes]),
        "rollout/parse_failure_share": _mean([turn.action is None for turn in turns]),
        "rollout/tokens_per_turn": _mean([len(turn.completion.token_ids) for turn in turns]),
        "rollout/forks": float(sum(turn.forked for turn in turns)),
        "reward/mean": _mean([t.reward for t in episodes]),
        "reward/std": float(np.std([t.reward for t in episodes])),
    }
    metrics |= prefix_cache_metrics(episodes)
    return metrics | _by_length(episodes) | _cross_policy(turns)


def _cross_policy(turns: Sequence[Turn]) -> dict[str, float]:
    """Return the share of turns that the older policy wrote, and how much older it is."""
    versions = {cross: [] for cross in (False, True)}
    for turn in turns:
        versions[turn.completion.cross].append(turn.completion.policy_version)
    if not versions[True]:
        return {}
    return {
        "cross_policy/share": len(versions[True]) / len(turns),
        "cross_policy/lag_mean": _mean(versions[False]) - _mean(versions[True]),
    }


def _by_family(collection: Collection, horizons: Mapping[str, Horizon]) -> dict[str, float]:
    metrics = {f"horizon/{name}/max_turns": float(h.turns) for name, h in horizons.items()}
    for name, everything in collection.by_family().items():
        episodes = [t for t in everything if not t.stop.is_failure]
        metrics[f"rollout/{name}/episodes"] = float(len(episodes))
        if episodes:
            metrics |= {
                f"rollout/{name}/success": _mean([t.success for t in episodes]),
                f"rollout/{name}/turns_mean": _mean([len(t.turns) for t in episodes]),
                f"rollout/{name}/truncated_share": _mean([t.stop.is_truncation for t in episodes]),
                f"reward/{name}/mean": _mean([t.reward for t in episodes]),
            }
    return metrics


def _by_length(episodes: Sequence[Trajectory]) -> dict[str, float]:
    rewards: dict[int, list[float]] = defaultdict(list)
    for trajectory in episodes:
        if trajectory.task.required_turns is not None:
            rewards[trajectory.task.required_turns].append(trajectory.reward)
    return {f"reward/by_length/{length}": _mean(rewards[length]) for length in sorted(rewards)}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
