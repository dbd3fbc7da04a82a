"""What the engine's prefix cache did for some episodes."""

from collections.abc import Iterable

from scalinginter.types import Trajectory


def prefix_cache_metrics(episodes: Iterable[Trajectory]) -> dict[str, float]:
    """Return `rollout/cached_tokens` and `rollout/prefix_cache_share`.

    The first counts the prompt tokens of all turns that came out of a cache. The second is, over
    the turns after an episode's first, the share of what stood in its context before the turn (the
    previous prompt and its answer) that did; no such turn, no share.
    """
    cached_tokens = prefix_tokens = cached_prefix = 0
    for episode in episodes:
        length = 0  # of the context before a turn
        for turn in episode.turns:
            cached = turn.completion.cached_tokens
            length = 0 if turn.forked else length
            cached_tokens += cached
            prefix_tokens += length
            cached_prefix += min(cached, length)  # a new observation may be known, too
            length += len(turn.context_ids) + len(turn.completion.token_ids)
    metrics = {"rollout/cached_tokens": float(cached_tokens)}
    if prefix_tokens:
        metrics["rollout/prefix_cache_share"] = cached_prefix / prefix_tokens
    return metrics
