"""`envs`: what environments there are."""

import argparse
import textwrap
from itertools import groupby

from scalinginter.env.listing import Listing, list_environments

WIDTH = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(options: argparse.Namespace) -> int:
    """List ids by family, each with its description and what it lacks here."""
    listings = list_environments()
    width = max(len(item.env_id) for item in listings)
    for family, members in groupby(listings, key=lambda item: item.family):
        print(family)
        for item in members:
            text = f"{item.description}{_lacks(item)}"
            lines = textwrap.wrap(text, WIDTH - width - 4, break_on_hyphens=False) or [""]
            for head, line in zip([item.env_id, *[""] * (len(lines) - 1)], lines, strict=True):
                print(f"  {head:<{width}}  {line}".rstrip())
    return 0


def _lacks(item: Listing) -> str:
    if not item.missing:
        return ""
    install = f": pip install 'scalinginter[{','.join(item.extras)}]'" if item.extras else ""
    return f" [not installed: {', '.join(item.missing)}{install}]"
