"""A run folder while it is being written: its lock, `config.yaml`, `run.json`."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from scalinginter.config.load import recipe_dict
from scalinginter.config.schema import Recipe
from scalinginter.track.run_folder import (
    LOCK,
    RUN_INFO,
    RunInfo,
    Status,
    only_holder,
    set_status,
    write_config,
    write_run_info,
)
from scalinginter.train.checkpoint import CheckpointStore
from scalinginter.train.signals import Interrupted, StopSignal, nothing_saved


def checkpoint_of(checkpoints: CheckpointStore, run_dir: Path) -> Path | None:
    """Return the checkpoint to continue from, and say which."""
    found = checkpoints.find()
    if found is None:
        print(f"{run_dir} holds no checkpoint yet: the run starts over.", flush=True)
        return None
    print(f"Continues from {found}.", flush=True)
    return found.folder


@contextmanager
def recorded(
    run_dir: Path,
    recipe: Recipe,
    info: RunInfo,
    resume: bool,
    checkpoints: CheckpointStore,
    stop: StopSignal,
) -> Generator[None]:
    """Keep `config.yaml` and `run.json` right while the run goes on, and however it ends."""
    write_config(run_dir, recipe_dict(recipe))
    if resume:
        set_status(run_dir, "running")
    else:
        write_run_info(run_dir, info)

    def end_at_once() -> str:
        set_status(run_dir, "stopped")
        return f"Stopped at once; {checkpoints.standing()}."

    stop.at_once = end_at_once
    status: Status = "failed"
    try:
        yield
        status = "finished"
    except Interrupted:
        status = "stopped"
        raise
    finally:
        stop.at_once = nothing_saved
        with suppress(OSError):  # a full disk: what filled it is being told
            set_status(run_dir, status)


@contextmanager
def only_writer(run_dir: Path) -> Generator[None]:
    """Hold the run folder's lock: two trainers in one folder would spoil it.

    A folder that this made is removed again if no run began in it.
    """
    made = not run_dir.exists()
    refusal = f"{run_dir}: another process trains there; wait for it, or choose another folder"
    with only_holder(run_dir, refusal):
        try:
            yield
        finally:
            if made and not (run_dir / RUN_INFO).exists():
                (run_dir / LOCK).unlink()
                with suppress(OSError):  # something else was put there
                    run_dir.rmdir()
