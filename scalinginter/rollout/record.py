"""An episode as one JSON record: all that a person or a replay needs, ids included."""

from dataclasses import replace
from typing import Any

from scalinginter.types import Completion, Trajectory, Turn


def episode_record(trajectory: Trajectory) -> dict[str, Any]:
    """Return the record of an episode as JSON values."""
    return {
        "task": trajectory.task.id,
        "environment": trajectory.task.environment,
        "family": trajectory.family,
        "group": trajectory.group_id,
        "index": trajectory.index,
        "seed": trajectory.seed,
        "horizon": trajectory.horizon,
        "stop": str(trajectory.stop),
        "success": trajectory.success,
        "reward": trajectory.reward,
        "required_turns": trajectory.task.required_turns,
        "policy_versions": list(trajectory.policy_versions),
        "error": trajectory.error,
        "opening": [{"role": "user", "content": trajectory.first_observation}],
        "turns": [_turn_record(turn) for turn in trajectory.turns],
    }


def _turn_record(turn: Turn) -> dict[str, Any]:
    told = {
        "text": turn.text,
        "action": turn.action,
        "observation": turn.observation,
        "reward": turn.reward,
    }
    if turn.completion.counted_tokens is not None:  # it came as text: nobody knows its ids
        return told | {"counted_tokens": turn.completion.counted_tokens}
    return {
        **told,
        "forked": turn.forked,
        "context_ids": list(turn.context_ids),
        "token_ids": list(turn.completion.token_ids),
        "logprobs": [round(value, 6) for value in turn.completion.logprobs],
        "version": turn.completion.policy_version,
    } | _exceptions(turn.completion)


def _exceptions(completion: Completion) -> dict[str, Any]:
    """What few turns have: a weight change in their midst, or another policy as their author."""
    found: dict[str, Any] = {}
    if completion.token_versions is not None:
        found["versions"] = list(completion.token_versions)
    if completion.cross:
        found["cross_policy"] = True
    return found


def without_tokens(trajectory: Trajectory) -> Trajectory:
    """Return an episode as another process has to know it: outcomes and lengths, no contents.

    Token ids become ranges of their length: they are pickled as two numbers.
    """
    return replace(
        trajectory,
        task=replace(trajectory.task, data={}),
        turns=tuple(_turn_without_tokens(turn) for turn in trajectory.turns),
        first_observation="",
        elsewhere=True,
    )


def _turn_without_tokens(turn: Turn) -> Turn:
    length: Any = range(len(turn.completion.token_ids))
    context: Any = range(len(turn.context_ids))
    completion = replace(
        turn.completion, token_ids=length, logprobs=length, forced=length, allowed=length
    )
    action = None if turn.action is None else ""
    return replace(
        turn, context_ids=context, completion=completion, text="", action=action, observation=""
    )
