"""What is left of a comparison: finished runs are skipped, others continued, strangers refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalinginter.compare.jobs import Job
from scalinginter.compare.runs import Plan, Run, load_run, run_folder
from scalinginter.config.load import differences, recipe_dict, validate
from scalinginter.errors import UserError
from scalinginter.track.run_folder import CONFIG, RUN_INFO
from scalinginter.train.resume import LIMITS, MAY_CHANGE, follows_the_end

LOG = "output.log"


def to_do(plan: Plan, root: Path) -> tuple[list[Job], list[str]]:
    """Return the jobs that are left, and the names of the runs that have finished.

    A run whose recipe has a larger budget now is left, finished or not. Raises UserError for
    folders that cannot be continued, all at once.
    """
    if (root / RUN_INFO).is_file():
        raise UserError(
            f"--output {root}: holds a single run; choose another folder for the comparison"
        )
    jobs: list[Job] = []
    finished: list[str] = []
    problems: list[str] = []
    for arm, seed in plan.pairs():
        run = load_run(run_folder(root, arm, seed), arm, seed)
        config = plan.arms[arm] | {"seed": seed}
        changed = differences(_recipe_of(run), config) if run.config else {}
        problems += _refusals(run, config, changed)
        if run.status == "finished" and not any(path.startswith(LIMITS) for path in changed):
            finished.append(f"{arm}/seed{seed}")
        else:
            jobs.append(_job(plan, root, run, config))
    if problems:
        raise UserError(
            "\n".join(problems) + "\nContinue with the recipes and options of those runs, or "
            "choose another folder with --output."
        )
    return jobs, finished


def last_checkpoint(run_dir: Path) -> int | None:
    """Return the step of the newest checkpoint; None when there is none.

    A checkpoint is visible only when it is whole.
    """
    steps = [int(p.name.removeprefix("step-")) for p in run_dir.glob("checkpoints/step-*[0-9]")]
    return max(steps, default=None)


def _recipe_of(run: Run) -> dict[str, Any]:
    """Return the recipe of a run, with the defaults of settings that came after it."""
    return recipe_dict(validate(run.config, str(run.folder / CONFIG)))


def _job(plan: Plan, root: Path, run: Run, config: dict[str, Any]) -> Job:
    arguments = {
        "config": config,
        "run_dir": run.folder,
        # Without a checkpoint there is nothing to continue, and the run starts over.
        "resume": last_checkpoint(run.folder) is not None,
        "quiet": True,
        "command": list(plan.command),
        "comparison": root.resolve().name,
        "arm": run.arm,
    }
    return Job(f"{run.arm}/seed{run.seed}", arguments, run.folder / LOG)


def _refusals(run: Run, config: Mapping[str, Any], changed: Mapping[str, tuple]) -> list[str]:
    """Return why a run cannot go on with this recipe; one without a checkpoint starts over."""
    if run.status != "finished" and last_checkpoint(run.folder) is None:
        return []
    strange = [path for path in changed if not path.startswith(MAY_CHANGE)]
    if strange:
        return [f"{run.folder} holds a run with another recipe: {_listed(changed, strange)}."]
    moved = [path for path in changed if path.startswith(LIMITS)]
    if not moved:
        return []
    what = f"{run.folder} cannot go on with another end ({_listed(changed, moved)})"
    follows = follows_the_end(config)
    if follows:
        return [f"{what}: {follows}, so its first steps would have been others."]
    return [
        f"{what}: it has spent {spent:,.0f} {unit} already."
        for unit, spent, limit in _spent(run, moved, changed)
        if spent > limit
    ]


def _listed(changed: Mapping[str, tuple], paths: list[str]) -> str:
    return "; ".join(
        f"{path} is {changed[path][0]!r} there, {changed[path][1]!r} now" for path in paths
    )


def _spent(
    run: Run, moved: list[str], changed: Mapping[str, tuple]
) -> list[tuple[str, float, float]]:
    """Return (unit, spent, new limit) for each limit that was moved and not taken away."""
    found = []
    for path in moved:
        limit = changed[path][1]
        unit = "steps" if path == "train.num_steps" else path.removeprefix("train.budget.")
        if limit is not None:
            found.append((unit, run.last(f"cost/{unit}") or 0.0, limit))
    return found
