"""What a run folder says about itself: `run.json` and `config.yaml`.

Both are replaced in one rename, so a reader never sees half a file.
"""

import fcntl
import json
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from scalinginter.errors import UserError

Status = Literal["running", "finished", "stopped", "failed"]
RUN_INFO = "run.json"
CONFIG = "config.yaml"
LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Who a run is and how it stands."""

    name: str
    seed: int = 0
    comparison: str | None = None  # runs that are compared share it
    arm: str | None = None  # the recipe within the comparison, e.g. "scaled"
    command: list[str] = field(default_factory=list)  # what was typed
    status: Status = "running"  # stopped: by the user; failed: by an error
    started: float = field(default_factory=time.time)  # unix seconds; kept over a resume
    finished: float | None = None


def make_folder(folder: Path) -> None:
    """Make a folder and its parents. Raises `UserError` where the system refuses it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be made: {error.strerror}; choose another folder"
        ) from error


@contextmanager
def only_holder(folder: Path, refusal: str) -> Generator[None]:
    """Hold a folder for this process; it is free again when the process ends, however it does.

    Raises UserError(refusal) when another process holds it.
    """
    make_folder(folder)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(refusal) from None
        yield


def write_run_info(run_dir: str | Path, info: RunInfo) -> None:
    """Write `run.json`."""
    replace_file(Path(run_dir) / RUN_INFO, json.dumps(asdict(info), indent=2) + "\n")


def read_run_info(run_dir: str | Path) -> RunInfo:
    """Return what `run.json` says. Raises UserError when the folder holds no run or not its own."""
    path = Path(run_dir) / RUN_INFO
    if not path.is_file():
        raise UserError(
            f"{run_dir} is not a run folder: it has no {RUN_INFO}. "
            "Give the folder that the training printed, e.g. runs/textcraft-scaled."
        )
    try:
        return RunInfo(**json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{path} is not what a run wrote: {error}; put the original back, or start a new run"
        ) from error


def set_status(run_dir: str | Path, status: Status) -> RunInfo:
    """Change the status in `run.json`, and the time of the end with it; return the new content."""
    finished = None if status == "running" else time.time()
    info = replace(read_run_info(run_dir), status=status, finished=finished)
    write_run_info(run_dir, info)
    return info


def correct_status(run_dir: Path, status: Status) -> None:
    """Mend the `run.json` of a run that was killed and could not do so itself."""
    if (run_dir / RUN_INFO).is_file() and read_run_info(run_dir).status == "running":
        with suppress(OSError):  # a full disk stops nothing here
            set_status(run_dir, status)


def runs_below(root: Path) -> list[Path]:
    """Return the run folders of a comparison, `<root>/<arm>/seed<k>`; none for any other folder."""
    return sorted(path.parent for path in root.glob(f"*/seed*/{RUN_INFO}"))


def write_config(run_dir: str | Path, config: Mapping[str, Any]) -> None:
    """Write the resolved recipe (plain values only) as `config.yaml`."""
    text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
    replace_file(Path(run_dir) / CONFIG, text)


def read_config(run_dir: str | Path) -> dict[str, Any]:
    """Return `config.yaml` as plain values; an absent file is an empty mapping."""
    path = Path(run_dir) / CONFIG
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.is_file() else {}


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a tree by dotted path: {"a": {"b": 1}} is {"a.b": 1}."""
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            leaves |= flatten(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def replace_file(path: Path, text: str) -> None:
    """Write `text` to `path` so that every reader sees the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
