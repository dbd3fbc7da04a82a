"""Cross-policy sampling (AgentRL, arXiv 2510.04206): an older policy writes a share of the turns.

A policy that only meets the states that it leads to itself stops exploring. Some turns of training
episodes are therefore written by the policy as it was up to `refresh_every` steps ago. Which turns
is drawn by the seeds of their requests, so a run can be repeated. Evaluation never sees it.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from scalinginter.config.rollout import CrossPolicyConfig
from scalinginter.engine.base import Engine, GenerateRequest
from scalinginter.engine.local import LocalEngine
from scalinginter.model.load import Policy, frozen_copy
from scalinginter.seeds import derive
from scalinginter.types import Completion

_FILE = "older.pt"
_SEEDS = 1 << 63


class CrossPolicyEngine:
    """Answers a share of the requests by the older policy (implements `Generator`).

    The older policy's words are marked (`Completion.cross`), and left out of training where the
    recipe masks them.

    Args:
        engine: Of the policy that is trained.
        older: Its source is that policy's model, whose weights `refresh` brings to it.
        config: The recipe's `rollout.cross_policy`.
    """

    def __init__(self, engine: Engine, older: LocalEngine, config: CrossPolicyConfig) -> None:
        self._engine, self._older, self._config = engine, older, config
        self.max_context = min(engine.max_context, older.max_context)

    async def generate(self, request: GenerateRequest) -> Completion:
        """See `Engine.generate`."""
        if derive("cross policy", request.seed) >= self._config.share * _SEEDS:
            return await self._engine.generate(request)
        completion = await self._older.generate(request)
        return replace(completion, cross=True, trained=self._config.train == "correct")

    def release(self, session: str) -> None:
        """See `Engine.release`."""
        self._engine.release(session)
        self._older.release(session)

    async def refresh(self, step: int) -> None:
        """Make the older policy the present one where that is due before step `step` (from 0)."""
        if step % self._config.refresh_every == 0:
            await self._older.sync(self._engine.version)

    def save(self, folder: Path) -> None:
        """Write the older policy to a checkpoint."""
        weights = self._older.model.state_dict()
        torch.save({"version": self._older.version, "weights": weights}, folder / _FILE)

    def load(self, folder: Path) -> None:
        """Continue with the older policy of a checkpoint."""
        saved = torch.load(folder / _FILE, weights_only=True, map_location="cpu")
        self._older.model.load_state_dict(saved["weights"])
        self._older.set_version(saved["version"])

    async def aclose(self) -> None:
        """Close the older policy's engine; the other one is closed by who made it."""
        await self._older.aclose()


def make_cross_policy_engine(
    engine: Engine,
    policy: Policy,
    config: CrossPolicyConfig,
    *,
    max_batch_tokens: int,
    max_sessions: int,
    pad_id: int,
    pending: Callable[[], int] | None,
) -> CrossPolicyEngine:
    """Make the engine of training episodes.

    `pending`: environment calls that are still running, where batches must not depend on timing;
    the older policy then waits for a local engine's requests, too.
    """

    def busy() -> int:
        assert pending is not None
        return pending() + (engine.load if isinstance(engine, LocalEngine) else 0)

    older = LocalEngine(
        frozen_copy(policy.model),
        packed=policy.packed,
        max_context=engine.max_context,
        max_batch_tokens=max_batch_tokens,
        max_sessions=max_sessions,
        pad_id=pad_id,
        busy=None if pending is None else busy,
        source=policy.model,
    )
    return CrossPolicyEngine(engine, older, config)
