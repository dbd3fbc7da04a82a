"""`prepare-env RECIPE`: generate the games of its environments before training needs them."""

import argparse

from scalinginter.config.load import load_recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("schedule", metavar="FILE", help="recipe whose environments are prepared")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE")


def run(options: argparse.Namespace) -> int:
    """Generate and cache what can be."""
    recipe = load_recipe(options.schedule, options.set, option="prepare-env")
    from scalinginter.env.base import SPLITS
    from scalinginter.env.registry import make

    for family in recipe.families:
        env = make(family.id, **family.params)
        print(f"Preparing {family.name}; this can take minutes the first time.", flush=True)
        count = sum(env.prepare([split]) for split in SPLITS)
        print(f"{count} made, the others were there or need nothing.")
    return 0
