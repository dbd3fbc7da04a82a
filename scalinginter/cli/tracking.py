"""The MLflow writer beside a command: started before the runs, drained after them."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scalinginter.config.schema import Recipe

DRAIN_TIMEOUT_S = 60.0


@contextmanager
def mlflow_writer(recipe: Recipe, run_dirs: Sequence[Path], root: Path | None) -> Generator[None]:
    """Bring the journals of these runs (or of all runs below `root`) into MLflow meanwhile.

    It never slows or fails the runs; what could not be written can be brought later.
    """
    if not recipe.track.mlflow:
        yield
        return
    from scalinginter.track.mlflow_writer import MlflowWriter

    writer = MlflowWriter(
        run_dirs,
        uri=recipe.track.uri or os.environ.get("MLFLOW_TRACKING_URI"),
        experiment=recipe.track.experiment,
        traces_per_step=recipe.track.traces_per_step,
        root=root,
    )
    writer.start()
    try:
        yield
    finally:
        if writer.finish(DRAIN_TIMEOUT_S):
            print(writer.where())
        else:
            print(
                "MLflow could not be reached or is behind; nothing is lost. Bring the runs there "
                f"later with:\n  {writer.replay_command}"
            )
