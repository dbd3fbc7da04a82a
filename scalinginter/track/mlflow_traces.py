"""Episodes as MLflow traces: an AGENT span with one LLM and one TOOL span per turn.

    step 7 train/d2/000017     AGENT   the opening messages -> how it ended
      turn 0                   LLM     what was appended to the context -> the answer
      get 2 log                TOOL    action -> observation

The input of an LLM span is what the turn added to the context, not the whole context: a trace grows
with the episode, not with its square. Spans are in order; their durations mean nothing, because
episodes run together in one batch and have no time of their own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_SPAN_NS = 1_000_000
_MAX_NAME = 60


def log_traces(records: Sequence[Mapping[str, Any]], *, experiment_id: str, run_id: str) -> None:
    """Write episode records (lines of `episodes.jsonl`) as traces of a run; wait for the server.

    MLflow raises nothing when a trace cannot be written; it only says so in its log.
    """
    if not records:
        return
    import mlflow

    for record in records:
        _log_trace(record, experiment_id, run_id)
    mlflow.flush_trace_async_logging()


def _log_trace(record: Mapping[str, Any], experiment_id: str, run_id: str) -> None:
    import mlflow
    from mlflow.entities import SpanType
    from mlflow.tracing.constant import TraceMetadataKey

    turns, attributes = record.get("turns", []), _attributes(record)
    time_ns = int(record["time"] * 1e9) - 2 * len(turns) * _SPAN_NS
    root = mlflow.start_span_no_context(
        f"step {record['step']} {record.get('task', 'episode')}",
        span_type=SpanType.AGENT,
        inputs={"messages": record.get("opening", [])},
        attributes=attributes,
        tags={key: str(value) for key, value in attributes.items()},
        metadata={TraceMetadataKey.SOURCE_RUN: run_id},
        experiment_id=experiment_id,
        start_time_ns=time_ns,
    )
    seen: Any = record.get("opening")
    for index, turn in enumerate(turns):
        text, action, observation = (turn.get(key) for key in ("text", "action", "observation"))
        tool = action[:_MAX_NAME] if action else f"turn {index}: no action"
        model, reward = _model_attributes(turn), {"reward": turn.get("reward")}
        time_ns = _child(root, f"turn {index}", SpanType.LLM, seen, text, model, time_ns)
        time_ns = _child(root, tool, SpanType.TOOL, action, observation, reward, time_ns)
        seen = observation
    root.end(outputs=_outcome(record), end_time_ns=time_ns)


def _child(
    root: Any,
    name: str,
    span_type: str,
    inputs: Any,
    outputs: Any,
    attributes: dict[str, Any],
    start_ns: int,
) -> int:
    """Write one span below `root`; return where the next one starts."""
    import mlflow

    span = mlflow.start_span_no_context(
        name,
        span_type=span_type,
        parent_span=root,
        inputs=inputs,
        attributes=attributes,
        start_time_ns=start_ns,
    )
    span.end(outputs=outputs, end_time_ns=start_ns + _SPAN_NS)
    return start_ns + _SPAN_NS


def _outcome(record: Mapping[str, Any]) -> str:
    """Return how the episode ended, in words: it is a column of MLflow's list of traces."""
    verdict = "success" if record.get("success") else "no success"
    turns = len(record.get("turns", []))
    return f"{verdict}: reward {record.get('reward')}, {turns} turns, stop {record.get('stop')}"


def _attributes(record: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("step", "stage", "task", "group", "horizon", "stop", "success", "reward")
    return {key: record[key] for key in (*keys, "required_turns") if record.get(key) is not None}


def _model_attributes(turn: Mapping[str, Any]) -> dict[str, Any]:
    logprobs = [value for value in turn.get("logprobs") or [] if value is not None]
    values = {
        "policy_version": turn.get("version"),
        "generated_tokens": len(turn.get("token_ids") or []),
        "mean_logprob": sum(logprobs) / len(logprobs) if logprobs else None,
    }
    return {key: value for key, value in values.items() if value is not None}
