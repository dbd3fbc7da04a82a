"""The MLflow writer beside a command: started before the runs, drained after them."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scalinginter.config.schema import Recipe

if TYPE_CHECKING:
    from scalinginter.track.mlflow_writer import MlflowWriter

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
        if writer.finish(DRAIN_TIMEOUT_S, on_wait=lambda: _tell_of_the_wait(writer)):
            print(writer.where())
        else:
            print(
                f"MLflow has not got everything: {writer.trouble()}\n"
                f"Nothing is lost; bring the runs there later with:\n  {writer.replay_command}"
            )


def _tell_of_the_wait(writer: "MlflowWriter") -> None:
    print(
        f"Sending the rest to MLflow, for {DRAIN_TIMEOUT_S:.0f} s at most; Ctrl-C leaves it for "
        f"later, with:\n  {writer.replay_command}",
        flush=True,
    )
