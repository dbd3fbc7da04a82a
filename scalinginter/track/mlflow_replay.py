"""One run folder, replayed to MLflow: what is new goes out, and how far it went is remembered.

The state lies in `<run>/mlflow.json` and is replaced after every piece that the server has
acknowledged. A piece that is sent twice (the writer died in between) is the same points with the
same times, which MLflow stores once. After a resume the journal holds the steps since the
checkpoint a second time: those steps are in MLflow already and are not sent again, so that a chart
has one point per step.
"""

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalinginter.track.follow import Cursor, read_new
from scalinginter.track.journal import EPISODES, METRICS, MetricsLine, parse_metrics
from scalinginter.track.mlflow_client import safe_name, without_password
from scalinginter.track.mlflow_traces import log_traces
from scalinginter.track.run_folder import (
    CONFIG,
    RunInfo,
    flatten,
    read_config,
    read_run_info,
    replace_file,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

STATE = "mlflow.json"
_BATCH = 1000  # metrics in one call: MLflow's limit
_PARAMS = 100  # parameters in one call: MLflow's limit
_MAX_PARAM = 6000
_MAX_TAG = 8000
_READ_BYTES = 1 << 20
_RUN_STATUS = {
    "running": "RUNNING",
    "finished": "FINISHED",
    "stopped": "KILLED",
    "failed": "FAILED",
}
_ID_TAG = "scalinginter.id"
_INDEX = re.compile(rb'"index": (\d+)')


@dataclass
class ReplayState:
    """Content of `mlflow.json`."""

    uri: str
    experiment: str
    experiment_id: str
    key: str = field(default_factory=lambda: uuid.uuid4().hex)  # tag that finds a half-made run
    run_id: str | None = None
    metrics: Cursor = field(default_factory=Cursor)
    episodes: Cursor = field(default_factory=Cursor)
    sent: dict[str, int] = field(default_factory=dict)  # by stage: the last step in MLflow
    skip: dict[str, int] = field(default_factory=dict)  # by stage: steps up to here are there
    traced: dict[str, list[int]] = field(default_factory=dict)  # by stage: step, its traces
    status: str = "RUNNING"
    files: dict[str, int] = field(default_factory=dict)  # uploaded: name, modification time


class RunReplay:
    """Brings one run folder's content to MLflow, a piece at a time."""

    def __init__(
        self,
        run_dir: Path,
        client: "MlflowClient",
        uri: str,
        experiment: str,
        experiment_id: str,
        traces_per_step: int,
    ) -> None:
        self.run_dir = run_dir
        self._client = client
        self._traces_per_step = traces_per_step
        self._state = _load_state(run_dir, uri, experiment, experiment_id)
        self._checked = False

    def advance(self) -> bool:
        """Send one piece; return whether there may be more. Raises MlflowException."""
        info = read_run_info(self.run_dir)
        if not self._checked:
            self._find_or_create(info)
        more = self._send_metrics() or self._send_episodes()  # numbers first
        if not more:
            self._send_files(self.run_dir, ended=info.status != "running")
            self._send_status(info)
        return more

    def close(self) -> None:
        """Everything is sent and the trainer is gone: a run that says "running" has died."""
        info = read_run_info(self.run_dir)
        if info.comparison is not None and self._state.run_id is not None:
            self._send_files(self.run_dir.parent.parent, ended=True)  # <root>/<arm>/seed<k>
        if info.status == "running" and self._state.run_id is not None:
            self._send_status(replace(info, status="failed"))

    @property
    def _run_id(self) -> str:
        assert self._state.run_id is not None, "advance() makes the run first"
        return self._state.run_id

    def _find_or_create(self, info: RunInfo) -> None:
        if self._state.run_id is not None and not self._exists(self._state.run_id):
            state = self._state  # deleted by the user, or with the whole store: start over
            self._state = ReplayState(state.uri, state.experiment, state.experiment_id)
        if self._state.run_id is None:
            self._save()  # the key, before the run that carries it
            self._state.run_id = self._create(info)
            self._save()
        self._checked = True

    def _exists(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            return self._client.get_run(run_id).info.lifecycle_stage == "active"
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def _create(self, info: RunInfo) -> str:
        """Make the run with its tags and parameters, or take up one that was left half made."""
        from mlflow.entities import Param

        state = self._state
        found = self._client.search_runs(
            [state.experiment_id], f"tags.`{_ID_TAG}` = '{state.key}'", max_results=1
        )
        if found:
            run_id = found[0].info.run_id
        else:
            run_id = self._client.create_run(
                state.experiment_id,
                start_time=int(info.started * 1000),
                tags=_tags(info) | {_ID_TAG: state.key},
                run_name=run_name(info),
            ).info.run_id
        leaves = flatten(read_config(self.run_dir))
        params = [Param(safe_name(key), _text(value)) for key, value in leaves.items()]
        for start in range(0, len(params), _PARAMS):
            self._client.log_batch(run_id, params=params[start : start + _PARAMS])
        return run_id

    def _send_metrics(self) -> bool:
        state = self._state
        read = read_new(self.run_dir / METRICS, state.metrics, _READ_BYTES)
        if read.rewound:
            state.skip = dict(state.sent)
        lines = [parse_metrics(raw) for raw in read.lines]
        fresh = [line for line in lines if line.step > state.skip.get(line.stage, -1)]
        points = [point for line in fresh for point in _points(line)]
        for start in range(0, len(points), _BATCH):
            self._client.log_batch(self._run_id, metrics=points[start : start + _BATCH])
        state.sent |= {line.stage: line.step for line in fresh}
        moved = read.cursor != state.metrics
        state.metrics = read.cursor
        if moved:
            self._save()
        return moved

    def _send_episodes(self) -> bool:
        """Send the first episode of each of the first groups of a step as traces."""
        if self._traces_per_step == 0:
            return False
        state = self._state
        read = read_new(self.run_dir / EPISODES, state.episodes, _READ_BYTES)
        traced = dict(state.traced)
        chosen = [record for raw in read.lines for record in self._choose(raw, traced)]
        if chosen:
            log_traces(chosen, experiment_id=state.experiment_id, run_id=self._run_id)
            # MLflow keeps a failure to write traces to itself: a server that is gone is noticed
            # here, and these episodes are sent again when it is back
            self._client.get_run(self._run_id)
        moved = read.cursor != state.episodes
        state.episodes, state.traced = read.cursor, traced
        if moved:
            self._save()
        return moved

    def _choose(self, raw: bytes, traced: dict[str, list[int]]) -> list[dict[str, Any]]:
        """Return the episode of a line if it is to be a trace, and count it in `traced`."""
        if not _is_first_of_group(raw):
            return []
        record = json.loads(raw)
        step, count = traced.get(record["stage"], [-1, 0])
        if record["step"] > step:
            step, count = record["step"], 0
        if record["step"] < step or count >= self._traces_per_step:
            return []
        traced[record["stage"]] = [step, count + 1]
        return [record]

    def _send_files(self, home: Path, ended: bool) -> None:
        """Upload the recipe, and at the end the report and its plots; again when they change."""
        names = [CONFIG]
        if ended:
            plots = sorted(home.glob("plots/*.png"))
            names += ["report.md", *(str(path.relative_to(home)) for path in plots)]
        for name in names:
            path = home / name
            if not path.is_file() or self._state.files.get(name) == path.stat().st_mtime_ns:
                continue
            folder = str(Path(name).parent) if "/" in name else None
            self._client.log_artifact(self._run_id, str(path), folder)
            self._state.files[name] = path.stat().st_mtime_ns
            self._save()

    def _send_status(self, info: RunInfo) -> None:
        wanted = _RUN_STATUS[info.status]
        if wanted == self._state.status:
            return
        if wanted == "RUNNING":  # resumed
            self._client.update_run(self._run_id, status=wanted)
        else:
            end_ms = int(info.finished * 1000) if info.finished else None
            self._client.set_terminated(self._run_id, wanted, end_ms)
        self._state.status = wanted
        self._save()

    def _save(self) -> None:
        replace_file(self.run_dir / STATE, json.dumps(asdict(self._state), indent=1) + "\n")


def run_name(info: RunInfo) -> str:
    """Return the name that the charts show: the arm and the seed within a comparison."""
    return f"{info.arm} seed {info.seed}" if info.comparison and info.arm else info.name


def read_state(run_dir: str | Path) -> ReplayState | None:
    """Return what `mlflow.json` says; None when the run was never sent."""
    path = Path(run_dir) / STATE
    if not path.is_file():
        return None
    content = json.loads(path.read_text())
    cursors = {name: Cursor(**content[name]) for name in ("metrics", "episodes")}
    return ReplayState(**(content | cursors))


def _load_state(run_dir: Path, uri: str, experiment: str, experiment_id: str) -> ReplayState:
    """Return the run's state; a fresh one when it was sent elsewhere before."""
    target = (without_password(uri), experiment, experiment_id)
    state = read_state(run_dir)
    if state is None or (state.uri, state.experiment, state.experiment_id) != target:
        return ReplayState(*target)
    return state


def _points(line: MetricsLine) -> list["Metric"]:
    from mlflow.entities import Metric

    time_ms = int(line.time * 1000)
    return [
        Metric(name, value, time_ms, line.step)
        for name, value in _by_stage(line.stage, line.metrics).items()
    ]


def _by_stage(stage: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics under MLflow names that lines of other stages do not use.

    An evaluation repeats the cost so far, which the training line of the step has already.
    """
    if stage == "eval":
        metrics = {name: v for name, v in metrics.items() if not name.startswith("cost/")}
    if stage == "sft":
        metrics = {f"sft/{name.removeprefix('sft/')}": v for name, v in metrics.items()}
    return {safe_name(name): value for name, value in metrics.items()}


def _tags(info: RunInfo) -> dict[str, str]:
    tags = {
        "comparison": info.comparison,
        "arm": info.arm,
        "seed": str(info.seed),
        "mlflow.source.name": "scalinginter",
        "mlflow.source.type": "LOCAL",
        "mlflow.note.content": "`" + " ".join(info.command) + "`" if info.command else None,
    }
    return {key: value[:_MAX_TAG] for key, value in tags.items() if value is not None}


def _text(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _MAX_PARAM else text[: _MAX_PARAM - 3] + "..."


def _is_first_of_group(raw: bytes) -> bool:
    """Tell from the head of an episode's line, so that the long ones need not be parsed."""
    found = _INDEX.search(raw, 0, 1000)
    return found is None or found[1] == b"0"
