# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""The learner holds the gradient: samples in, one or more optimizer steps, metrics out."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from scalinginter.algo.loss import LossBatch, kl_estimate, weighted_sum
from scalinginter.algo.registry import Algorithm
from scalinginter.config.schema import TrainConfig
from scalinginter.errors import RunFailedError
from scalinginter.model.load import Policy
from scalinginter.train.batch import MicroBatch, pack
from scalinginter.train.logprobs import score
from scalinginter.train.optimizer import MasterWeights, learning_rate_scale
from scalinginter.train.reference import Reference
from scalinginter.train.tally import Tally
from scalinginter.types import TrainingSample


@dataclass(slots=True)
class _Minibatch:
    """The samples of one optimizer step, packed."""

    batches: list[MicroBatch]
    weights: list[Tensor]  # per micro-batch [N]: each token's share in the loss
    num_tokens: int  # trained tokens that are forwarded, on all ranks
    references: list[Tensor | None] = field(default_factory=list)  # per micro-batch [N]
    num_idle: int = 0  # the last ones: of other ranks' number, with weights of 0


class Learner:
    """Updates the policy from training samples, through Accelerate.

    Args:
        policy: What is trained; its model is changed in place.
        config: The recipe's `train` block.
        algorithm: From `make_algorithm`.
        accelerator: With `gradient_accumulation_steps=1`: micro-batches are added up here.
        total_steps: Steps of the whole run, where known: the end of the learning rate's decay.
        temperature: At which the rollouts are sampled.
        seed: Of the division into minibatches.
    """

    def __init__(
        self,
        policy: Policy,
        config: TrainConfig,
        algorithm: Algorithm,
        accelerator: Accelerator,
        total_steps: int | None = None,
        *,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.config, self.algorithm, self.accelerator = config, algorithm, accelerator
        self.total_steps, self.temperature, self.seed = total_steps, temperature, seed
        self.packed = policy.packed
        self._reference = Reference(policy.model) if algorithm.needs_reference else None
        self._master = MasterWeights(policy.model)
        optimizer = torch.optim.AdamW(
            self._master.parameters,
            lr=config.learning_rate,
            betas=(config.betas[0], config.betas[1]),
            weight_decay=config.weight_decay,
        )
        with warnings.catch_warnings():  # of torch about an argument that accelerate passes on
            warnings.simplefilter("ignore", FutureWarning)
            self._model, self._optimizer = accelerator.prepare(policy.model, optimizer)
        self._checkpointing = any(
            getattr(module, "gradient_checkpointing", False) for module in policy.model.modules()
        )
        self.updates = 0  # calls that took an optimizer step: the clock of the learning rate
        self.calls = 0  # of `update`: the counter of the minibatch shuffle
        self.forward_tokens = 0  # positions pushed through the model or the reference

    def update(self, samples: Sequence[TrainingSample]) -> dict[str, float]:
        """Take up to `num_epochs * num_minibatches` optimizer steps on the samples of one step.

        The policy that sampled stays the old policy of the ratio throughout. Minibatches are
        made of whole episodes, once per call, and visited in a new order each epoch. Rows whose
        tokens have no gradient are not forwarded, but do count in the loss's normaliser.

        Without any row that has a gradient the call changes nothing but its counter and returns
        `update/skipped` 1: no optimizer state moves and the learning rate does not advance.
        """
        self.calls += 1
        forwarded = self.forward_tokens
        rng = np.random.default_rng((self.seed, self.calls))
        minibatches = [self._minibatch(part) for part in self._split(samples, rng)]
        minibatches = [minibatch for minibatch in minibatches if minibatch.num_tokens]
        if not minibatches:
            return {"update/skipped": 1.0, "update/tokens": 0.0, "update/forward_tokens": 0.0}
        learning_rate = self._set_learning_rate()
        for minibatch in minibatches:
            minibatch.references = [self._reference_logprobs(b) for b in minibatch.batches]
        tally, norms, steps = Tally(self.accelerator), [], 0
        self._model.train(self._checkpointing)  # dropout would falsify the ratios
        for epoch in range(self.config.num_epochs):
            order = rng.permutation(len(minibatches)) if epoch else range(len(minibatches))
            for index in order:
                norm = self._step(minibatches[index], tally, measure_gap=not steps)
                steps += 1
                norms += [norm] if np.isfinite(norm) else []
        self._model.eval()
        self.updates += bool(norms)
        batches = [batch for minibatch in minibatches for batch in minibatch.batches]
        (forwarded,) = self._sum_over_ranks([self.forward_tokens - forwarded])
        return (
            tally.metrics(steps)
            | packing_metrics(batches, self.packed, self._sum_over_ranks)
            | {
                "loss/grad_norm": float(np.mean(norms)) if norms else 0.0,
                "update/skipped": 0.0,
                "update/nonfinite": float(steps - len(norms)),
                "update/optimizer_steps": float(len(norms)),
                "update/tokens": float(sum(m.num_tokens for m in minibatches)),
                "update/forward_tokens": forwarded,
                "update/learning_rate": learning_rate,
            }
        )

    def _split(
        self, samples: Sequence[TrainingSample], rng: np.random.Generator
    ) -> list[list[TrainingSample]]:
        """Divide the samples into minibatches of whole episodes, of all ranks together."""
        count = self.config.num_minibatches
        if count == 1:
            return [list(samples)]
        own = sorted({sample.episode for sample in samples})
        episodes = rng.permutation(sorted(gather_object(own)))
        parts = [set(part.tolist()) for part in np.array_split(episodes, count)]
        return [[sample for sample in samples if sample.episode in part] for part in parts]

    def _minibatch(self, samples: list[TrainingSample]) -> _Minibatch:
        """Pack the rows that have a gradient; weigh their tokens against all of them."""
        device, every = self.accelerator.device, self.algorithm.uses_every_token
        usable = [bool(every or s.advantages[s.mask].any()) for s in samples]
        weights = torch.tensor(self._row_weights(samples), dtype=torch.float32)
        kept = [sample for sample, used in zip(samples, usable, strict=True) if used]
        weights = weights[torch.tensor(usable, dtype=torch.bool)].to(device)
        batches = pack(kept, self.config.micro_batch_tokens, device)
        shares = [weights[batch.row_N] for batch in batches]
        (tokens,) = self._sum_over_ranks([sum(map(len, shares))])
        idle = self._most_over_ranks(len(batches)) - len(batches)
        for batch in [b for _ in range(idle) for b in pack([_idle_row()], 1, device)]:
            batches.append(batch)
            shares.append(torch.zeros(len(batch.row_N), device=device))
        return _Minibatch(batches, shares, int(tokens), num_idle=idle)

    def _row_weights(self, samples: list[TrainingSample]) -> list[float]:
        """Return per row the weight of each of its tokens, so that weights sum to 1.

        token: 1 / trained tokens; sequence: 1 / (trained tokens of its episode * episodes);
        constant: 1 / (a constant * episodes), which sums to 1 where every episode has as many
        tokens. All over all ranks, times the number of ranks because DDP averages the gradients.
        """
        tokens: dict[int, int] = {}
        for sample in samples:
            tokens[sample.episode] = tokens.get(sample.episode, 0) + int(sample.mask.sum())
        trained = [count for count in tokens.values() if count]
        num_tokens, num_episodes = self._sum_over_ranks([sum(trained), len(trained)])
        ranks = self.accelerator.num_processes
        if self.algorithm.loss_aggregation == "token":
            return [ranks / max(num_tokens, 1.0)] * len(samples)
        if self.algorithm.loss_aggregation == "constant":
            constant = self.algorithm.constant_tokens * max(num_episodes, 1.0)
            return [ranks / constant] * len(samples)
        return [ranks / max(tokens[sample.episode] * num_episodes, 1.0) for sample in samples]

    def _sum_over_ranks(self, values: list[int]) -> list[float]:
        totals = torch.tensor(values, dtype=torch.float64, device=self.accelerator.device)
        return self.accelerator.reduce(totals, "sum").tolist()

    def _most_over_ranks(self, value: int) -> int:
        if self.accelerator.num_processes == 1:
            return value
        own = torch.tensor([value], device=self.accelerator.device)
        return int(self.accelerator.gather(own).max())  # type: ignore[union-attr]

    def _step(self, minibatch: _Minibatch, tally: Tally, *, measure_gap: bool) -> float:
        """Take one optimizer step; return the gradient norm, not finite if it was refused."""
        self._model.zero_grad()
        last = len(minibatch.batches) - 1
        first_idle = len(minibatch.batches) - minibatch.num_idle
        for index, batch in enumerate(minibatch.batches):
            sync = nullcontext() if index == last else self.accelerator.no_sync(self._model)
            weights_N, reference_N = minibatch.weights[index], minibatch.references[index]
            with sync:
                self._backward(
                    batch, weights_N, reference_N, tally, measure_gap, idle=index >= first_idle
                )
        clip = self.config.max_grad_norm
        norm = float(self.accelerator.clip_grad_norm_(self._model.parameters(), clip))  # type: ignore[arg-type]
        if not np.isfinite(norm):
            return norm
        self._master.pull()
        self._optimizer.step()
        self._master.push()
        return norm

    def _backward(
        self,
        batch: MicroBatch,
        weights_N: Tensor,
        reference_N: Tensor | None,
        tally: Tally,
        measure_gap: bool,
        *,
        idle: bool,
    ) -> None:
        scores = score(
            self._model,
            batch,
            packed=self.packed,
            temperature=self.temperature,
            entropy_gradient=self.algorithm.needs_entropy_gradient,
        )
        self.forward_tokens += batch.num_forwarded(self.packed)
        terms = self.algorithm.loss(
            LossBatch(
                logprobs=scores.logprobs,
                behaviour=batch.behaviour_N,
                reference=reference_N,
                entropy=scores.entropy,
                advantages=batch.advantages_N,
                weights=weights_N,
                mask=torch.ones_like(weights_N, dtype=torch.bool),
            )
        )
        self.accelerator.backward(terms.loss)
        with torch.no_grad():  # from the policy that sampled, by tokens that it drew
            every_N = torch.ones_like(weights_N, dtype=torch.bool)
            kl_N = kl_estimate(batch.behaviour_N, scores.logprobs, every_N, "k3")
        terms.averages["update/kl"] = weighted_sum(kl_N, weights_N, every_N)
        tally.add(terms, weights_N, idle=idle)
        if measure_gap:
            gap = (scores.logprobs.detach() - batch.behaviour_N).abs().max()
            tally.add_maxima({"update/logprob_gap_max": gap}, idle=idle)

    def _reference_logprobs(self, batch: MicroBatch) -> Tensor | None:
        if self._reference is None:
            return None
        self.forward_tokens += batch.num_forwarded(self.packed)
        return self._reference.logprobs(batch, packed=self.packed, temperature=self.temperature)

    def _set_learning_rate(self) -> float:
        scale = learning_rate_scale(
            self.updates,
            warmup_steps=self.config.warmup_steps,
            decay=self.config.decay,
            total_steps=self.total_steps,
        )
        for group in self._optimizer.param_groups:
            group["lr"] = self.config.learning_rate * scale
        return self.config.learning_rate * scale

    def state_dict(self) -> dict[str, Any]:
        """Return all but the policy's weights, for an exact resume. Tensors and plain values."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "master": self._master.state(),
            "reference": None if self._reference is None else self._reference.state_dict(),
            "updates": self.updates,
            "calls": self.calls,
            "forward_tokens": self.forward_tokens,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the policy's weights are restored by the caller."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._master.load(state["master"])
        if self._reference is not None:
            self._reference.load_state_dict(state["reference"])
        self.updates, self.calls = state["updates"], state["calls"]
        self.forward_tokens = state["forward_tokens"]


def packing_metrics(
    batches: Sequence[MicroBatch],
    packed: bool,
    sum_over_ranks: Callable[[list[int]], list[float]] = lambda counts: [float(n) for n in counts],
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


def blown_up(model: torch.nn.Module) -> list[str]:
    """Return the names of the parameters that are NaN or infinite somewhere."""
    return [name for name, value in model.named_parameters() if not value.isfinite().all()]


def refuse_blown_up(model: torch.nn.Module, what: str, setting: str) -> None:
    """Raise `RunFailedError` if a parameter is NaN or infinite after `what`."""
    names = blown_up(model)
    if names:
        raise RunFailedError(
            f"{what} left weights that are not finite ({len(names)} tensors, {names[0]} first); "
            f"they are not saved. Start a new run with a lower {setting}"
        )


def fingerprint(model: torch.nn.Module) -> float:
    """Return a number that differs between any two ranks whose weights have drifted apart."""
    return sum(float(p.detach().double().abs().sum()) for p in model.parameters())


def _idle_row() -> TrainingSample:
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
