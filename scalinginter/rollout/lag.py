"""How many versions behind the policy the tokens of a step are."""

from collections import Counter
from collections.abc import Iterable

from scalinginter.types import Completion, Group


def lag_metrics(groups: Iterable[Group], version: int, most: int) -> dict[str, float]:
    """Return mean and largest lag, and the share of tokens at each lag from 0 to `most`.

    Args:
        groups: What a step trains on. The older policy of cross-policy sampling does not count.
        version: Of the policy that the step updates.
        most: The lag that pacing allows.
    """
    tokens: Counter[int] = Counter()
    for group in groups:
        for trajectory in group.trajectories:
            for turn in trajectory.turns:
                if not turn.completion.cross:
                    tokens.update(versions_of(turn.completion))
    lags = Counter({version - token: count for token, count in tokens.items()})
    total = max(lags.total(), 1)
    return {
        "async/lag_mean": sum(lag * count for lag, count in lags.items()) / total,
        "async/lag_max": float(max(lags, default=0)),
        **{f"async/lag_{lag}": lags[lag] / total for lag in range(most + 1)},
    }


def versions_of(completion: Completion) -> Counter[int]:
    """Return how many tokens of an answer are of each version."""
    if completion.token_versions is None:
        return Counter({completion.policy_version: len(completion.token_ids)})
    return Counter(completion.token_versions)
