"""Everything between a recipe and an episode: engine, renderer, environments, collectors."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from scalinginter.chat.renderer import Renderer
from scalinginter.config.engines import refuse_for_training
from scalinginter.config.schema import FamilyConfig, Recipe
from scalinginter.engine.base import Engine, Generator
from scalinginter.engine.local import LocalEngine
from scalinginter.engine.scripted import ScriptedEngine
from scalinginter.env.pool import EnvPool
from scalinginter.errors import UserError
from scalinginter.model.load import Policy, frozen_copy, load_policy
from scalinginter.model.lora import holds_adapter
from scalinginter.rollout.collect import Collector
from scalinginter.rollout.cross_policy import CrossPolicyEngine, make_cross_policy_engine
from scalinginter.rollout.episode import EpisodeRunner
from scalinginter.rollout.family import Families
from scalinginter.rollout.pacing import Pace
from scalinginter.rollout.stream import Deal, GroupStream
from scalinginter.seeds import derive


class RolloutStack:
    """One engine; environment instances of their own for training and for evaluation."""

    def __init__(
        self,
        recipe: Recipe,
        policy: Policy,
        families: Families,
        *,
        folder: Path | None = None,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        """`folder`: where an engine may keep logs and weights; None: a temporary one.

        `share`: this process's number among those that train, and how many there are; each has
        servers of its own.
        """
        self._recipe = recipe
        self._pools: list[EnvPool] = []
        self._streams: list[GroupStream] = []
        self.renderer = Renderer.for_tokenizer(policy.tokenizer)
        self.families = families
        self.engine = make_engine(recipe, policy, self.renderer, self._pending, folder, share)
        self._policy = policy
        self._cross_policy: CrossPolicyEngine | None = None  # once training asks for it

    def collector(self, training: bool = False) -> Collector:
        """Make a collector with environment instances of its own.

        `training`: an older policy takes part, where the recipe asks for it.
        """
        engine = self._training_engine() if training else self.engine
        runners = {family.name: self._runner(family.config, engine) for family in self.families}
        return make_collector(self._recipe, runners)

    async def start(self) -> None:
        """Bring the policy to the engine, where no trainer does."""
        await self.engine.sync(0)

    async def before_step(self, step: int) -> None:
        """Bring the older policy up to date where that is due before step `step` (from 0)."""
        if self._cross_policy is not None:
            await self._cross_policy.refresh(step)

    def save(self, folder: Path) -> None:
        """Write to a checkpoint what is neither in the policy nor in the learner."""
        if self._cross_policy is not None:
            self._cross_policy.save(folder)

    def load(self, folder: Path) -> None:
        """Continue with what `save` wrote."""
        if self._cross_policy is not None:
            self._cross_policy.load(folder)

    def _training_engine(self) -> Generator:
        recipe, rollout = self._recipe, self._recipe.rollout
        if rollout.cross_policy is None:
            return self.engine
        waits = rollout.deterministic and not rollout.max_staleness
        self._cross_policy = make_cross_policy_engine(
            self.engine,
            self._policy,
            rollout.cross_policy,
            max_batch_tokens=recipe.engine.max_batch_tokens,
            max_sessions=rollout.max_concurrent,
            pad_id=self.renderer.stop_id,
            pending=self._pending if waits else None,
        )
        return self._cross_policy

    def stream(self, collector: Collector, deal: Deal, pace: Pace) -> GroupStream:
        """Make a stream of training groups; it ends with the stack."""
        rollout = self._recipe.rollout
        stream = GroupStream(
            collector,
            deal,
            pace,
            lambda: self.engine.version,
            group_size=rollout.group_size,
            temperature=rollout.temperature,
            key=("train", self._recipe.seed),
        )
        self._streams.append(stream)
        return stream

    def _runner(self, environment: FamilyConfig, engine: Generator) -> EpisodeRunner:
        recipe, pool = self._recipe, make_pool(self._recipe, environment)
        self._pools.append(pool)
        return EpisodeRunner(pool, engine, self.renderer, recipe.chat, recipe.rollout)

    async def aclose(self) -> None:
        """Stop the engine and the environments."""
        for stream in self._streams:
            await stream.aclose()
        if self._cross_policy is not None:
            await self._cross_policy.aclose()
        await self.engine.aclose()
        await self.families.aclose()
        for pool in self._pools:
            await pool.aclose()

    def _pending(self) -> int:
        return sum(pool.pending for pool in self._pools)


def make_pool(recipe: Recipe, environment: FamilyConfig) -> EnvPool:
    """Make the instances of one environment of a recipe."""
    return EnvPool(
        environment.id,
        environment.params,
        num_workers=environment.num_workers,
        turn_timeout_s=environment.turn_timeout_s,
        reset_timeout_s=environment.reset_timeout_s,
        want_admissible=recipe.chat.constrain_to_admissible,
    )


def make_collector(
    recipe: Recipe, runners: Mapping[str, EpisodeRunner], at_most: int | None = None
) -> Collector:
    """Make the collector of a recipe's environments. `at_most`: episodes at a time."""
    rollout = recipe.rollout
    return Collector(
        runners,
        max_concurrent=min(rollout.max_concurrent, at_most or rollout.max_concurrent),
        max_retries=rollout.max_retries,
        straggler_timeout_s=rollout.straggler_timeout_s,
        limits={f.name: f.max_concurrent for f in recipe.families if f.max_concurrent},
    )


def make_engine(
    recipe: Recipe,
    policy: Policy,
    renderer: Renderer,
    pending: Callable[[], int],
    folder: Path | None = None,
    share: tuple[int, int] = (0, 1),
) -> Engine:
    """Make the engine that a recipe names. Raises `UserError` for one that has no tokens."""
    refuse_for_training(recipe.engine)
    rollout = recipe.rollout
    if recipe.engine.kind == "scripted":
        script = [renderer.answer(text) for text in recipe.engine.script]
        return ScriptedEngine(script, max_context=rollout.max_context)
    if recipe.engine.kind == "sglang":
        from scalinginter.engine.sglang.build import make_sglang_engine

        return make_sglang_engine(
            recipe.engine,
            policy,
            max_context=rollout.max_context,
            stop_id=renderer.stop_id,
            constrained=renderer.stop_ids if recipe.chat.constrain_to_admissible else None,
            seed=derive("engine", recipe.seed) & 0x7FFFFFFF,
            folder=folder,
            share=share,
        )
    beside = rollout.max_staleness > 0  # it generates while the policy's own weights change
    return LocalEngine(
        frozen_copy(policy.model) if beside else policy.model,
        packed=policy.packed,
        max_context=rollout.max_context,
        max_batch_tokens=recipe.engine.max_batch_tokens,
        max_sessions=rollout.max_concurrent,
        pad_id=renderer.stop_id,
        busy=pending if rollout.deterministic and not beside else None,
        source=policy.model if beside else None,
    )


def load_recipe_policy(recipe: Recipe, families: Families, *, path: str | None = None) -> Policy:
    """Load the recipe's policy, or the one saved at `path` (a folder).

    A `tiny:` model takes its words from the corpus of the environments. A saved adapter goes into
    the recipe's own model.
    """
    adapter = Path(path) if path is not None and holds_adapter(Path(path)) else None
    whole = path is not None and adapter is None
    config = recipe.model.model_copy(update={"path": path, "lora": None} if whole else {})
    device = torch_device(recipe.model.device)
    return load_policy(
        config,
        corpus=families.corpus,
        seed=derive("model", recipe.seed),
        device=device,
        adapter=adapter,
    )


def torch_device(name: str) -> torch.device:
    """Return the device that `auto`, `cpu` or `cuda` means here.

    Raises `UserError` for `cuda` where there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "model.device: got 'cuda', but torch sees no CUDA device here; "
            "set model.device to auto or cpu, or check the driver (nvidia-smi)"
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
