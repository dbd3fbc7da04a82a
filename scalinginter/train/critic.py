# ruff: noqa: N806 (names end in the shape of the tensor)
"""The critic, as the learner sees it: values of micro-batches, and what its loss needs of them.

A value is read where the logits of a trained token are read, at the position before it: it is that
of the state in which the token is drawn.
Shape suffixes: `_T` ids of a row, `_N` trained tokens of a micro-batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from scalinginter.algo.loss import ValueBatch
from scalinginter.config.algorithms import PPOConfig
from scalinginter.model.actor_critic import ActorCritic
from scalinginter.train.batch import MicroBatch
from scalinginter.types import TrainingSample

SumOverRanks = Callable[[Sequence[float]], list[float]]


@dataclass(frozen=True, slots=True)
class ValueTargets:
    """Of one micro-batch. Tensors of shape [N]."""

    old: Tensor  # values before the first update of the step
    targets: Tensor  # NaN where no value is trained
    weights: Tensor  # share of each value in the optimizer step's loss


class Critic:
    """Says the values of states.

    Args:
        policy: The model that is trained.
        config: The recipe's `algorithm` block.
        packed: Whether the model takes packed rows.
        device: That it computes on; None: where it is.
    """

    def __init__(
        self,
        policy: PreTrainedModel,
        config: PPOConfig,
        packed: bool,
        device: torch.device | None = None,
    ) -> None:
        self.config, self.packed, self.device = config, packed, device or policy.device
        self.module = ActorCritic(policy, own_model=config.critic.kind == "model")

    def warms_up(self, updates: int) -> bool:
        """Whether update number `updates` (from 0) leaves the policy as it is."""
        return updates < self.config.critic.warmup_steps

    @torch.no_grad()
    def values(self, batch: MicroBatch) -> Tensor:
        """Return the values [N] of a micro-batch, without the policy's logits."""
        common: dict[str, Any] = {"values_only": True, "use_cache": False}
        if self.packed:
            self.module(
                input_ids=batch.ids_T.unsqueeze(0),
                position_ids=batch.positions_T.unsqueeze(0),
                attention_layout=batch.layout,
                **common,
            )
        else:
            for at, _ in _scored_rows(batch):
                index = torch.from_numpy(batch.layout.tree.index(at)).to(batch.ids_T.device)
                self.module(input_ids=batch.ids_T[index][None], **common)
        return self._of_tokens(batch)

    def value_batch(self, batch: MicroBatch, targets: ValueTargets) -> ValueBatch:
        """Return what the loss needs, with the values of the forward pass that was just made."""
        values_N = self._of_tokens(batch)
        return ValueBatch(values_N, targets.old, targets.targets, targets.weights)

    def lay_out(
        self,
        samples: Sequence[TrainingSample],
        batches: Sequence[MicroBatch],
        *,
        idle: int,
        ranks: int,
        sum_over_ranks: SumOverRanks,
    ) -> list[ValueTargets]:
        """Lay old values and targets out as micro-batches are; every target weighs alike.

        Weights sum to the number of ranks over all of them, since DDP averages the gradients. For
        `idle` more micro-batches, of one token each, there is a value that is not trained.
        """
        old = [s.values for s in samples if s.values is not None]
        targets = [s.targets for s in samples if s.targets is not None]
        (count,) = sum_over_ranks([float(sum(np.isfinite(t).sum() for t in targets))])
        laid = []
        for batch in batches:
            targets_N = gather(batch, targets)
            weights_N = torch.where(targets_N.isfinite(), ranks / max(count, 1.0), 0.0)
            laid.append(ValueTargets(gather(batch, old), targets_N, weights_N))
        nothing = torch.zeros(1, device=self.device)
        return laid + [ValueTargets(nothing, torch.full_like(nothing, torch.nan), nothing)] * idle

    def _of_tokens(self, batch: MicroBatch) -> Tensor:
        seen = self.module.take()
        if self.packed:
            (values,) = seen
            return values[batch.logit_index_N]
        before_D = batch.positions_T[batch.context_D]
        draws = [own for _, own in _scored_rows(batch)]
        pieces = [values[before_D[own]] for values, own in zip(seen, draws, strict=True)]
        return torch.cat(pieces)[torch.cat(draws).argsort()][batch.draw_N]


def _scored_rows(batch: MicroBatch) -> list[tuple[int, Tensor]]:
    """Return places in `rows` and draws of the rows that run where rows run one by one."""
    owned = [(batch.row_D == row).nonzero().squeeze(1) for row in batch.rows]
    return [(at, own) for at, own in enumerate(owned) if len(own)]


def positions_of(batch: MicroBatch) -> list[int]:
    """Return for each trained token of a micro-batch its position in its row."""
    return (batch.positions_T[batch.logit_index_N] + 1).tolist()


def gather(batch: MicroBatch, arrays: Sequence[NDArray[np.float32]]) -> Tensor:
    """Return the entries [N] of the micro-batch's trained tokens; `arrays`: one [T] per row."""
    at = zip(batch.row_N.tolist(), positions_of(batch), strict=True)
    entries = np.array([arrays[row][position] for row, position in at], dtype=np.float32)
    return torch.from_numpy(entries).to(batch.row_N.device)
