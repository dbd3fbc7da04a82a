"""`train`: one run, the continuation of one, or a comparison of several schedules and seeds."""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalinginter.cli.options import (
    at_least,
    budget_overrides,
    check_writable,
    int_list,
    refuse_comparison,
    shown_command,
    writable_folder,
)
from scalinginter.config.engines import refuse_for_training
from scalinginter.config.load import find_recipe, load_recipe, recipe_dict
from scalinginter.config.schema import Recipe
from scalinginter.env.registry import make
from scalinginter.errors import UserError
from scalinginter.model.source import resolve
from scalinginter.track.mlflow_client import resolve_uri

EXAMPLES = """
examples:
  train.py --schedule schedules/textcraft/scaled.yaml --set train.num_steps=50 --output runs/x
  train.py --resume runs/x
  train.py --schedule schedules/quickstart/{fixed_short,scaled}.yaml --seeds 0,1,2 \\
           --budget turns=30000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("--schedule", nargs="+", metavar="FILE", default=[], help="recipe; several are compared")
    add(
        "--seeds",
        type=int_list("--seeds", 0),
        metavar="0,1,2",
        help="one run per seed (default: the seed of the recipe)",
    )
    add(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="change the recipe, e.g. train.num_steps=50 or horizon.stages.0=4",
    )
    add(
        "--budget",
        nargs="+",
        action="extend",
        default=[],
        metavar="UNIT=N",
        help="end at this cost: turns, generated_tokens, forward_tokens, seconds or steps",
    )
    add("--output", metavar="DIR", help="run folder (default: runs/...)")
    add("--resume", metavar="DIR", help="continue the run in DIR from its newest checkpoint")
    add("--jobs", type=int, metavar="N", help="runs of a comparison at a time (default: cores)")
    add(
        "--num-processes",
        type=int,
        metavar="N",
        help="processes of a run, each with its share of the groups (docs/cluster.md)",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    overrides = [*options.set, *budget_overrides(options.budget)]
    at_least("--jobs", options.jobs)
    at_least("--num-processes", options.num_processes)
    processes = _processes(options.num_processes)
    if options.resume:
        _refuse_with_resume(options)
        return _resume(Path(options.resume), overrides, processes)
    if not options.schedule:
        raise UserError(
            "nothing to train: name a recipe, e.g. --schedule schedules/quickstart/scaled.yaml, "
            "or a run to continue, --resume runs/x"
        )
    recipes = [(path, load_recipe(path, overrides)) for path in options.schedule]
    for _, recipe in recipes:
        _check_parts(recipe)
    if len(options.schedule) == 1 and len(options.seeds or [0]) == 1:
        [(path, recipe)] = recipes
        if options.seeds:
            recipe = recipe.model_copy(update={"seed": options.seeds[0]})
        return _single(path, recipe, options.output, processes)
    return _compare(options, recipes, processes)


def _processes(asked: int | None) -> int:
    """Return how many processes to start for a run; 1 where a launcher has started this one.

    Raises `UserError` where a launcher has started another number than the user asked for.
    """
    started = os.environ.get("WORLD_SIZE")
    if started is None:
        return asked or 1
    if asked is not None and asked != int(started):
        raise UserError(
            f"--num-processes {asked}, but a launcher has started {started} (WORLD_SIZE); give "
            "both the same number, or leave --num-processes away"
        )
    return 1


def _check_parts(recipe: Recipe) -> None:
    """Refuse what the schema cannot know, before a folder is made or torch is imported."""
    refuse_for_training(recipe.engine)
    resolve(recipe.model.path)
    for family in recipe.families:
        make(family.id, **family.params)
    if recipe.track.mlflow:
        resolve_uri(recipe.track.uri)


def _single(path: str, recipe: Recipe, output: str | None, processes: int) -> int:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = find_recipe(path).resolve().parent.name
    run_dir = Path(output or f"runs/{folder}-{recipe.name}-seed{recipe.seed}-{stamp}")
    check_writable(run_dir, "--output")
    if (run_dir / "run.json").exists() and not _is_blank(run_dir):
        again = shown_command("train", "--resume", run_dir)
        raise UserError(
            f"--output {run_dir}: holds a run already; continue it with: {again}\n"
            "or choose another folder"
        )
    return _train(recipe, run_dir, processes, resume=False)


def _is_blank(run_dir: Path) -> bool:
    """Whether a run ended before it had figures or a checkpoint: nothing is lost with it."""
    journal = run_dir / "metrics.jsonl"
    empty = not journal.is_file() or not journal.stat().st_size
    return empty and not any(run_dir.glob("checkpoints/step-*[0-9]"))


def _resume(run_dir: Path, overrides: list[str], processes: int) -> int:
    from scalinginter.train.resume import resumed_recipe

    again = ". Its own command continues all of it (see report.md)"
    refuse_comparison(run_dir, "--resume", instead=again)
    recipe = resumed_recipe(run_dir, overrides)
    check_writable(run_dir, "--resume")
    return _train(recipe, run_dir, processes, resume=True)


def _train(recipe: Recipe, run_dir: Path, processes: int, *, resume: bool) -> int:
    """Train in this process or in several, with the MLflow writer beside it."""
    arguments = {
        "config": recipe_dict(recipe),
        "run_dir": run_dir,
        "resume": resume,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }
    if processes > 1:
        from scalinginter.compare.single import run_in_processes

        code = run_in_processes(f"{__name__}:train_here", arguments, run_dir, processes)
    else:
        code = train_here(**arguments)
    if int(os.environ.get("RANK", "0")):
        return code
    again = shown_command("train", "--resume", run_dir)
    again += f" --num-processes {processes}" if processes > 1 else ""
    if code == 0:
        print(f"Evaluate with:\n  {shown_command('eval', '--checkpoint', run_dir)}")
    elif code != 130:
        return code
    elif any(run_dir.glob("checkpoints/step-*[0-9]")):
        print(f"Stopped and saved. Continue with:\n  {again}")
    elif (run_dir / "run.json").exists():
        print(f"Stopped before anything was to save. Start over with:\n  {again}")
    else:
        print("Stopped before the run began; nothing was written.")
    return code


def train_here(config: dict[str, Any], run_dir: Path, resume: bool, command: Sequence[str]) -> int:
    """Train in this process, with the MLflow writer beside it; return the exit code."""
    from scalinginter.cli.tracking import mlflow_writer
    from scalinginter.config.load import validate
    from scalinginter.train.run import run_training

    recipe = validate(config, str(run_dir))
    return run_training(
        config,
        run_dir,
        resume=resume,
        command=command,
        beside=lambda: mlflow_writer(recipe, [run_dir], root=None),
    )


def _compare(options: argparse.Namespace, recipes: list[tuple[str, Recipe]], processes: int) -> int:
    from scalinginter.cli.tracking import mlflow_writer
    from scalinginter.compare.run import run_comparison

    if "WORLD_SIZE" in os.environ:
        raise UserError(
            "a comparison starts its runs itself: use python train.py --num-processes N instead of "
            "torchrun or accelerate launch, or give one schedule and one seed"
        )
    arms: dict[str, Recipe] = {}
    for path, recipe in recipes:
        if options.schedule.count(path) > 1:
            raise UserError(
                f"--schedule names {path} twice; name it once, and repeat it with --seeds 0,1,2"
            )
        if recipe.name in arms:
            raise UserError(f"two schedules are named {recipe.name!r}; set `name:` in {path}")
        arms[recipe.name] = recipe
    first = find_recipe(options.schedule[0]).resolve()
    root = Path(options.output or f"runs/{first.parent.name}")
    recipe = recipes[0][1]
    writable_folder(root, "--output")
    shown = shown_command("train", *sys.argv[1 if sys.argv[0].endswith(".py") else 2 :])
    code = run_comparison(
        arms,
        options.seeds or [recipe.seed],
        root,
        jobs=options.jobs,
        processes=processes,
        command=shlex.split(shown),
        tracking=lambda: mlflow_writer(recipe, [], root=root),
    )
    if code == 130:
        print(f"Stopped. Go on with the same command:\n  {shown}")
    return code


def _refuse_with_resume(options: argparse.Namespace) -> None:
    for name in ("schedule", "seeds", "output"):
        if getattr(options, name):
            raise UserError(
                f"--resume takes the recipe of the run; leave --{name} away, "
                "or start a new run without --resume"
            )
