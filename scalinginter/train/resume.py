"""What a run may be continued with: its own recipe, give or take what has not happened yet."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scalinginter.config.load import apply_overrides, differences, recipe_dict, validate
from scalinginter.config.schema import Recipe
from scalinginter.config.yaml_strict import read_mapping
from scalinginter.errors import CheckpointError, UserError

LIMITS = ("train.num_steps", "train.budget")
MAY_CHANGE = (
    *LIMITS,
    "train.sharding",
    "train.cpu_offload",
    "checkpoint",
    "track",
    "engine.url",
    "engine.launch",
)


def resumed_recipe(run_dir: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read the recipe of a run and apply the overrides that a continued run may have.

    Raises `CheckpointError` if the folder holds no run, `UserError` for any other change.
    """
    config = run_dir / "config.yaml"
    if not config.is_file():
        what = "there is no such folder" if not run_dir.is_dir() else "it holds no config.yaml"
        raise CheckpointError(f"--resume {run_dir}: {what}; give the folder of a run")
    data = read_mapping(config)
    before = recipe_dict(validate(data, str(config)))
    apply_overrides(data, overrides)
    recipe = validate(data, str(config))
    changed = differences(before, recipe_dict(recipe))
    refused = [path for path in changed if not path.startswith(MAY_CHANGE)]
    if refused:
        lines = [f"  {path}: {changed[path][0]!r} -> {changed[path][1]!r}" for path in refused]
        raise UserError(
            f"--resume {run_dir}: a continued run keeps its recipe; these would change it:\n"
            + "\n".join(lines)
            + f"\nOnly {', '.join(MAY_CHANGE)} may change; start a new run for the rest"
        )
    moved = [path for path in changed if path.startswith(LIMITS)]
    follows = follows_the_end(before) if moved else None
    if follows:
        raise UserError(
            f"--resume {run_dir}: another end ({', '.join(moved)}) is refused here: "
            f"{follows}, so its first steps would have been others; start a new run"
        )
    return recipe


def follows_the_end(config: Mapping[str, Any]) -> str | None:
    """Return what earlier steps have taken from where training ends; None when nothing."""
    blocks = {"horizon": config["horizon"]}
    blocks |= {f"horizons.{name}": block for name, block in config["horizons"].items()}
    for path, block in blocks.items():
        for key in ("at_fraction", "over_fraction"):
            if block.get(key) is not None:
                return f"{path}.{key} places its horizons by the share of the budget that is spent"
    decay = config["train"]["decay"]
    if decay != "constant":
        return f"train.decay: {decay} places its learning rates by the number of steps"
    return None
