"""MLflow beside the training, never in its way: a process of its own that replays run folders.

    trainer --appends--> <run>/metrics.jsonl <--tails-- writer process --HTTP, SQLite--> MLflow

The trainer starts `python -m scalinginter.track.mlflow_writer`, never waits for it in a step, and
at the end gives it a bounded time to finish. A server that is down, slow or broken costs nothing
but that; the files have every number, and `sync` (`scalinginter mlflow-sync`) replays them later.
"""

import argparse
import os
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from scalinginter.errors import UserError
from scalinginter.track.mlflow_client import comparison_url, resolve_uri, without_password
from scalinginter.track.mlflow_folders import AGAIN, TROUBLE, Folders, first_line, tell
from scalinginter.track.mlflow_replay import read_state
from scalinginter.track.run_folder import read_run_info, runs_below

LOG = "mlflow_writer.log"
_POLL_S = 2.0
_LONGEST_PAUSE_S = 60.0  # after failed calls
_PATIENCE_S = 2.0  # that the end of a training waits without a word
_ORPHAN_S = 60.0  # to drain after the trainer has died


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
        self._log_start = 0  # where the log of this process begins

    def start(self) -> None:
        """Start the process. It has a session of its own: Ctrl-C does not reach it."""
        arguments = [arg for run in self.run_dirs for arg in ("--run", str(run))]
        if self.root is not None:
            arguments += ["--root", str(self.root)]
        arguments += ["--experiment", self.experiment]
        arguments += ["--traces-per-step", str(self.traces_per_step)]
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scalinginter.track.mlflow_writer", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # the address may hold a password, which has no place in a process list
                env=os.environ | {"MLFLOW_TRACKING_URI": self.uri},
            )

    def finish(self, timeout_s: float = 30.0, on_wait: Callable[[], None] | None = None) -> bool:
        """Let the process send what is left; wait at most that long, then end it.

        It gives up at once when MLflow has not answered a single time. `on_wait` is called once if
        it is not done after two seconds; Ctrl-C ends the wait.

        False: something was not sent. Print `trouble()` and `replay_command` in that case.
        """
        if self._process is None:
            return True
        process, self._process = self._process, None
        if process.stdin is not None and process.poll() is None:
            process.stdin.close()
        patience_s = min(_PATIENCE_S, timeout_s)
        try:
            try:
                return process.wait(patience_s) == 0
            except subprocess.TimeoutExpired:
                if on_wait is not None:
                    on_wait()
                return process.wait(timeout_s - patience_s) == 0
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()
            return False

    def trouble(self) -> str:
        """Return what went wrong last, in the words of the process's log."""
        text = ""
        if self.log_path.is_file():
            with self.log_path.open("rb") as log:
                log.seek(self._log_start)
                text = log.read().decode(errors="replace")
        told = re.findall(rf"^.*{TROUBLE}(.*)$", text, re.MULTILINE)
        return (
            told[-1].removesuffix(AGAIN)
            if told
            else f"{without_password(self.uri)} was not ready in time"
        )

    @property
    def replay_command(self) -> str:
        """The command that sends everything later."""
        folders = [*self.run_dirs, *([self.root] if self.root is not None else [])]
        words = ["scalinginter", "mlflow-sync", *map(str, folders)]
        words += ["--uri", without_password(self.uri), "--experiment", self.experiment]
        return shlex.join(words)

    def where(self) -> str:
        """Return the sentence that says how to look at the runs in MLflow."""
        for run_dir in self.run_dirs or runs_below(self.root or Path()):
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
    runs = [run for folder in run_dirs for run in runs_below(Path(folder)) or [Path(folder)]]
    comparisons = {read_run_info(run).comparison for run in runs}
    only = comparisons.pop() if len(comparisons) == 1 else None
    with Folders(runs, None, uri, experiment, traces_per_step) as folders:
        try:
            while folders.advance():
                pass
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"MLflow at {without_password(uri)} cannot be written to: {first_line(error)}. "
                "Nothing is lost: run the same command again when that is mended."
            ) from error
        if folders.troubles:
            run, trouble = next(iter(folders.troubles.items()))
            raise UserError(f"{run} is not in MLflow: {trouble}")
        return comparison_url(uri, folders.experiment_id, only)


def _serve(folders: Folders) -> int:
    """Replay until the trainer says the end or is gone, and everything is sent."""
    parent, pause, last_error = os.getppid(), _POLL_S, ""
    deadline: float | None = None  # set when the trainer is gone
    while True:
        error = _drain(folders)
        if error and error != last_error:
            tell(f"{error}{AGAIN}")
        last_error = error
        if deadline is not None and not error:
            folders.close_runs()
            return 1 if folders.troubles else 0
        if deadline is not None and (not folders.answered or time.monotonic() > deadline):
            return 1
        pause = min(2 * pause, _LONGEST_PAUSE_S) if error else _POLL_S
        if deadline is not None:
            time.sleep(_POLL_S)
        elif _trainer_ended(parent, pause):
            deadline = time.monotonic() + _ORPHAN_S


def _drain(folders: Folders) -> str:
    """Send what there is; return what went wrong, or nothing."""
    try:
        while folders.advance():
            pass
    except UserError:
        raise
    except Exception as error:  # whatever it is: training goes on, and so does the replay, later
        return first_line(error)
    return ""


def _trainer_ended(parent: int, timeout_s: float) -> bool:
    """Wait; return whether the trainer closed our standard input or is no more."""
    readable, _, _ = select.select([sys.stdin], [], [], timeout_s)
    return bool(readable) or os.getppid() != parent


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
        with Folders(args.run, args.root, uri, args.experiment, args.traces_per_step) as folders:
            return _serve(folders)
    except UserError as error:
        tell(str(error))
        return 2


if __name__ == "__main__":
    sys.exit(main())
