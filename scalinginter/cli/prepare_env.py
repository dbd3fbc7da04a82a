"""`prepare-env RECIPE`: generate the games of a recipe's environment before training needs them."""

import argparse

from scalinginter.config.load import load_recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("schedule", metavar="FILE", help="recipe whose environment is prepared")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE")


def run(options: argparse.Namespace) -> int:
    """Generate and cache what can be."""
    recipe = load_recipe(options.schedule, options.set)
    from scalinginter.env.registry import make

    env = make(recipe.environment.id, **recipe.environment.params)
    count = 0
    for split in ("train", "validation", "test"):
        for task in env.tasks(split):
            env.reset(options={"task": task})
            count += 1
            print(f"\r{split}: {count} tasks ready", end="", flush=True)
    print()
    return 0
