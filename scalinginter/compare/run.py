"""Several arms and seeds in one command: what to run, what to skip, what to go on with.

recipes x seeds --> check folders --> jobs, seed by seed --> report after each, plots at the end
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from scalinginter.compare.jobs import Events, Job, run_jobs
from scalinginter.compare.report import summary_lines, write_report
from scalinginter.compare.runs import Plan, run_folder
from scalinginter.compare.todo import last_checkpoint, to_do
from scalinginter.config.load import recipe_dict
from scalinginter.config.schema import Recipe
from scalinginter.errors import UserError
from scalinginter.track.board import ComparisonProgress, Entry
from scalinginter.track.run_folder import (
    correct_status,
    only_holder,
)

TRAINING = "scalinginter.train.run:run_training"
PRELOAD = ("scalinginter.train.run",)  # brings torch, accelerate and the model classes


def run_comparison(
    arms: Mapping[str, Recipe],
    seeds: Sequence[int],
    root: str | Path,
    *,
    jobs: int | None = None,
    processes: int = 1,
    command: Sequence[str] = (),
    function: str = TRAINING,
    preload: Sequence[str] = PRELOAD,
    tracking: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int:
    """Train every arm with every seed below `root`, `jobs` runs at a time; write the report.

    Finished runs are skipped and interrupted ones continued, so the same call goes on where it
    stopped; with a larger budget all of them go on. `function` ("module:name") is called in
    `processes` processes per run with config, run_dir, resume, quiet, command, comparison and arm;
    it returns the exit code. `tracking` is entered once everything is checked and left after the
    report.

    Returns 0; 1 when a run failed (the others ran on) or the report could not be written; 130 when
    a signal stopped it. Raises UserError before anything starts when another process runs a
    comparison in `root`, or when a folder holds what cannot be continued.
    """
    root = Path(root)
    plan = Plan({a: recipe_dict(r) for a, r in arms.items()}, tuple(seeds), tuple(command))
    with only_holder(root, f"{root}: another comparison runs there; wait, or choose another"):
        todo, finished = to_do(plan, root)
        todo = [replace(job, processes=processes) for job in todo]
        _write_plan(plan, root)
        parallel = min(jobs or default_jobs(arms.values(), processes), max(1, len(todo)))
        with tracking():
            return _run(plan, root, todo, finished, parallel, function, preload)


def _run(
    plan: Plan,
    root: Path,
    todo: Sequence[Job],
    finished: Sequence[str],
    parallel: int,
    function: str,
    preload: Sequence[str],
) -> int:
    if todo:
        print(f"{len(todo)} of {len(plan.pairs())} runs to do, {parallel} at a time", flush=True)
    entries = [Entry(arm, seed, run_folder(root, arm, seed)) for arm, seed in plan.pairs()]
    with ComparisonProgress(entries, parallel) as board:
        progress = _Progress(root, board, len(todo))
        for name in finished:
            board.ended(name, "finished")
            board.note(f"{name}: finished already")
        completed = run_jobs(todo, function, parallel, preload, progress.events())
    written = progress.write_report(plots=completed, last=True)
    for line in summary_lines(root):
        print(line, flush=True)
    if not completed:
        return 130
    return 1 if progress.failed or not written else 0


def default_jobs(recipes: Iterable[Recipe], processes: int = 1) -> int:
    """Return how many runs fit at a time: a core per process; one where a GPU is used."""
    models = [recipe.model for recipe in recipes]
    if Path("/dev/nvidia0").exists() and any(model.device != "cpu" for model in models):
        return 1
    threads = max(model.num_threads for model in models)
    return max(1, len(os.sched_getaffinity(0)) // (threads * processes))


def _write_plan(plan: Plan, root: Path) -> None:
    try:
        plan.write(root)
    except OSError as error:
        raise UserError(
            f"{root}: cannot be written: {error.strerror}; make room, or choose another folder"
        ) from None


class _Progress:
    """What is told of each run, and the report after each.

    Nothing here may stop the runs: the terminal can go away, and the disk can be full.
    """

    def __init__(self, root: Path, board: ComparisonProgress, total: int) -> None:
        self.root, self.board, self.total = root, board, total
        self.done = 0
        self.failed: list[str] = []
        self._stopping = False
        self._report_problem = ""

    def events(self) -> Events:
        return Events(self.started, self.ended, self.tick, self.stopping)

    def started(self, job: Job) -> None:
        self.board.started(job.name)
        step = last_checkpoint(_folder(job)) if job.arguments["resume"] else None
        self._say(f"{job.name}: {'starts' if step is None else f'continues from step {step}'}")

    def ended(self, job: Job, code: int) -> None:
        self.done += 1
        if code < 0:
            correct_status(_folder(job), "stopped" if self._stopping else "failed")
        if code == 0:
            row = self.board.ended(job.name, "finished")
            result = f"success {row.success_text()}" if row.success else "not evaluated"
            self._say(f"{job.name}: finished ({self.done} of {self.total}), {result}")
        elif code == 130 or (self._stopping and code < 0):
            self.board.ended(job.name, "stopped")
            how = "stopped" if code == 130 else "killed"
            self._say(f"{job.name}: {how}; {_what_remains(job)}")
        else:
            self.board.ended(job.name, "failed")
            self.failed.append(job.name)
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            self._say(f"{job.name}: FAILED ({how}): {_last_line(job.log)}\n  see {job.log}")
        if self.done < self.total:
            self.write_report(plots=False)

    def tick(self, running: Sequence[Job]) -> None:
        with contextlib.suppress(OSError):
            self.board.refresh()

    def stopping(self, running: Sequence[Job]) -> None:
        self._stopping = True
        if running:
            self._say("Stopping: the runs save their checkpoints first; Ctrl-C again kills them.")

    def write_report(self, plots: bool, last: bool = False) -> bool:
        """Write the report; where that fails say so once, and at the end how to repeat it."""
        try:
            write_report(self.root, plots)
        except OSError as error:
            problem = f"the report cannot be written: {error.strerror or error}"
            if last:
                self._say(f"{problem}. Later: scalinginter report {self.root}")
            elif problem != self._report_problem:
                self._say(f"{problem}; the runs go on")
            self._report_problem = problem
            return False
        return True

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self.board.note(text)


def _folder(job: Job) -> Path:
    return job.arguments["run_dir"]


def _what_remains(job: Job) -> str:
    """Return where a stopped run will go on, which depends on what it has saved."""
    step = last_checkpoint(_folder(job))
    if step is None:
        return "it had saved nothing and will start over"
    return f"it will go on from its checkpoint at step {step}"


def _last_line(log: Path | None) -> str:
    """What a run said last: its error, where it told one since it was started."""
    text = log.read_text(errors="replace") if log and log.is_file() else ""
    lines = text.rpartition("\n--- ")[2].strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    return (errors or lines or ["it printed nothing"])[-1]
