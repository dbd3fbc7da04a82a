"""`fetch-model NAME`: a real model that needs no model hub."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", choices=["smollm2"], help="SmolLM2-135M-Instruct")


def run(options: argparse.Namespace) -> int:
    """Fetch, convert and cache the model."""
    from scalinginter.model.smollm2 import fetch

    folder = fetch(progress=print)
    print(f"Ready: model.path={options.name} ({folder})")
    return 0
