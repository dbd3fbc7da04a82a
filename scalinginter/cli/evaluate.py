"""`eval`: how good a policy is on held-out tasks, at one or several horizons."""

import argparse
import os
from pathlib import Path

from scalinginter.cli.options import int_list, refuse_comparison
from scalinginter.config.load import apply_overrides, load_recipe, validate
from scalinginter.config.schema import Recipe
from scalinginter.config.yaml_strict import read_mapping
from scalinginter.errors import UserError

EXAMPLES = """
examples:
  eval.py --checkpoint runs/x --horizon 10,20,40
  eval.py --checkpoint runs/x/checkpoints/step-000050 --split test --samples 8
  eval.py --schedule schedules/textcraft/scaled.yaml --set model.path=smollm2
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("--checkpoint", metavar="DIR", help="a run, one of its checkpoints, or a model folder")
    add("--schedule", metavar="FILE", help="recipe (default: the one of the run)")
    add(
        "--horizon",
        type=int_list("--horizon", 1),
        metavar="10,20,40",
        help="turns (default: the full horizon of the recipe)",
    )
    add("--split", choices=["validation", "test"], default="test", help="default: test")
    add("--tasks", type=int, metavar="N", help="number of tasks (default: as in the recipe)")
    add("--samples", type=int, metavar="K", help="episodes per task, for pass@k and avg@k")
    add("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE")
    add("--output", metavar="FILE", help="where the figures go as JSON (default: into the run)")


def run(options: argparse.Namespace) -> int:
    """Evaluate and print a table."""
    for name in ("tasks", "samples"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"--{name} must be at least 1, got {value}")
    recipe, policy_path = _find(options)
    changes = {"split": options.split}
    if options.tasks is not None:
        changes["num_tasks"] = options.tasks
    if options.samples is not None:
        changes["samples_per_task"] = options.samples
    recipe = recipe.model_copy(update={"eval": recipe.eval.model_copy(update=changes)})
    from scalinginter.eval.sweep import sweep

    return sweep(recipe, policy_path, options.horizon or [recipe.eval.horizon], _output(options))


def _find(options: argparse.Namespace) -> tuple[Recipe, Path | None]:
    """Return the recipe and the folder of the policy (None: the recipe's own model)."""
    if options.checkpoint is None:
        if options.schedule is None:
            raise UserError("nothing to evaluate: give --checkpoint runs/x, or --schedule a recipe")
        return load_recipe(options.schedule, options.set), None
    folder = Path(options.checkpoint)
    if not folder.is_dir():
        raise UserError(f"--checkpoint {folder}: no such folder")
    refuse_comparison(folder, "--checkpoint")
    policy, run_dir = _policy_folder(folder)
    if options.schedule is not None:
        return load_recipe(options.schedule, options.set), policy
    if run_dir is None:
        raise UserError(f"--checkpoint {folder}: belongs to no run; name its recipe by --schedule")
    data = read_mapping(run_dir / "config.yaml")
    apply_overrides(data, options.set)
    return validate(data, str(run_dir / "config.yaml")), policy


def _policy_folder(folder: Path) -> tuple[Path, Path | None]:
    """Return the policy that a folder means, and its run."""
    from scalinginter.train.checkpoint import CheckpointStore, problem

    if (folder / "checkpoints").is_dir():
        return CheckpointStore(folder / "checkpoints").latest() / "policy", folder
    run_dir = folder.parent.parent if (folder.parent.parent / "config.yaml").is_file() else None
    if (folder / "policy").is_dir():
        wrong = problem(folder)
        if wrong:
            raise UserError(f"--checkpoint {folder}: {wrong}; choose another checkpoint")
        return folder / "policy", run_dir
    if (folder / "config.json").is_file():
        return folder, None
    raise UserError(
        f"--checkpoint {folder}: is neither a run with checkpoints, nor a checkpoint, nor a model"
    )


def _output(options: argparse.Namespace) -> Path | None:
    if options.output:
        path = Path(options.output)
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise UserError(f"--output {path}: cannot be written; name a file in a writable folder")
        return path
    folder = Path(options.checkpoint) if options.checkpoint else None
    return folder / "evaluation.json" if folder and (folder / "checkpoints").is_dir() else None
