"""THE loop. One step:

horizons = the schedules' answers, one per environment
rollouts.take(groups under their horizons) -> schedules observe
      -> algorithm.advantages -> rows -> learner.update -> engine.sync
      -> journal, then evaluation and checkpoint when they are due
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from scalinginter.algo.registry import Algorithm
from scalinginter.config.schema import Recipe
from scalinginter.errors import RunFailedError
from scalinginter.eval.metrics import summarize
from scalinginter.eval.runner import evaluation_plan, held_out_tasks
from scalinginter.horizon import Progress
from scalinginter.model.load import Policy, restore_weights, save_policy
from scalinginter.rollout.collect import Collection
from scalinginter.rollout.stack import RolloutStack
from scalinginter.seeds import derive
from scalinginter.track.journal import Journal
from scalinginter.train.batch import to_samples
from scalinginter.train.checkpoint import CheckpointStore
from scalinginter.train.costs import Budget, Costs
from scalinginter.train.display import Display
from scalinginter.train.guard import Guard
from scalinginter.train.horizons import FamilyHorizons
from scalinginter.train.learner import Learner
from scalinginter.train.memory import shortage
from scalinginter.train.metrics import rollout_metrics
from scalinginter.train.ranks import Ranks
from scalinginter.train.rollouts import make_rollouts
from scalinginter.train.sharing import collect, episode_records
from scalinginter.train.signals import StopSignal
from scalinginter.train.weights import blown_up, fingerprint, refuse_blown_up
from scalinginter.types import Group, TrainingSample, Trajectory


class Trainer:
    """Holds the parts and the counters of one run, and takes its steps."""

    def __init__(
        self,
        recipe: Recipe,
        policy: Policy,
        algorithm: Algorithm,
        learner: Learner,
        stack: RolloutStack,
        journal: Journal,
        checkpoints: CheckpointStore,
        stop: StopSignal,
        display: Display,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks or Ranks()
        self.recipe, self.policy, self.algorithm, self.learner = recipe, policy, algorithm, learner
        self.stack, self.journal, self.checkpoints = stack, journal, checkpoints
        self.stop, self.display = stop, display
        self.horizons = FamilyHorizons(recipe)
        self.guard = Guard(recipe.guard, self.horizons.hold, self._shortage, display.say)
        self.budget = Budget(recipe.train)
        self.costs = Costs()
        self.version = 0  # of the policy: one more with every update
        self._evaluated: tuple[int, float] | None = None  # step and share of the last evaluation
        self.rollouts = make_rollouts(recipe, stack, stop, self.ranks)
        self._eval_collector = stack.collector()
        self._forwarded = 0  # tokens, as far as they are counted in the costs

    @property
    def step_count(self) -> int:
        return self.costs.steps

    @property
    def done(self) -> bool:
        """Whether the budget is spent."""
        return self.budget.fraction(self.costs) >= 1.0

    def run(self) -> None:
        """Train until the budget is spent. Raises `Interrupted` after a signal."""
        self._sync()
        self._evaluate_when_due()
        while not self.done:
            self.step()
            self._evaluate_when_due()
            every = self.recipe.checkpoint.every
            if every is not None and self.step_count % every == 0:
                self.save()
        self.save()

    def step(self) -> None:
        """Take one step: nothing of it is kept unless all of it was done."""
        started = time.perf_counter()
        progress = Progress(self.step_count, self.budget.fraction(self.costs))
        horizons = self.guard.admit(self.horizons.start(progress), self.step_count, self.save)
        collection = self.rollouts.take(self.step_count, horizons)
        collected = time.perf_counter()
        self.ranks.agree(partial(_refuse_a_step_without_episodes, self.step_count, collection))
        self.horizons.observe(collection.by_family())
        rows = self._samples(collection.groups)
        update = self.rollouts.beside(partial(self._learn, rows, collection.trajectories))
        finite = not blown_up(self.policy.model)
        alarm = self.guard.judge(self.step_count, collection.trajectories, update, finite)
        if alarm:
            self.ranks.agree(partial(self._take_back, alarm))
        updated = time.perf_counter()

        self.rollouts.trained()
        self._spend(collection, self._newly_forwarded(), updated - started)
        if self.recipe.track.episodes:
            records = episode_records(self.ranks, collection.trajectories)
            self.journal.episodes(self.step_count, "train", records)
        metrics = rollout_metrics(collection, horizons) | update | self.guard.metrics()
        metrics |= {"time/rollout_s": collected - started, "time/update_s": updated - collected}
        metrics |= self.rollouts.metrics()
        try:  # the step is done: it counts even where the engine cannot be brought up to date
            if not update.get("update/skipped"):
                self.version += 1
                metrics |= self._sync()
        finally:
            metrics |= self.costs.metrics() | {"time/step_s": time.perf_counter() - started}
            self._log("train", metrics)

    def save(self) -> Path:
        """Write a checkpoint of everything that the next step depends on; all ranks call it.

        Raises `RunFailedError` if it cannot be written, or if the weights are not finite.
        """
        self.ranks.agree(partial(self._refuse_blown_up_weights, self.step_count))
        if self.ranks.size > 1:
            self.ranks.refuse_difference(fingerprint(self.policy.model), "the weights")
        state = {
            "costs": asdict(self.costs),
            "rollouts": self.rollouts.state_dict(),
            "horizons": self.horizons.state_dict(),
            "guard": self.guard.state_dict(),
            "version": self.version,
            "evaluated": self._evaluated,
            "journal": self.journal.offsets(),
            "processes": self.ranks.size,
        }
        rng = self.ranks.to_main(torch.get_rng_state())
        pinned = self.guard.pinned
        write = self._writer({**self.learner.state_dict(), "rng": rng})
        save = partial(self.checkpoints.save, self.step_count, write, state, pinned)
        beside = partial(self.rollouts.beside, save, update=False)
        return self.ranks.broadcast(self.ranks.agree(lambda: beside() if rng else Path()))

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        """Continue from a checkpoint; the policy's weights were loaded from it already."""
        learner = self._saved_learner(folder)
        for rng in learner.pop("rng")[self.ranks.rank :][:1]:  # none of a process that is new
            torch.set_rng_state(rng)
        self.learner.load_state_dict(learner)
        self._newly_forwarded()
        self.costs = Costs(**state["costs"])
        self.rollouts.load_state_dict(state["rollouts"])
        self.stack.load(folder)
        self.horizons.load_state_dict(state["horizons"])
        self.guard.load_state_dict(state["guard"])
        self.version = state["version"]
        if state["evaluated"] is not None:
            step, share = state["evaluated"]  # of the budget then, which may have been smaller
            self._evaluated = (step, min(share, self.budget.fraction(self.costs)))
        self.journal.truncate(state["journal"])

    def _sync(self) -> dict[str, float]:
        """Bring the weights to the engine, which answers under the policy's version from then on.

        Not ended by a signal: the engine is never left between two policies.
        """
        started = time.perf_counter()
        sync = self.stack.engine.sync(self.version)
        metrics = self.ranks.agree(lambda: self.stop.finish(sync))
        seconds = self.ranks.broadcast(time.perf_counter() - started)
        self.costs = replace(self.costs, seconds=self.costs.seconds + seconds)
        return metrics | {"time/sync_s": seconds}

    def _take_back(self, alarm: str) -> None:
        """Put policy and optimizer back to where they were; what was spent stays spent."""
        found = self.checkpoints.find()
        if found is None:
            self._refuse_blown_up_weights(self.step_count + 1)
            raise RunFailedError(
                f"step {self.step_count + 1}: {alarm}, and no checkpoint was saved"
            )
        name = self.guard.take_back(self.step_count, alarm)
        folder = found.folder if name is None else self.checkpoints.folder / name
        restore_weights(self.policy.model, folder / "policy")
        state = self._saved_learner(folder)
        state.pop("rng")
        self.rollouts.restart()
        self.learner.load_state_dict(state | {"forward_tokens": self.learner.forward_tokens})

    def _saved_learner(self, folder: Path) -> dict[str, Any]:
        """Where weights are divided, a process reads no more of the file than its own part."""
        parts = self.recipe.train.sharding != "none"
        return torch.load(folder / "learner.pt", weights_only=True, map_location="cpu", mmap=parts)

    def _shortage(self, row_tokens: int) -> str:
        """Say what is short, on the first rank where something is."""
        parts = self.ranks.size if self.recipe.train.sharding != "none" else 1
        device = self.learner.accelerator.device
        own = shortage(self.recipe, self.policy, row_tokens, device=device, parts=parts)
        short = self.ranks.gather(own)
        return next(filter(None, short), "")

    def _refuse_blown_up_weights(self, step: int) -> None:
        refuse_blown_up(self.policy.model, f"the update of step {step}", "train.learning_rate")

    def _writer(self, learner: dict[str, Any]) -> Callable[[Path], None]:
        """Return what writes the heavy files. `learner`: its state, and the random one of ranks."""

        def write(folder: Path) -> None:
            save_policy(self.policy.model, self.policy.tokenizer, folder / "policy")
            self.stack.save(folder)
            torch.save(learner, folder / "learner.pt")

        return write

    def _learn(
        self, rows: list[TrainingSample], episodes: Sequence[Trajectory]
    ) -> dict[str, float]:
        rows, values = self.learner.estimate(rows, episodes)
        return self.learner.update(rows) | values

    def _samples(self, groups: list[Group]) -> list[TrainingSample]:
        """Turn groups into rows; an episode counts once, however many rows it becomes."""
        samples: list[TrainingSample] = []
        episode = 0
        found = self.algorithm.advantages(groups, self.ranks.sum)
        for group, advantages in zip(groups, found, strict=True):
            for trajectory, per_turn in zip(group.trajectories, advantages, strict=True):
                samples += to_samples(trajectory, per_turn, episode)
                episode += 1
        return samples

    def _spend(self, collection: Collection, forwarded: int, seconds: float) -> None:
        episodes = collection.trajectories
        own = {"forwarded": forwarded, "seconds": seconds if self.ranks.is_main else 0.0}
        total = self.ranks.sum(own)
        self.costs = replace(
            self.costs,
            turns=self.costs.turns + sum(len(t.turns) for t in episodes),
            generated_tokens=self.costs.generated_tokens
            + sum(t.num_generated_tokens for t in episodes),
            forward_tokens=self.costs.forward_tokens + int(total["forwarded"]),
            seconds=self.costs.seconds + total["seconds"],
            steps=self.costs.steps + 1,
        )

    def _newly_forwarded(self) -> int:
        """Tokens that training has pushed through the model since the last call."""
        before = self._forwarded
        self._forwarded = self.rollouts.forwarded_tokens + self.learner.forward_tokens
        return self._forwarded - before

    def _evaluation_is_due(self) -> bool:
        """At the start, at the end, every so many steps, and whenever another equal share of the
        budget is spent; once per step."""
        config, step = self.recipe.eval, self.step_count
        share = self.budget.fraction(self.costs)
        if self._evaluated is None:
            return True
        last_step, last_share = self._evaluated
        if last_step == step:
            return False
        times = config.times
        passed = times is not None and int(share * times) > int(last_share * times)
        return self.done or passed or bool(config.every and step % config.every == 0)

    def _evaluate_when_due(self) -> None:
        if not self._evaluation_is_due():
            return
        config = self.recipe.eval
        held_out = held_out_tasks(self.stack.families, config)
        plan = evaluation_plan(held_out, config)
        trajectories = collect(self.ranks, self.stop, self._eval_collector, plan).trajectories
        self._evaluated = (self.step_count, self.budget.fraction(self.costs))
        if self.recipe.track.episodes:
            records = episode_records(self.ranks, trajectories)
            self.journal.episodes(self.step_count, "eval", records)
        metrics = summarize(trajectories) | {"eval/horizon": float(config.horizon)}
        self._log("eval", metrics | self.costs.metrics())

    def _log(self, stage: str, metrics: dict[str, float]) -> None:
        self.journal.log(self.step_count, stage, metrics)  # type: ignore[arg-type]
        self.display.report(self.step_count, stage, metrics, self.budget.fraction(self.costs))


def _refuse_a_step_without_episodes(step: int, collection: Collection) -> None:
    """A step whose every episode failed spends no budget: going on would never end."""
    first = collection.trajectories[0]
    if not any(t.turns or t.stop.is_failure for t in collection.trajectories):
        raise RunFailedError(
            f"no episode of step {step + 1} could take a turn: every prompt, with room for an "
            f"answer, is longer than rollout.max_context ({first.stop}); raise rollout.max_context"
        )
    if all(t.stop.is_failure for t in collection.trajectories):
        raise RunFailedError(
            f"every episode of step {step + 1} failed, retries included. The first one, on task "
            f"{first.task.id}, ended with {first.stop}: {first.error}"
        )


def seed_torch(recipe: Recipe) -> None:
    """Seed what is left to torch's own generator."""
    torch.manual_seed(derive("torch", recipe.seed))
