"""`eval`: how good a policy is on held-out tasks, at one or several horizons."""

import argparse
import copy
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from scalinginter.cli.options import at_least, int_list, refuse_comparison, writable_folder
from scalinginter.config.load import apply_overrides, load_recipe, validate
from scalinginter.config.schema import Recipe
from scalinginter.config.yaml_strict import read_mapping
from scalinginter.errors import UserError

EXAMPLES = """
examples:
  eval.py --checkpoint runs/x --horizon 10,20,40
  eval.py --checkpoint runs/x/checkpoints/step-000050 --split test --samples 8
  eval.py --schedule schedules/textcraft/scaled.yaml --set model.path=smollm2
  eval.py --schedule schedules/textcraft/scaled.yaml --set engine.kind=openai \\
          engine.base_url=https://api.openai.com/v1 engine.model=gpt-4o-mini \\
          engine.api_key_env=OPENAI_API_KEY
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
    at_least("--tasks", options.tasks)
    at_least("--samples", options.samples)
    source = _find(options)
    changes = {"split": options.split}
    if options.tasks is not None:
        changes["num_tasks"] = options.tasks
    if options.samples is not None:
        changes["samples_per_task"] = options.samples
    recipe = source.recipe
    if recipe.engine.kind == "openai":
        _check_service(recipe, options)
    recipe = recipe.model_copy(update={"eval": recipe.eval.model_copy(update=changes)})
    horizons = options.horizon or [recipe.eval.horizon]
    outputs = _outputs(options, source, horizons)
    if source.note:
        print(source.note, flush=True)
    from scalinginter.eval.sweep import sweep

    return sweep(recipe, source.policy, horizons, outputs)


def _check_service(recipe: Recipe, options: argparse.Namespace) -> None:
    """Raise `UserError` for what can be known of a service before anything heavy is imported."""
    from scalinginter.engine.openai.client import key_of

    if options.checkpoint is not None:
        raise UserError(
            f"--checkpoint {options.checkpoint}: engine.kind: openai names the model already, "
            f"{recipe.engine.model}; name a recipe by --schedule instead, the run's own, say: "
            f"--schedule {Path(options.checkpoint) / 'config.yaml'}"
        )
    key_of(recipe.engine)


@dataclass(frozen=True, slots=True)
class _Source:
    """What is evaluated."""

    recipe: Recipe
    policy: Path | None = None  # its folder; None: the recipe's own model
    run_dir: Path | None = None
    step: int | None = None  # of the run
    note: str = ""


def _find(options: argparse.Namespace) -> _Source:
    if options.checkpoint is None:
        if options.schedule is None:
            raise UserError("nothing to evaluate: give --checkpoint runs/x, or --schedule a recipe")
        return _Source(load_recipe(options.schedule, options.set))
    folder = Path(options.checkpoint)
    if not folder.is_dir():
        raise UserError(f"--checkpoint {folder}: no such folder")
    refuse_comparison(folder, "--checkpoint")
    if any(override.startswith("model.path=") for override in options.set):
        raise UserError(
            "--set model.path: --checkpoint names the model already; leave one of the two away"
        )
    policy, run_dir, step, note = policy_folder(folder)
    if run_dir is None and options.schedule is None:
        raise UserError(f"--checkpoint {folder}: belongs to no run; name its recipe by --schedule")
    trained = None if run_dir is None else read_mapping(run_dir / "config.yaml")
    if options.schedule is not None:
        recipe = load_recipe(options.schedule, options.set)
    else:
        assert trained is not None
        data = copy.deepcopy(trained)
        apply_overrides(data, options.set)
        recipe = validate(data, f"{run_dir}/config.yaml")
    if trained is not None:
        _warn_of_another_environment(validate(trained, f"{run_dir}/config.yaml"), recipe)
    return _Source(recipe, policy, run_dir, step, note)


def policy_folder(folder: Path) -> tuple[Path, Path | None, int | None, str]:
    """Return the policy that a folder means, its run, its step, and what to tell about it.

    Raises `UserError` for a folder that means none.
    """
    from scalinginter.train.checkpoint import CheckpointStore, problem, step_of

    if (folder / "checkpoints").is_dir():
        found = CheckpointStore(folder / "checkpoints").find()
        if found is None:
            raise UserError(f"--checkpoint {folder}: the run has saved no checkpoint yet")
        return found.folder / "policy", folder, step_of(found.folder), f"Evaluates {found}."
    run_dir = folder.parent.parent if (folder.parent.parent / "config.yaml").is_file() else None
    if (folder / "policy").is_dir():
        wrong = problem(folder)
        if wrong:
            raise UserError(f"--checkpoint {folder}: {wrong}; choose another checkpoint")
        numbered = folder.name.removeprefix("step-").isdigit()
        return folder / "policy", run_dir, step_of(folder) if numbered else None, ""
    if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
        return folder, None, None, ""
    raise UserError(
        f"--checkpoint {folder}: is neither a run with checkpoints, nor a checkpoint, nor a model"
    )


def _warn_of_another_environment(trained: Recipe, asked: Recipe) -> None:
    before, now = ({f.name: (f.id, f.params) for f in r.families} for r in (trained, asked))
    if before != now:
        print(
            f"warning: the run was trained in {_named(before)}; this evaluates in {_named(now)}",
            file=sys.stderr,
        )


def _named(environments: dict[str, tuple[str, dict]]) -> str:
    return ", ".join(f"{env_id} {params or ''}".strip() for env_id, params in environments.values())


def _outputs(options: argparse.Namespace, source: _Source, horizons: list[int]) -> list[Path]:
    """Where the figures go: one file that is kept for each evaluation of a run, and the newest."""
    if options.output:
        path = Path(options.output)
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise UserError(f"--output {path}: cannot be written; name a file in a writable folder")
        return [path]
    if source.run_dir is None or source.step is None:
        return []
    folder = writable_folder(source.run_dir / "evaluations", "--checkpoint")
    turns = "-".join(map(str, horizons))
    name = f"step-{source.step:06d}-{options.split}-{turns}.json"
    return [folder / name, source.run_dir / "evaluation.json"]
