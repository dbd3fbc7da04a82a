"""One training run from its recipe and folder: builds the parts and trains."""

import fcntl
import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from scalinginter.algo.registry import make_algorithm
from scalinginter.config.load import recipe_dict, validate
from scalinginter.config.schema import Recipe
from scalinginter.errors import RunFailedError, UserError
from scalinginter.model.load import Policy
from scalinginter.rollout.demonstrations import demonstrate
from scalinginter.rollout.family import Families
from scalinginter.rollout.stack import RolloutStack, load_recipe_policy, torch_device
from scalinginter.track.journal import Journal
from scalinginter.track.progress import Progress
from scalinginter.track.run_folder import RunInfo, Status, set_status, write_config, write_run_info
from scalinginter.train.batch import to_samples
from scalinginter.train.checkpoint import CheckpointStore, read_state
from scalinginter.train.costs import Budget
from scalinginter.train.learner import Learner
from scalinginter.train.loop import Report, Trainer, seed_torch
from scalinginter.train.sft import cold_start
from scalinginter.train.signals import Interrupted, StopSignal
from scalinginter.train.tasks import TaskSampler, share_out
from scalinginter.types import Trajectory

STATUS_OF_CODE: dict[int, Status] = {0: "finished", 130: "stopped"}


def run_training(
    config: dict[str, Any],
    run_dir: str | Path,
    resume: bool = False,
    quiet: bool = False,
    command: Sequence[str] = (),
    comparison: str | None = None,
    arm: str | None = None,
) -> int:
    """Train in `run_dir`; return 0 when the budget is spent, 130 when a signal stopped it.

    With `resume` it continues from the newest whole checkpoint, to the bit on CPU. Raises
    `UserError` for what the user can mend, `RunFailedError` where no episode can be played; the
    status in `run.json` is then `failed`.
    """
    run_dir = Path(run_dir)
    recipe = validate(config, source=str(run_dir))
    with _only_writer(run_dir), StopSignal() as stop:
        if not resume:
            info = RunInfo(
                name=run_dir.name if arm is None else f"{arm}-seed{recipe.seed}",
                seed=recipe.seed,
                comparison=comparison,
                arm=arm,
                command=list(command),
            )
            write_run_info(run_dir, info)
        else:
            set_status(run_dir, "running")
        write_config(run_dir, recipe_dict(recipe))
        code = 1
        try:
            code = _train(recipe, run_dir, resume, quiet, stop)
        except Interrupted:  # before the first step: there is nothing to save
            code = 130
        finally:
            set_status(run_dir, STATUS_OF_CODE.get(code, "failed"))
    return code


def _train(recipe: Recipe, run_dir: Path, resume: bool, quiet: bool, stop: StopSignal) -> int:
    torch.set_num_threads(recipe.model.num_threads)
    seed_torch(recipe)
    title = f"{recipe.environment_names} {recipe.name} seed {recipe.seed}"
    with _display(title, quiet) as report, Journal(run_dir) as journal:
        checkpoints = CheckpointStore(run_dir / "checkpoints", recipe.checkpoint.keep)
        saved = checkpoints.latest() if resume else None
        accelerator = make_accelerator(recipe)
        families = Families(recipe, stop.run)
        policy = load_recipe_policy(recipe, families, path=str(saved / "policy") if saved else None)
        stack = RolloutStack(recipe, policy, families)
        if saved is None:
            journal.truncate({})  # of a run that ended before its first checkpoint
            _cold_start(recipe, policy, stack, journal, accelerator)
        algorithm = make_algorithm(recipe.algorithm)
        learner = Learner(
            policy,
            recipe.train,
            algorithm,
            accelerator,
            total_steps=_total_steps(recipe),
            temperature=recipe.rollout.temperature,
            seed=recipe.seed,
        )
        trainer = Trainer(
            recipe, policy, algorithm, learner, stack, journal, checkpoints, stop, report
        )
        if saved is not None:
            trainer.load(saved, read_state(saved))
        # A full collection over everything imported takes most of a second, mid-rollout.
        gc.collect()
        gc.freeze()
        try:
            trainer.run()
        except Interrupted:
            trainer.save()
            return 130
        except RunFailedError:
            trainer.save()
            raise
        finally:
            stop.finish(stack.aclose())
    return 0


def make_accelerator(recipe: Recipe) -> Accelerator:
    """Make the Accelerator. No autocast: bf16 models have fp32 master weights in the learner."""
    device = torch_device(recipe.model.device)
    accelerator = Accelerator(cpu=device.type == "cpu", mixed_precision="no")
    if accelerator.num_processes != 1:
        raise UserError(
            f"started with {accelerator.num_processes} processes; training runs in one. "
            "Start it with: python train.py ..."
        )
    return accelerator


def _cold_start(
    recipe: Recipe, policy: Policy, stack: RolloutStack, journal: Journal, accelerator: Accelerator
) -> None:
    """Imitate the expert for a while, if the recipe says so."""
    if not recipe.sft.num_demonstrations:
        return
    played = _demonstrations(recipe, stack)
    rows = [
        row
        for i, t in enumerate(played)
        for row in to_samples(t, np.ones(len(t.turns), dtype=np.float32), i)
    ]
    cold_start(
        policy,
        rows,
        recipe.sft,
        accelerator=accelerator,
        micro_batch_tokens=recipe.train.micro_batch_tokens,
        seed=recipe.seed,
        temperature=recipe.rollout.temperature,
        report=lambda step, metrics: journal.log(step, "sft", metrics),
    )


def _demonstrations(recipe: Recipe, stack: RolloutStack) -> list[Trajectory]:
    """The expert's episodes, shared out among the environments as a step's tasks are."""
    counts = share_out(recipe.families, recipe.sft.num_demonstrations, {}, 0)
    played: list[Trajectory] = []
    for family in stack.families:
        sampler = TaskSampler(family.tasks("train"), recipe.seed)
        tasks = sampler.take(0, counts[family.name])
        max_context = recipe.rollout.max_context
        played += demonstrate(family.catalog, tasks, stack.renderer, recipe.chat, max_context)
    return played


@contextmanager
def _display(title: str, quiet: bool) -> Generator[Report]:
    """Show progress on standard output, or nothing."""
    if quiet:
        yield lambda step, stage, metrics, share: None
        return
    with Progress(title) as progress:

        def report(step: int, stage: str, metrics: dict[str, float], share: float) -> None:
            if stage == "eval":
                progress.evaluation(step, metrics)
            else:
                progress.update(step, metrics, share)

        yield report


def _total_steps(recipe: Recipe) -> int | None:
    steps = Budget(recipe.train).limits.get("steps")
    return None if steps is None else int(steps)


@contextmanager
def _only_writer(run_dir: Path) -> Generator[None]:
    """Hold the run folder's lock: two trainers in one folder would spoil it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{run_dir}: another process trains there; wait for it, or choose another folder"
            ) from None
        yield
