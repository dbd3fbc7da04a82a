# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""The rows of one optimizer step: what their tokens weigh, and how they were packed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor

from scalinginter.algo.loss import LossBatch, ValueBatch
from scalinginter.algo.registry import Algorithm
from scalinginter.config.algorithms import PolicyGradientConfig
from scalinginter.train.across import AcrossRanks
from scalinginter.train.batch import MicroBatch
from scalinginter.train.critic import SumOverRanks, ValueTargets
from scalinginter.train.logprobs import TokenScores
from scalinginter.train.off_policy import OldPolicy, score_old_policy
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
    total: float = 0.0  # weights of all tokens on all ranks, those not forwarded included
    sequences: Sequences | None = None  # where tokens are looked at together
    ratio_of_sequences: bool = False  # as `algorithm.ratio` says
    divided: bool = False  # on some rank, some sequence lies in several micro-batches
    log_ratios: list[Tensor] = field(default_factory=list)  # per micro-batch [N], if it is divided
    scored: OldPolicy | None = None  # where the learner has scored the old policy itself

    def score_old_policy(
        self, logprobs: list[Tensor], config: PolicyGradientConfig, across: AcrossRanks
    ) -> None:
        """Take the present log-probs [N] of every micro-batch as the old policy's."""
        drawn = [batch.behaviour_N for batch in self.batches]
        self.scored = score_old_policy(
            logprobs, drawn, self.weights, self.total, self.sequences, config, across
        )

    @property
    def masked(self) -> bool:
        """Whether the correction lets no token of any rank through."""
        return self.scored is not None and self.scored.masks_everything

    def old(self, index: int) -> Tensor:
        """Return the old policy's log-probs [N] of a micro-batch."""
        return (
            self.batches[index].behaviour_N if self.scored is None else self.scored.logprobs[index]
        )

    def correction(self, index: int) -> Tensor | None:
        """Return the weights [N] of a micro-batch's surrogates, where they are not all 1."""
        return self.scored.weights[index] if self.scored and self.scored.weights else None

    def loss_batch(self, index: int, scores: TokenScores, values: ValueBatch | None) -> LossBatch:
        """Return a micro-batch as the loss sees it. `scores`: those of the policy of now."""
        batch, weights_N = self.batches[index], self.weights[index]
        return LossBatch(
            logprobs=scores.logprobs,
            old=self.old(index),
            reference=self.references[index],
            entropy=scores.entropy,
            advantages=batch.advantages_N,
            weights=weights_N,
            mask=torch.ones_like(weights_N, dtype=torch.bool),
            values=values,
            correction=self.correction(index),
            sequence_log_ratio=self.sequence_log_ratio(index, scores.logprobs),
        )

    def measure(self, logprobs: Sequence[Tensor]) -> None:
        """Take in the present log-probs [N] of every micro-batch, before an optimizer step."""
        assert self.sequences is not None
        found = [logprobs_N - self.old(index) for index, logprobs_N in enumerate(logprobs)]
        self.log_ratios = self.sequences.means(found)

    def sequence_log_ratio(self, index: int, logprobs_N: Tensor) -> Tensor | None:
        """Return the mean log-ratio [N] of each token's sequence, where the loss needs it."""
        if self.sequences is None or not self.ratio_of_sequences:
            return None
        if self.divided:
            return self.log_ratios[index]
        return self.sequences.means_within(index, logprobs_N.detach() - self.old(index))


def split(
    samples: Sequence[TrainingSample], count: int, rng: np.random.Generator
) -> list[list[TrainingSample]]:
    """Divide the samples into `count` minibatches of whole episodes, of all ranks together."""
    if count == 1:
        return [list(samples)]
    own = sorted({sample.episode for sample in samples})
    episodes = rng.permutation(sorted(gather_object(own)))
    parts = [set(part.tolist()) for part in np.array_split(episodes, count)]
    return [[sample for sample in samples if sample.episode in part] for part in parts]


def looks_at_sequences(config: PolicyGradientConfig) -> bool:
    """Return whether the loss looks at the tokens of an episode, or of a turn, together."""
    return config.ratio == "sequence" or config.correction in ("sequence", "geometric_mask")


def forwarded_rows(samples: Sequence[TrainingSample], algorithm: Algorithm) -> list[bool]:
    """Return which rows have to be forwarded: those with a gradient.

    Where tokens are looked at together, all rows of an episode of which some row has one.
    """
    every = algorithm.uses_every_token
    used = [bool(every or s.advantages[s.mask].any()) for s in samples]
    if not looks_at_sequences(algorithm.config):
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
