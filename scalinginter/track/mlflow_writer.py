"""MLflow beside the training, never in its way: a process of its own that replays run folders.

    trainer --appends--> <run>/metrics.jsonl <--tails-- writer process --HTTP, SQLite--> MLflow

The trainer starts `python -m scalinginter.track.mlflow_writer`, never waits for it in a step, and
at the end gives it a bounded time to finish. A server that is down, slow or broken costs nothing
but that; the files have every number, and `sync` (`scalinginter mlflow-sync`) replays them later.
"""

import argparse
import fcntl
import os
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from scalinginter.errors import UserError
from scalinginter.track.journal import METRICS
from scalinginter.track.mlflow_client import comparison_url, connect, resolve_uri, without_password
from scalinginter.track.mlflow_replay import RunReplay, read_state
from scalinginter.track.run_folder import RUN_INFO, read_run_info

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOG = "mlflow_writer.log"
_POLL_S = 2.0
_LONGEST_PAUSE_S = 60.0  # after failed calls
_ORPHAN_S = 60.0  # to drain after the trainer has died
# MLflow's word for "not this, and not later either"; all else is an outage
_REFUSALS = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE", "BAD_REQUEST"}


class MlflowWriter:
    """The trainer's side of the writer process."""

    def __init__(
        self,
        run_dirs: Sequence[str | Path],
        uri: str | None,
        experiment: str,
        traces_per_step: int = 2,
        *,
        root: str | Path | None = None,
    ) -> None:
        """`root` is a comparison: its runs (`*/seed*/`) are taken up as they appear."""
        if not run_dirs and root is None:
            raise ValueError("MlflowWriter needs run_dirs or a root")
        self.run_dirs = [Path(run_dir) for run_dir in run_dirs]
        self.root = Path(root) if root is not None else None
        self.uri = resolve_uri(uri)
        self.experiment = experiment
        self.traces_per_step = traces_per_step
        self.log_path = (self.root or self.run_dirs[0]) / LOG
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process. It has a session of its own: Ctrl-C does not reach it."""
        arguments = [arg for run in self.run_dirs for arg in ("--run", str(run))]
        if self.root is not None:
            arguments += ["--root", str(self.root)]
        arguments += ["--experiment", self.experiment]
        arguments += ["--traces-per-step", str(self.traces_per_step)]
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scalinginter.track.mlflow_writer", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # the address may hold a password, which has no place in a process list
                env=os.environ | {"MLFLOW_TRACKING_URI": self.uri},
            )

    def finish(self, timeout_s: float = 30.0) -> bool:
        """Let the process send what is left; wait at most that long, then end it.

        False: something was not sent. Print `replay_command` in that case.
        """
        if self._process is None:
            return True
        process, self._process = self._process, None
        if process.stdin is not None and process.poll() is None:
            process.stdin.close()
        try:
            return process.wait(timeout_s) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False

    @property
    def replay_command(self) -> str:
        """The command that sends everything later."""
        folders = [*self.run_dirs, *([self.root] if self.root is not None else [])]
        words = ["scalinginter", "mlflow-sync", *map(str, folders)]
        words += ["--uri", without_password(self.uri), "--experiment", self.experiment]
        return shlex.join(words)

    def where(self) -> str:
        """Return the sentence that says how to look at the runs in MLflow."""
        for run_dir in self.run_dirs or _runs_below(self.root or Path()):
            state = read_state(run_dir)
            if state is not None and state.run_id is not None:
                comparison = read_run_info(run_dir).comparison
                return comparison_url(self.uri, state.experiment_id, comparison)
        return f"Nothing has reached MLflow at {without_password(self.uri)} yet."


def sync(
    run_dirs: Sequence[str | Path],
    uri: str | None,
    experiment: str,
    traces_per_step: int = 2,
) -> str:
    """Replay run or comparison folders to MLflow now; return the sentence with the link.

    Raises UserError when a folder holds no run, is being sent by another process, or when MLflow
    does not answer; what was sent until then is remembered, and the same command goes on there.
    """
    uri = resolve_uri(uri)
    runs = [run for folder in run_dirs for run in _runs_below(Path(folder)) or [Path(folder)]]
    comparisons = {read_run_info(run).comparison for run in runs}
    only = comparisons.pop() if len(comparisons) == 1 else None
    with _Folders(runs, None, uri, experiment, traces_per_step) as folders:
        try:
            while folders.advance():
                pass
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"MLflow at {without_password(uri)} cannot be written to: {_first_line(error)}. "
                "Nothing is lost: run the same command again when that is mended."
            ) from error
        if folders.troubles:
            run, trouble = next(iter(folders.troubles.items()))
            raise UserError(f"{run} is not in MLflow: {trouble}")
        return comparison_url(uri, folders.experiment_id, only)


class _Folders:
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
            return self._replays[run_dir].advance()
        except MlflowException as error:
            if error.error_code not in _REFUSALS:
                raise
            self._replays.pop(run_dir)
            self.troubles[run_dir] = f"MLflow refuses it: {_first_line(error)}"
            print(f"{run_dir}: {self.troubles[run_dir]}", file=sys.stderr, flush=True)
            return False

    def _ready(self) -> Iterator[Path]:
        for run_dir in [*self._run_dirs, *(_runs_below(self._root) if self._root else [])]:
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


def _runs_below(root: Path) -> list[Path]:
    """Return the run folders of a comparison, `<arm>/seed<k>`."""
    return sorted(path.parent for path in root.glob(f"*/seed*/{RUN_INFO}"))


def _serve(folders: _Folders) -> int:
    """Replay until the trainer says the end or is gone, and everything is sent."""
    parent, pause, last_error = os.getppid(), _POLL_S, ""
    deadline: float | None = None  # set when the trainer is gone
    while True:
        error = _drain(folders)
        if error and error != last_error:
            print(f"{time.strftime('%F %T')} {error}; trying again", flush=True)
        last_error = error
        if deadline is not None and not error:
            folders.close_runs()
            return 1 if folders.troubles else 0
        if deadline is not None and time.monotonic() > deadline:
            return 1
        pause = min(2 * pause, _LONGEST_PAUSE_S) if error else _POLL_S
        if deadline is not None:
            time.sleep(_POLL_S)
        elif _trainer_ended(parent, pause):
            deadline = time.monotonic() + _ORPHAN_S


def _drain(folders: _Folders) -> str:
    """Send what there is; return what went wrong, or nothing."""
    try:
        while folders.advance():
            pass
    except UserError:
        raise
    except Exception as error:  # whatever it is: training goes on, and so does the replay, later
        return _first_line(error)
    return ""


def _trainer_ended(parent: int, timeout_s: float) -> bool:
    """Wait; return whether the trainer closed our standard input or is no more."""
    readable, _, _ = select.select([sys.stdin], [], [], timeout_s)
    return bool(readable) or os.getppid() != parent


def _first_line(error: Exception) -> str:
    """Return the gist of an error, without the password that an address in it may hold."""
    text = str(error).strip() or type(error).__name__
    return re.sub(r"//[^/@\s]*@", "//", text.splitlines()[0])[:300]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the writer process; 0: everything was sent."""
    parser = argparse.ArgumentParser(prog="python -m scalinginter.track.mlflow_writer")
    parser.add_argument("--run", action="append", default=[], type=Path, metavar="DIR")
    parser.add_argument("--root", type=Path, metavar="DIR", help="a comparison folder")
    parser.add_argument("--uri", help="default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db")
    parser.add_argument("--experiment", required=True)
    parser.add_argument("--traces-per-step", type=int, default=2)
    parser.add_argument("--once", action="store_true", help="send what is there, then end")
    args = parser.parse_args(argv)
    os.nice(10)
    try:
        if args.once:
            print(sync(args.run, args.uri, args.experiment, args.traces_per_step))
            return 0
        uri = resolve_uri(args.uri)
        with _Folders(args.run, args.root, uri, args.experiment, args.traces_per_step) as folders:
            return _serve(folders)
    except UserError as error:
        print(error, flush=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())
