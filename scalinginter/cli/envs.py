"""`envs`: what environments there are."""

import argparse

from scalinginter.env.registry import environment_locations


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(options: argparse.Namespace) -> int:
    """List ids and where they live."""
    locations = environment_locations()
    width = max(map(len, locations))
    for env_id, location in locations.items():
        print(f"{env_id:<{width}}  {location}")
    return 0
