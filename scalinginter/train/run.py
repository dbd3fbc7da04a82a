"""One training run from its recipe and folder: builds the parts and trains."""

import gc
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs

from scalinginter.algo.registry import make_algorithm
from scalinginter.config.load import validate
from scalinginter.config.schema import Recipe
from scalinginter.errors import AgreedFailureError, RunFailedError, UserError
from scalinginter.model.compiled import compile_layers
from scalinginter.model.load import Policy
from scalinginter.rollout.demonstrations import demonstrate
from scalinginter.rollout.family import Families
from scalinginter.rollout.stack import RolloutStack, load_recipe_policy, torch_device
from scalinginter.track.journal import Journal, NoJournal
from scalinginter.track.run_folder import RunInfo
from scalinginter.train.batch import to_samples
from scalinginter.train.checkpoint import DISK_FULL, CheckpointStore, read_state
from scalinginter.train.costs import Budget
from scalinginter.train.display import NoDisplay, shown
from scalinginter.train.folder import checkpoint_of, only_writer, recorded
from scalinginter.train.learner import Learner
from scalinginter.train.loop import Trainer, seed_torch
from scalinginter.train.ranks import Ranks, joined, rank_of_environment, world_size
from scalinginter.train.sft import cold_start
from scalinginter.train.sharding import Weights, as_launched, make_weights
from scalinginter.train.signals import Interrupted, StopSignal
from scalinginter.train.tasks import TaskSampler, share_out
from scalinginter.train.weights import refuse_blown_up
from scalinginter.types import Trajectory


def run_training(
    config: dict[str, Any],
    run_dir: str | Path,
    resume: bool = False,
    quiet: bool = False,
    command: Sequence[str] = (),
    comparison: str | None = None,
    arm: str | None = None,
    beside: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> int:
    """Train in `run_dir`; return 0 when the budget is spent, 130 when a signal stopped it.

    With `resume` it continues from the newest whole checkpoint, to the bit on CPU, and starts over
    if none was saved. The parts are built before the folder is touched: a folder that was not there
    appears when training begins. `beside` is entered then, and left after everything is written.

    Raises `UserError` for what the user can mend, `RunFailedError` for a run that cannot go on; the
    status in `run.json` is then `failed`.
    """
    recipe = as_launched(validate(config, source=str(run_dir)))
    train = recipe.train
    stop = StopSignal(quiet=rank_of_environment() > 0)
    try:
        with (
            stop,
            joined(
                torch_device(recipe.model.device),
                train.rank_timeout_s,
                always=train.sharding != "none",
            ) as ranks,
        ):
            run_dir = ranks.broadcast(Path(run_dir))  # a default name holds the time
            name = run_dir.name if arm is None else f"{arm}-seed{recipe.seed}"
            info = RunInfo(name, recipe.seed, comparison, arm, list(command))
            _run(recipe, run_dir, info, resume, quiet, beside, ranks, stop)
    except Interrupted:
        return 130
    return 0


def _run(
    recipe: Recipe,
    run_dir: Path,
    info: RunInfo,
    resume: bool,
    quiet: bool,
    beside: Callable[[], AbstractContextManager[Any]],
    ranks: Ranks,
    stop: StopSignal,
) -> None:
    """Build the parts on every rank and train; rank 0 alone writes to the folder and talks."""
    checkpoints = CheckpointStore(run_dir / "checkpoints", recipe.checkpoint.keep)

    def hold() -> Path | None:
        if not ranks.is_main:
            return None
        held.enter_context(only_writer(run_dir))
        return checkpoint_of(checkpoints, run_dir) if resume else None

    try:
        with ExitStack() as held:
            saved = ranks.broadcast(ranks.agree(hold))
            with _parts(recipe, saved, stop, ranks, run_dir) as parts, ExitStack() as kept:
                if ranks.is_main:
                    if not quiet:
                        print(f"Run folder: {run_dir}\n{parts.describe(recipe)}", flush=True)
                    kept.enter_context(beside())
                    kept.enter_context(recorded(run_dir, recipe, info, resume, checkpoints, stop))
                _train(recipe, run_dir, saved, parts, checkpoints, quiet, stop)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise RunFailedError(
            f"{run_dir}: {error.strerror}; {checkpoints.standing()}. Make room, then resume the run"
        ) from error


@dataclass(frozen=True, slots=True)
class _Parts:
    """What depends on the user's input and on nothing in the run folder but a checkpoint."""

    accelerator: Accelerator
    weights: Weights
    policy: Policy
    stack: RolloutStack
    ranks: Ranks

    def describe(self, recipe: Recipe) -> str:
        """Lines for people: what is trained, and where."""
        split, lines = recipe.eval.split, [self.policy.description]
        if self.ranks.size > 1:
            lines.append(f"{self.ranks.size} processes, each with its share of the groups")
        if recipe.train.sharding != "none":
            lines.append("each process holds a part of what is trained (FSDP2)")
        for family in self.stack.families:
            held_out = len(family.tasks(split))
            lines.append(
                f"{family.name}: {len(family.tasks('train')):,} training tasks; evaluates on "
                f"{min(recipe.eval.num_tasks, held_out):,} of {held_out:,} {split} tasks"
            )
        return "\n".join(lines)


@contextmanager
def _parts(
    recipe: Recipe, saved: Path | None, stop: StopSignal, ranks: Ranks, run_dir: Path
) -> Generator[_Parts]:
    """Build the parts; close them in the end."""
    torch.set_num_threads(recipe.model.num_threads)
    seed_torch(recipe)
    accelerator = make_accelerator(recipe)
    families = Families(recipe, stop.run)

    def build() -> _Parts:
        for family in families:
            family.tasks("train")
            family.tasks(recipe.eval.split)
        _refuse_more_than_there_are(recipe, families)
        policy = load_recipe_policy(recipe, families, path=str(saved / "policy") if saved else None)
        if recipe.train.compile:
            compile_layers(policy.model)
        stack = RolloutStack(
            recipe, policy, families, folder=run_dir / "engine", share=(ranks.rank, ranks.size)
        )
        return _Parts(accelerator, make_weights(recipe, accelerator, policy), policy, stack, ranks)

    try:
        parts = ranks.agree(build)
    except BaseException:
        stop.finish(families.aclose())
        raise
    try:
        yield parts
    finally:
        stop.finish(parts.stack.aclose())


def _train(
    recipe: Recipe,
    run_dir: Path,
    saved: Path | None,
    parts: _Parts,
    checkpoints: CheckpointStore,
    quiet: bool,
    stop: StopSignal,
) -> None:
    """Train until the budget is spent. Raises `Interrupted` after a signal."""
    title = f"{recipe.environment_names} {recipe.name} seed {recipe.seed}"
    ranks = parts.ranks
    with (
        shown(title, quiet) if ranks.is_main else nullcontext(NoDisplay()) as display,
        Journal(run_dir) if ranks.is_main else NoJournal() as journal,
    ):
        if saved is None:
            journal.truncate({})  # of a run that ended before its first checkpoint
            _cold_start(recipe, parts, journal, stop)
        # Workers that nobody asks any more would only hold memory.
        stop.finish(parts.stack.families.aclose())
        algorithm = make_algorithm(recipe.algorithm)
        learner = Learner(
            parts.policy,
            recipe.train,
            algorithm,
            parts.accelerator,
            total_steps=_total_steps(recipe),
            temperature=recipe.rollout.temperature,
            seed=recipe.seed,
            weights=parts.weights,
        )
        if recipe.train.sharding != "none" and recipe.engine.kind == "sglang":
            parts.policy.model.to("cpu")  # type: ignore[arg-type]
        built = (recipe, parts.policy, algorithm, learner, parts.stack)
        trainer = Trainer(*built, journal, checkpoints, stop, display, ranks)
        if saved is not None:
            trainer.load(saved, read_state(saved))
        # A full collection over everything imported takes most of a second, mid-rollout.
        gc.collect()
        gc.freeze()
        try:
            trainer.run()
        except Interrupted:
            trainer.save()
            raise
        except RunFailedError as failure:
            if ranks.size > 1 and not isinstance(failure, AgreedFailureError):
                raise  # the others do not know of it: saving would wait for them
            with suppress(RunFailedError):  # why the run failed is what the user has to know
                trainer.save()
            raise


def make_accelerator(recipe: Recipe) -> Accelerator:
    """Make the Accelerator. No autocast: bf16 models have fp32 master weights in the learner.

    Raises `UserError` where it does not have the processes that were started.
    """
    device = torch_device(recipe.model.device)
    # Buffers are equal on all ranks; sending them at every forward pass would pair passes up.
    kwargs = DistributedDataParallelKwargs(broadcast_buffers=False)
    accelerator = Accelerator(
        cpu=device.type == "cpu", mixed_precision="no", kwargs_handlers=[kwargs]
    )
    if accelerator.num_processes != world_size():
        raise UserError(
            f"{world_size()} processes were started, but accelerate sees "
            f"{accelerator.num_processes}; start them with: python train.py --num-processes "
            f"{world_size()} ..."
        )
    return accelerator


def _cold_start(recipe: Recipe, parts: _Parts, journal: Journal, stop: StopSignal) -> None:
    """Imitate the expert for a while, if the recipe says so. Raises `Interrupted`."""
    if not recipe.sft.num_demonstrations:
        return
    played = _demonstrations(recipe, parts.stack)
    rows = [
        row
        for i, t in enumerate(played)
        for row in to_samples(t, np.ones(len(t.turns), dtype=np.float32), i)
    ]

    def report(step: int, metrics: dict[str, float]) -> None:
        journal.log(step, "sft", metrics)
        parts.ranks.agree(stop.check)

    trained = parts.weights.divide(parts.weights.trained(parts.policy.model))
    cold_start(
        replace(parts.policy, model=trained),
        rows,
        recipe.sft,
        accelerator=parts.accelerator,
        micro_batch_tokens=recipe.train.micro_batch_tokens,
        seed=recipe.seed,
        temperature=recipe.rollout.temperature,
        report=report,
    )
    parts.weights.publish(trained, parts.policy.model)
    parts.ranks.agree(
        lambda: refuse_blown_up(parts.policy.model, "the cold start", "sft.learning_rate")
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


def _refuse_more_than_there_are(recipe: Recipe, families: Families) -> None:
    counts = share_out(recipe.families, recipe.sft.num_demonstrations, {}, 0)
    for family in families:
        wanted, there = counts[family.name], len(family.tasks("train"))
        if wanted > there:
            raise UserError(
                f"sft.num_demonstrations: {wanted:,} of them are of {family.name!r}, which has "
                f"{there:,} training tasks; ask for at most one demonstration per task"
            )


def _total_steps(recipe: Recipe) -> int | None:
    steps = Budget(recipe.train).limits.get("steps")
    return None if steps is None else int(steps)
