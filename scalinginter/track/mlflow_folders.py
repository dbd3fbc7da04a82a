"""The run folders that one writer process brings to MLflow, each locked by it."""

import fcntl
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from scalinginter.track.journal import METRICS
from scalinginter.track.mlflow_client import connect
from scalinginter.track.mlflow_replay import RunReplay
from scalinginter.track.run_folder import RUN_INFO, runs_below

if TYPE_CHECKING:
    from mlflow import MlflowClient

TROUBLE = " trouble: "  # marks the lines of a writer's log that the end of a training repeats
AGAIN = "; trying again"
# MLflow's word for "not this, and not later either"; all else is an outage
_REFUSALS = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE", "BAD_REQUEST"}


class Folders:
    """The run folders of one writer, each locked by it, and their common connection."""

    def __init__(
        self,
        run_dirs: Sequence[Path],
        root: Path | None,
        uri: str,
        experiment: str,
        traces_per_step: int,
    ) -> None:
        self._run_dirs, self._root = run_dirs, root
        self._uri, self._experiment = uri, experiment
        self._traces_per_step = traces_per_step
        self._client: MlflowClient | None = None
        self._replays: dict[Path, RunReplay] = {}
        self._locks: dict[Path, IO[bytes]] = {}
        self.experiment_id = ""
        self.answered = False  # MLflow has taken something from this process
        self.troubles: dict[Path, str] = {}  # folders that cannot be sent, and why

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for lock in self._locks.values():
            lock.close()

    def advance(self) -> bool:
        """Send one piece of every run; return whether there may be more.

        Raises MlflowException when the server does not answer. A refusal (the run was deleted in
        MLflow, say) concerns one run: it goes to `troubles` and the others go on.
        """
        for run_dir in self._ready():
            if run_dir not in self._replays and self._lock(run_dir):
                self._replays[run_dir] = self._open(run_dir)
        more = [self._advance_one(run_dir) for run_dir in list(self._replays)]
        return any(more)

    def close_runs(self) -> None:
        """Mark the runs whose trainer died."""
        for replay in self._replays.values():
            replay.close()

    def _open(self, run_dir: Path) -> RunReplay:
        if self._client is None:
            self._client, self.experiment_id = connect(self._uri, self._experiment)
        return RunReplay(
            run_dir,
            self._client,
            self._uri,
            self._experiment,
            self.experiment_id,
            self._traces_per_step,
        )

    def _advance_one(self, run_dir: Path) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            more = self._replays[run_dir].advance()
            self.answered = True
            return more
        except MlflowException as error:
            if error.error_code not in _REFUSALS:
                raise
            self._replays.pop(run_dir)
            self.troubles[run_dir] = f"MLflow refuses it: {first_line(error)}"
            tell(f"{run_dir}: {self.troubles[run_dir]}")
            return False

    def _ready(self) -> Iterator[Path]:
        for run_dir in [*self._run_dirs, *(runs_below(self._root) if self._root else [])]:
            if (run_dir / RUN_INFO).is_file() and (run_dir / METRICS).is_file():
                yield run_dir

    def _lock(self, run_dir: Path) -> bool:
        """Take the journal's lock: two writers of one run would make two MLflow runs."""
        if run_dir in self._locks:
            return run_dir not in self.troubles
        file = (run_dir / METRICS).open("rb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            self.troubles[run_dir] = (
                "another process is sending it (its training run, probably), and finishes it too"
            )
            return False
        self.troubles.pop(run_dir, None)
        self._locks[run_dir] = file
        return True


def tell(trouble: str) -> None:
    """Write to the log what the end of the training should say."""
    print(f"{time.strftime('%F %T')}{TROUBLE}{trouble}", flush=True)


def first_line(error: Exception) -> str:
    """Return the gist of an error, without the password that an address in it may hold."""
    text = re.sub(r"//[^/@\s]*@", "//", str(error).strip() or type(error).__name__)
    silent = re.search(r"API request to (\w+://[^/\s]+)\S* failed with exception", text)
    if silent is None:
        return text.splitlines()[0][:300]
    why = re.search(r"\[Errno -?\d+\] ([\w ]+)|(timed out)", text)
    return f"{silent[1]} does not answer" + (f": {why[1] or why[2]}" if why else "")
