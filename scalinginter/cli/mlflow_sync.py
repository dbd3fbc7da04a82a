"""`mlflow-sync DIR...`: bring run folders into MLflow, or bring MLflow up to date with them."""

import argparse
import os
from pathlib import Path

from scalinginter.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folders", nargs="+", metavar="DIR", help="runs, or folders of a comparison"
    )
    parser.add_argument("--uri", help="default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db")
    parser.add_argument("--experiment", default="scalinginter")
    parser.add_argument("--traces-per-step", type=int, default=2)


def run(options: argparse.Namespace) -> int:
    """Replay the journals; harmless where MLflow has them already."""
    runs: list[Path] = []
    for folder in map(Path, options.folders):
        found = sorted(path.parent for path in folder.rglob("run.json"))
        if not found:
            raise UserError(f"{folder}: holds no run (no run.json in it or below)")
        runs += found
    from scalinginter.track.mlflow_writer import sync

    uri = options.uri or os.environ.get("MLFLOW_TRACKING_URI")
    print(sync(runs, uri, options.experiment, traces_per_step=options.traces_per_step))
    return 0
