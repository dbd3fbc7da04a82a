"""Several arms and seeds in one command: what to run, what to skip, what to go on with.

recipes x seeds --> check folders --> jobs, seed by seed --> report after each, plots at the end
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from scalinginter.compare.jobs import Events, Job, run_jobs
from scalinginter.compare.report import summary_lines, write_report
from scalinginter.compare.runs import UNITS, Plan, Run, load_run, run_folder
from scalinginter.config.load import differences, recipe_dict
from scalinginter.config.schema import Recipe
from scalinginter.errors import UserError
from scalinginter.track.run_folder import RUN_INFO, read_config, read_run_info

TRAINING = "scalinginter.train.run:run_training"
PRELOAD = ("scalinginter.train.run",)  # brings torch, accelerate and the model classes
LOG = "output.log"
_STATUS_EVERY_S = 15.0


def run_comparison(
    arms: Mapping[str, Recipe],
    seeds: Sequence[int],
    root: str | Path,
    *,
    jobs: int | None = None,
    command: Sequence[str] = (),
    function: str = TRAINING,
    preload: Sequence[str] = PRELOAD,
    say: Callable[[str], None] = print,
) -> int:
    """Train every arm with every seed below `root`, `jobs` runs at a time; write the report.

    Finished runs are skipped and interrupted ones continued, so the same call goes on where it
    stopped. `function` ("module:name") is called in a process per run with config, run_dir, resume,
    quiet, command, comparison and arm; it returns the exit code.

    Returns 0; 1 when a run failed (the others ran on); 130 when a signal stopped it. Raises
    UserError before anything starts when a folder holds a run with another recipe.
    """
    root = Path(root)
    plan = Plan({a: recipe_dict(r) for a, r in arms.items()}, tuple(seeds), tuple(command))
    todo = _to_do(plan, root, say)
    plan.write(root)
    parallel = min(jobs or default_jobs(arms.values()), max(1, len(todo)))
    if todo:
        say(f"{len(todo)} runs ({len(arms)} arms, {len(seeds)} seeds), {parallel} at a time")
    progress = _Progress(plan, root, len(todo), say)
    events = Events(progress.started, progress.ended, progress.tick)
    completed = run_jobs(todo, function, parallel, preload, events) if todo else True
    write_report(root, plots=completed)
    for line in summary_lines(root):
        say(line)
    if not completed:
        return 130
    return 1 if progress.failed else 0


def default_jobs(recipes: Iterable[Recipe]) -> int:
    """Return how many runs fit at a time: one per usable core, one in all where a GPU is used."""
    models = [recipe.model for recipe in recipes]
    if Path("/dev/nvidia0").exists() and any(model.device != "cpu" for model in models):
        return 1
    threads = max(model.num_threads for model in models)
    return max(1, len(os.sched_getaffinity(0)) // threads)


def _to_do(plan: Plan, root: Path, say: Callable[[str], None]) -> list[Job]:
    """Return the jobs that are left. Raises UserError for folders of other recipes, all at once."""
    jobs, problems = [], []
    for arm, seed in plan.pairs():
        folder = run_folder(root, arm, seed)
        config = plan.arms[arm] | {"seed": seed}
        exists = (folder / RUN_INFO).is_file()
        problem = _conflict(folder, config) if exists else None
        if problem:
            problems.append(problem)
        elif exists and read_run_info(folder).status == "finished":
            say(f"{arm}/seed{seed}: finished already")
        else:
            arguments = {
                "config": config,
                "run_dir": folder,
                # A checkpoint is visible only when it is whole; without one there is nothing to
                # continue, and the run starts over.
                "resume": any(folder.glob("checkpoints/step-*[0-9]")),
                "quiet": True,
                "command": list(plan.command),
                "comparison": root.resolve().name,
                "arm": arm,
            }
            jobs.append(Job(f"{arm}/seed{seed}", arguments, folder / LOG))
    if problems:
        raise UserError(
            "\n".join(problems) + "\nContinue with the recipes and options of those runs, or "
            "choose another folder with --output."
        )
    return jobs


def _conflict(folder: Path, config: Mapping[str, object]) -> str | None:
    found = differences(read_config(folder), dict(config))
    if not found:
        return None
    listed = "; ".join(
        f"{path} is {old!r} there, {new!r} now" for path, (old, new) in found.items()
    )
    return f"{folder} holds a run with another recipe: {listed}."


class _Progress:
    """Lines for the terminal, and the report after each run."""

    def __init__(self, plan: Plan, root: Path, total: int, say: Callable[[str], None]) -> None:
        self.plan, self.root, self.total, self.say = plan, root, total, say
        self.done = 0
        self.failed: list[str] = []
        self._next_status = time.monotonic() + _STATUS_EVERY_S

    def started(self, job: Job) -> None:
        self.say(f"{job.name}: {'continues' if job.arguments['resume'] else 'starts'}")

    def ended(self, job: Job, code: int) -> None:
        self.done += 1
        if code == 0:
            self.say(f"{job.name}: finished ({self.done} of {self.total}), {self._result(job)}")
        elif code == 130:
            self.failed.append(job.name)
            self.say(f"{job.name}: stopped, its checkpoint is saved")
        else:
            self.failed.append(job.name)
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            self.say(f"{job.name}: FAILED ({how}): {_last_line(job.log)}\n  see {job.log}")
        if self.done < self.total:
            write_report(self.root, plots=False)

    def tick(self, running: Sequence[Job]) -> None:
        if running and time.monotonic() >= self._next_status:
            self._next_status = time.monotonic() + _STATUS_EVERY_S
            self.say("  " + " | ".join(f"{job.name}: {self._status(job)}" for job in running))

    def _status(self, job: Job) -> str:
        run = self._load(job)
        steps, horizon = run.last("cost/steps"), run.last("horizon/max_turns")
        if steps is None or horizon is None:
            return "starting"
        parts = [f"step {steps:.0f}", f"horizon {horizon:.0f}"]
        success = run.last("eval/success")
        if success is not None:
            parts.append(f"success {success:.2f}")
        share = _spent(run)
        return ", ".join(parts + ([f"{share:.0%} of the budget"] if share is not None else []))

    def _result(self, job: Job) -> str:
        run = self._load(job)
        start, final, turns = (
            run.first("eval/success"),
            *map(run.last, ("eval/success", "cost/turns")),
        )
        if start is None or final is None or turns is None:
            return "not evaluated"
        return f"success {start:.2f} -> {final:.2f}, {turns:,.0f} turns"

    def _load(self, job: Job) -> Run:
        folder: Path = job.arguments["run_dir"]
        return load_run(folder, job.arguments["arm"], job.arguments["config"]["seed"])


def _spent(run: Run) -> float | None:
    """The share of the nearest limit that is spent."""
    train = run.config.get("train", {})
    limits = {unit: limit for unit, limit in train.get("budget", {}).items() if limit}
    if train.get("num_steps"):
        limits["steps"] = min(train["num_steps"], limits.get("steps", train["num_steps"]))
    shares = [(run.last(f"cost/{unit}") or 0.0) / limits[unit] for unit in UNITS if unit in limits]
    return min(1.0, max(shares)) if shares else None


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1] if lines else "it printed nothing"
