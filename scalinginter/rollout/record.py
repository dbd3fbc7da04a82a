"""An episode as one JSON record: all that a person or a replay needs, ids included."""

from typing import Any

from scalinginter.types import Trajectory, Turn


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
    return {
        "text": turn.text,
        "action": turn.action,
        "observation": turn.observation,
        "reward": turn.reward,
        "forked": turn.forked,
        "context_ids": list(turn.context_ids),
        "token_ids": list(turn.completion.token_ids),
        "logprobs": [round(value, 6) for value in turn.completion.logprobs],
        "version": turn.completion.policy_version,
    }
