"""`merge-adapter RUN`: the policy of a run with `model.lora` as a whole model."""

import argparse
from pathlib import Path

from scalinginter.cli.evaluate import policy_folder
from scalinginter.cli.options import refuse_comparison
from scalinginter.config.load import validate
from scalinginter.config.yaml_strict import read_mapping
from scalinginter.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("checkpoint", metavar="RUN", help="a run, or one of its checkpoints")
    parser.add_argument("--output", metavar="DIR", help="new folder (default: RUN/merged)")


def run(options: argparse.Namespace) -> int:
    """Write base plus adapter so that AutoModelForCausalLM loads them."""
    folder = Path(options.checkpoint)
    if not folder.is_dir():
        raise UserError(f"merge-adapter {folder}: no such folder")
    refuse_comparison(folder, "merge-adapter")
    policy, run_dir, _, _ = policy_folder(folder)
    if run_dir is None or not (policy / "adapter_config.json").is_file():
        raise UserError(
            f"merge-adapter {folder}: no run with model.lora; there is nothing to merge"
        )
    output = Path(options.output) if options.output else run_dir / "merged"
    if output.exists():
        raise UserError(f"--output {output}: is there already; name a new folder by --output")
    recipe = validate(read_mapping(run_dir / "config.yaml"), f"{run_dir}/config.yaml")

    from scalinginter.model.load import save_policy
    from scalinginter.model.lora import merge
    from scalinginter.rollout.family import Families
    from scalinginter.rollout.stack import load_recipe_policy

    loaded = load_recipe_policy(recipe, Families(recipe), path=str(policy))
    merge(loaded.model)
    output.parent.mkdir(parents=True, exist_ok=True)
    save_policy(loaded.model, loaded.tokenizer, output)
    print(f"Merged: model.path={output}")
    return 0
