"""Episodes as MLflow traces: an AGENT span with one LLM and one TOOL span per turn.

    textcraft/d2/000017                 AGENT   instructions -> stop, success, reward
      turn 0 model                      LLM     what was appended to the context -> the answer
      turn 0 environment                TOOL    action -> observation, reward

The input of an LLM span is what the turn added to the context, not the whole context: a trace grows
with the episode, not with its square. Spans are in order; their durations mean nothing, because
episodes run together in one batch and have no time of their own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_TURN_NS = 1_000_000


def log_traces(records: Sequence[Mapping[str, Any]], *, experiment_id: str, run_id: str) -> None:
    """Write episode records (lines of `episodes.jsonl`) as traces of a run; wait for the server.

    MLflow reports a failure to write a trace in its log only; the records stay in the file.
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

    turns = record.get("turns", [])
    start = int(record["time"] * 1e9) - (2 * len(turns) + 1) * _TURN_NS
    root = mlflow.start_span_no_context(
        str(record.get("task", "episode")),
        span_type=SpanType.AGENT,
        inputs=record.get("opening"),
        attributes=_attributes(record),
        tags={key: str(value) for key, value in _attributes(record).items()},
        metadata={TraceMetadataKey.SOURCE_RUN: run_id},
        experiment_id=experiment_id,
        start_time_ns=start,
    )
    last_observation: Any = record.get("opening")
    for index, turn in enumerate(turns):
        start = _child(
            root,
            f"turn {index} model",
            SpanType.LLM,
            last_observation,
            turn.get("text"),
            _model_attributes(turn),
            start,
        )
        start = _child(
            root,
            f"turn {index} environment",
            SpanType.TOOL,
            turn.get("action"),
            turn.get("observation"),
            {"reward": turn.get("reward")},
            start,
        )
        last_observation = turn.get("observation")
    outcome = {key: record.get(key) for key in ("stop", "success", "reward")}
    root.end(outputs=outcome | {"turns": len(turns)}, end_time_ns=start)


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
    span.end(outputs=outputs, end_time_ns=start_ns + _TURN_NS)
    return start_ns + _TURN_NS


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
