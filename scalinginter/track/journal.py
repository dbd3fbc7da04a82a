"""The run's own record of numbers: two JSON-lines files that are the truth about it.

    <run>/metrics.jsonl    {"step": 7, "stage": "train", "time": 1764.., "metrics": {...}}
    <run>/episodes.jsonl   {"step": 7, "stage": "train", "time": 1764.., "task": ..., "turns": ...}

MLflow, the progress display and the reports read these files; none of them is written to by the
loop. A record is one `write` of one whole line, so a reader never sees half of one for long, and a
line that `kill -9` tore is cut off when the run is opened again. A checkpoint stores `offsets()`;
a resume gives them to `truncate`, so that no step is ever in the files twice.
"""

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from scalinginter.errors import CheckpointError

Stage = Literal["train", "eval", "sft"]
METRICS = "metrics.jsonl"
EPISODES = "episodes.jsonl"
_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class MetricsLine:
    """One line of `metrics.jsonl`; values that were NaN or infinite are missing from `metrics`."""

    step: int
    stage: str
    time: float  # unix seconds
    metrics: dict[str, float]


class Journal:
    """Appends to the two files of one run. One process writes, any number read."""

    def __init__(self, run_dir: str | Path) -> None:
        self.run_dir = Path(run_dir)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._files = {name: _open_whole(self.run_dir / name) for name in (METRICS, EPISODES)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def log(self, step: int, stage: Stage, metrics: Mapping[str, float]) -> None:
        """Append one line of metrics. NaN and infinities become null: the file stays JSON."""
        line = {
            "step": step,
            "stage": stage,
            "time": time.time(),
            "metrics": _finite(metrics),
        }
        self._append(METRICS, line)

    def episodes(self, step: int, stage: Stage, records: Iterable[Mapping[str, Any]]) -> None:
        """Append one line per episode; `step`, `stage` and `time` come first in each."""
        now = time.time()
        for record in records:
            self._append(EPISODES, {"step": step, "stage": stage, "time": now} | dict(record))

    def offsets(self) -> dict[str, int]:
        """Bring the files to disk and return their sizes in bytes, by file name."""
        for descriptor in self._files.values():
            os.fsync(descriptor)
        return {name: os.fstat(descriptor).st_size for name, descriptor in self._files.items()}

    def truncate(self, offsets: Mapping[str, int]) -> None:
        """Cut the files back to what a checkpoint saw.

        Raises CheckpointError when a file is shorter than that: it is not the checkpoint's run.
        """
        for name, descriptor in self._files.items():
            size, wanted = os.fstat(descriptor).st_size, offsets.get(name, 0)
            if size < wanted:
                raise CheckpointError(
                    f"{self.run_dir / name} holds {size} bytes, the checkpoint was written when it "
                    f"held {wanted}. The file was edited or belongs to another run; resume from an "
                    "older checkpoint, or start a new run folder."
                )
        for name, descriptor in self._files.items():
            os.ftruncate(descriptor, offsets.get(name, 0))
            os.fsync(descriptor)

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        data = (_dumps(record) + "\n").encode()
        written = os.write(self._files[name], data)
        while written < len(data):  # a full disk or a signal can cut a large write
            written += os.write(self._files[name], data[written:])


class NoJournal(Journal):
    """Keeps nothing: what the processes of a run have that are not its first."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        pass


def read_metrics(run_dir: str | Path, stage: Stage | None = None) -> list[MetricsLine]:
    """Return the lines of a run in the order of writing; an absent file is an empty run."""
    lines = []
    for raw in _whole_lines(Path(run_dir) / METRICS):
        record = parse_metrics(raw)
        if stage in (None, record.stage):
            lines.append(record)
    return lines


def read_episodes(run_dir: str | Path, stage: Stage | None = None) -> Iterator[dict[str, Any]]:
    """Yield the episode records of a run one by one: the file can be large."""
    for raw in _whole_lines(Path(run_dir) / EPISODES):
        record = json.loads(raw)
        if stage in (None, record["stage"]):
            yield record


def parse_metrics(line: bytes) -> MetricsLine:
    """Return one line of `metrics.jsonl` as a record, without its nulls."""
    record = json.loads(line)
    metrics = {name: value for name, value in record["metrics"].items() if value is not None}
    return MetricsLine(record["step"], record["stage"], record["time"], metrics)


def _whole_lines(path: Path) -> Iterator[bytes]:
    if not path.exists():
        return
    with path.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))


def _open_whole(path: Path) -> int:
    """Open for appending, after cutting a last line that has no end."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    os.ftruncate(descriptor, _end_of_last_line(descriptor))
    return descriptor


def _end_of_last_line(descriptor: int) -> int:
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    values = {name: float(value) for name, value in metrics.items()}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _dumps(record: Any) -> str:
    try:
        return json.dumps(record, allow_nan=False, default=_to_python)
    except ValueError:  # a NaN or an infinity somewhere: rare, so the copy is made only then
        return json.dumps(_without_nan(record))


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    if hasattr(value, "tolist"):
        return _without_nan(_to_python(value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _to_python(value: Any) -> Any:
    """Return a numpy scalar or array as Python numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a journal record cannot hold a {type(value).__name__}: {value!r}")
