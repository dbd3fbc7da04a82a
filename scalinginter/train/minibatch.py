# ruff: noqa: N803 (names end in the shape of the tensor)
"""The rows of one optimizer step: what their tokens weigh, and how they were packed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from scalinginter.algo.registry import Algorithm
from scalinginter.train.batch import MicroBatch
from scalinginter.train.critic import SumOverRanks, ValueTargets
from scalinginter.train.sequences import Sequences
from scalinginter.types import TrainingSample


@dataclass(slots=True)
class Minibatch:
    """The samples of one optimizer step, packed."""

    batches: list[MicroBatch]
    weights: list[Tensor]  # per micro-batch [N]: each token's share in the loss
    num_tokens: int  # trained tokens that are forwarded, on all ranks
    references: list[Tensor | None] = field(default_factory=list)  # per micro-batch [N]
    num_idle: int = 0  # the last ones: of other ranks' number, with weights of 0
    values: list[ValueTargets] = field(default_factory=list)  # per micro-batch, with a critic
    sequences: Sequences | None = None  # where the ratio is a sequence's
    divided: bool = False  # on some rank, some sequence lies in several micro-batches
    log_ratios: list[Tensor] = field(default_factory=list)  # per micro-batch [N], if it is divided

    def old(self, index: int) -> Tensor:
        """Return the old policy's log-probs [N] of a micro-batch."""
        return self.batches[index].behaviour_N

    def measure(self, logprobs: Sequence[Tensor]) -> None:
        """Take in the present log-probs [N] of every micro-batch, before an optimizer step."""
        assert self.sequences is not None
        found = [logprobs_N - self.old(index) for index, logprobs_N in enumerate(logprobs)]
        self.log_ratios = self.sequences.means(found)

    def sequence_log_ratio(self, index: int, logprobs_N: Tensor) -> Tensor | None:
        """Return the mean log-ratio [N] of each token's sequence, where the loss needs it."""
        if self.divided:
            return self.log_ratios[index]
        if self.sequences is None:
            return None
        return self.sequences.means_within(index, logprobs_N.detach() - self.old(index))


def forwarded_rows(samples: Sequence[TrainingSample], algorithm: Algorithm) -> list[bool]:
    """Return which rows have to be forwarded: those with a gradient.

    A ratio that is a sequence's needs all tokens of an episode of which some row has one.
    """
    every = algorithm.uses_every_token
    used = [bool(every or s.advantages[s.mask].any()) for s in samples]
    if algorithm.config.ratio == "token":
        return used
    episodes = {s.episode for s, needed in zip(samples, used, strict=True) if needed}
    return [s.episode in episodes for s in samples]


def row_weights(
    samples: Sequence[TrainingSample],
    algorithm: Algorithm,
    ranks: int,
    sum_over_ranks: SumOverRanks,
) -> list[float]:
    """Return per row the weight of each of its tokens, so that weights sum to 1.

    token: 1 / trained tokens; sequence: 1 / (trained tokens of its episode * episodes);
    constant: 1 / (a constant * episodes), which sums to 1 where every episode has as many
    tokens. All over all ranks, times the number of ranks because DDP averages the gradients.
    """
    tokens: dict[int, int] = {}
    for sample in samples:
        tokens[sample.episode] = tokens.get(sample.episode, 0) + int(sample.mask.sum())
    trained = [count for count in tokens.values() if count]
    num_tokens, num_episodes = sum_over_ranks([sum(trained), len(trained)])
    config = algorithm.config
    if config.loss_aggregation == "token":
        return [ranks / max(num_tokens, 1.0)] * len(samples)
    if config.loss_aggregation == "constant":
        constant = config.constant_tokens * max(num_episodes, 1.0)
        return [ranks / constant] * len(samples)
    return [ranks / max(tokens[sample.episode] * num_episodes, 1.0) for sample in samples]


def packing_metrics(
    batches: Sequence[MicroBatch],
    packed: bool,
    sum_over_ranks: SumOverRanks = list,
) -> dict[str, float]:
    """Return what the update computes beyond what it needs, after the first pass over batches.

    padding_share: of the places that attention was computed for, those that held nothing.
    forwarded_over_unique: ids pushed through the model, over the different (context, id) pairs
    among the rows of an optimizer step: 1 if no common prefix is computed twice.
    """
    slots, padding, forwarded, unique = sum_over_ranks(
        [
            sum(batch.layout.num_slots for batch in batches),
            sum(batch.layout.num_padding for batch in batches),
            sum(batch.num_forwarded(packed) for batch in batches),
            sum(batch.num_new for batch in batches),
        ]
    )
    return {
        "update/padding_share": padding / max(slots, 1),
        "update/forwarded_over_unique": forwarded / max(unique, 1),
    }


def idle_row() -> TrainingSample:
    """The shortest row: a rank with fewer micro-batches than another takes part with it."""
    return TrainingSample(
        ids=np.zeros(2, dtype=np.int64),
        mask=np.array([False, True]),
        logprobs=np.zeros(2, dtype=np.float32),
        advantages=np.zeros(2, dtype=np.float32),
        turn_index=np.zeros(2, dtype=np.int32),
        allowed=(None, None),
        group_id="idle",
        episode=-1,
    )
