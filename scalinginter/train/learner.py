# ruff: noqa: N806 (names end in the shape of the tensor)
"""The learner holds the gradient: samples in, one or more optimizer steps, metrics out."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from scalinginter.algo.loss import kl_estimate, weighted_sum
from scalinginter.algo.registry import Algorithm
from scalinginter.config.schema import TrainConfig
from scalinginter.model.divided import gathered, whole
from scalinginter.model.load import Policy
from scalinginter.train.across import AcrossRanks
from scalinginter.train.batch import MicroBatch, pack
from scalinginter.train.critic import Critic
from scalinginter.train.estimates import estimate_advantages
from scalinginter.train.logprobs import TokenScores, score
from scalinginter.train.minibatch import (
    Minibatch,
    forwarded_rows,
    idle_row,
    looks_at_sequences,
    packing_metrics,
    row_weights,
    split,
)
from scalinginter.train.off_policy import correction_metrics, recomputes
from scalinginter.train.optimizer import MasterWeights, make_optimizer, set_learning_rates
from scalinginter.train.reference import Reference
from scalinginter.train.sequences import Sequences
from scalinginter.train.sharding import Weights, load_optimizer
from scalinginter.train.tally import Tally, norm_metrics
from scalinginter.types import TrainingSample, Trajectory


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
        weights: How they lie among the processes; None: whole in each.
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
        weights: Weights | None = None,
    ) -> None:
        self.config, self.algorithm, self.accelerator = config, algorithm, accelerator
        self.total_steps, self.temperature, self.seed = total_steps, temperature, seed
        self.packed, self._across = policy.packed, AcrossRanks(accelerator)
        self._policy, self._weights = policy.model, weights or Weights(accelerator)
        self._own = self._weights.trained(policy.model)  # what is trained for the policy
        self._critic: Critic | None = None
        self._rates = [config.learning_rate]  # of the optimizer's groups: policy, critic
        if algorithm.critic is not None:
            self._critic = Critic(self._own, algorithm.critic, self.packed, accelerator.device)
            self._rates.append(algorithm.critic.critic.learning_rate or config.learning_rate)
        trained = self._weights.divide(self._own if self._critic is None else self._critic.module)
        self._reference: Reference | None = None
        if algorithm.needs_reference:
            frozen = partial(self._weights.frozen, policy.model)
            self._reference = Reference(self._own, algorithm.config.reference_every, frozen)
        self._master = MasterWeights(trained)
        optimizer = make_optimizer(self._groups(self._master.parameters), config)
        self._model, self._optimizer = self._weights.wrap(trained, optimizer)
        self._checkpointing = any(
            getattr(module, "gradient_checkpointing", False) for module in policy.model.modules()
        )
        self.updates = 0  # calls that took an optimizer step: the clock of the learning rate
        self.calls = 0  # of `update`: the counter of the minibatch shuffle
        self.forward_tokens = 0  # positions pushed through the model or the reference

    def _groups(self, parameters: Sequence[Tensor]) -> list[list[Tensor]]:
        """Divide trained parameters, in the module's order: the policy's, the critic's own."""
        if self._critic is None:
            return [list(parameters)]
        cut = len(parameters) - len(self._critic.module.critic_parameters())
        return [list(parameters[:cut]), list(parameters[cut:])]

    def estimate(
        self, samples: Sequence[TrainingSample], episodes: Sequence[Trajectory]
    ) -> tuple[list[TrainingSample], dict[str, float]]:
        """Let the critic, where there is one, say the advantages of a step's rows.

        `episodes` are those that `sample.episode` counts. Returns the rows and metrics.
        """
        if self._critic is None:
            return list(samples), {}
        estimates = estimate_advantages(
            self._critic,
            samples,
            episodes,
            max_tokens=self.config.micro_batch_tokens,
            sum_over_ranks=self._across.sum,
            most_over_ranks=self._across.most,
        )
        self.forward_tokens += estimates.forwarded
        return estimates.samples, estimates.metrics

    def update(self, samples: Sequence[TrainingSample]) -> dict[str, float]:
        """Take up to `num_epochs * num_minibatches` optimizer steps on the samples of one step.

        The old policy of the ratio is the one that sampled, or, where the learner scores it itself
        (`old_logprobs`), the policy at the start of this call, throughout. Minibatches are
        made of whole episodes, once per call, and visited in a new order each epoch. Rows whose
        tokens have no gradient are not forwarded, but do count in the loss's normaliser.

        Without any row that has a gradient the call changes nothing but its counter and returns
        `update/skipped` 1: no optimizer state moves and the learning rate does not advance.
        """
        self.calls += 1
        forwarded = self.forward_tokens
        rng = np.random.default_rng((self.seed, self.calls))
        minibatches, corrections = self._prepared(samples, rng)
        if not minibatches:
            (spent,) = self._across.sum([self.forward_tokens - forwarded])
            skipped = {"update/skipped": 1.0, "update/tokens": 0.0, "update/forward_tokens": spent}
            return corrections | skipped
        learning_rate = set_learning_rates(
            self._optimizer, self._rates, self.config, self.updates, self.total_steps
        )
        for minibatch in minibatches:
            minibatch.references = [self._reference_logprobs(b) for b in minibatch.batches]
        tally, norms, steps = Tally(self.accelerator), [], 0
        self._model.train(self._checkpointing)  # dropout would falsify the ratios
        for epoch in range(self.config.num_epochs):
            order = rng.permutation(len(minibatches)) if epoch else range(len(minibatches))
            for index in order:
                norm = self._step(minibatches[index], tally, measure_gap=not steps)
                steps += 1
                norms += [norm] if np.isfinite(norm).all() else []
        self._model.eval()
        self.updates += bool(norms)
        self._weights.publish(self._own, self._policy)
        batches = [batch for minibatch in minibatches for batch in minibatch.batches]
        (spent,) = self._across.sum([self.forward_tokens - forwarded])
        metrics = tally.metrics(steps)
        metrics |= self.algorithm.adapt(metrics) | corrections
        if self._reference is not None:
            metrics["kl/reference_moved"] = float(
                bool(norms) and self._reference.follow(self.updates)
            )
        return (
            metrics
            | packing_metrics(batches, self.packed, self._across.sum)
            | {
                **norm_metrics(norms, len(self._rates)),
                "update/skipped": 0.0,
                "update/nonfinite": float(steps - len(norms)),
                "update/optimizer_steps": float(len(norms)),
                "update/tokens": float(sum(m.num_tokens for m in minibatches)),
                "update/forward_tokens": spent,
                "update/learning_rate": learning_rate,
            }
        )

    def _prepared(
        self, samples: Sequence[TrainingSample], rng: np.random.Generator
    ) -> tuple[list[Minibatch], dict[str, float]]:
        """Return the minibatches that have a gradient, and metrics of their old policy."""
        config, parts = self.algorithm.config, split(samples, self.config.num_minibatches, rng)
        minibatches = [m for m in map(self._minibatch, parts) if m.num_tokens]
        recomputed = minibatches and recomputes(config, lambda: self._gap(minibatches[0]))
        for minibatch in minibatches if recomputed else ():
            minibatch.score_old_policy(self._logprobs(minibatch.batches), config, self._across)
        metrics = correction_metrics(config, [m.scored for m in minibatches])
        every = self.algorithm.uses_every_token
        return [m for m in minibatches if every or not m.masked], metrics

    def _minibatch(self, samples: list[TrainingSample]) -> Minibatch:
        """Pack the rows that have a gradient; weigh their tokens against all of them."""
        device, config = self.accelerator.device, self.algorithm.config
        usable = forwarded_rows(samples, self.algorithm)
        weights = torch.tensor(self._row_weights(samples), dtype=torch.float32)
        trained = torch.tensor([float(s.mask.sum()) for s in samples])
        all_weights = float(weights @ trained)
        kept = [sample for sample, used in zip(samples, usable, strict=True) if used]
        weights = weights[torch.tensor(usable, dtype=torch.bool)].to(device)
        batches = pack(kept, self.config.micro_batch_tokens, device)
        shares = [weights[batch.row_N] for batch in batches]
        tokens, total = self._across.sum([sum(map(len, shares)), all_weights])
        idle = int(self._across.most(len(batches))) - len(batches)
        sequences = None
        if looks_at_sequences(config):
            sequences = Sequences(kept, batches, config.sequence)
        divided = sequences is not None and self._across.most(sequences.divided) > 0
        values = self._critic and self._critic.lay_out(
            kept,
            batches,
            idle=idle,
            ranks=self.accelerator.num_processes,
            sum_over_ranks=self._across.sum,
        )
        for batch in [b for _ in range(idle) for b in pack([idle_row()], 1, device)]:
            batches.append(batch)
            shares.append(torch.zeros(len(batch.row_N), device=device))
        return Minibatch(
            batches,
            shares,
            int(tokens),
            values=values or [],
            num_idle=idle,
            total=total,
            sequences=sequences,
            ratio_of_sequences=config.ratio == "sequence",
            divided=divided,
        )

    def _row_weights(self, samples: list[TrainingSample]) -> list[float]:
        ranks = self.accelerator.num_processes
        return row_weights(samples, self.algorithm, ranks, self._across.sum)

    def _step(self, minibatch: Minibatch, tally: Tally, *, measure_gap: bool) -> list[float]:
        """Take one optimizer step; return the gradient norms of policy and critic.

        The step is refused if one of them is not finite.
        """
        self._model.zero_grad()
        if minibatch.divided and minibatch.ratio_of_sequences:
            minibatch.measure(self._logprobs(minibatch.batches))
        last = len(minibatch.batches) - 1
        first_idle = len(minibatch.batches) - minibatch.num_idle
        for index in range(len(minibatch.batches)):
            sync = nullcontext() if index == last else self.accelerator.no_sync(self._model)
            with sync:
                self._backward(minibatch, index, tally, measure_gap, idle=index >= first_idle)
        norms = self._clip()
        if not np.isfinite(norms).all():
            return norms
        self._master.pull()
        self._optimizer.step()
        self._master.push()
        return norms

    def _clip(self) -> list[float]:
        """Clip the gradients of policy and critic, each to the norm; return what they were."""
        policy, *critic = self._groups([p for p in self._model.parameters() if p.requires_grad])
        if self._critic is not None and self._critic.warms_up(self.updates):
            for parameter in policy:
                parameter.grad = None
        clip = self.config.max_grad_norm
        return [
            float(whole(self.accelerator.clip_grad_norm_(group, clip)))  # type: ignore[arg-type]
            for group in (policy, *critic)
        ]

    def _score(self, batch: MicroBatch) -> TokenScores:
        self.forward_tokens += batch.num_forwarded(self.packed)
        return score(
            self._model,
            batch,
            packed=self.packed,
            temperature=self.temperature,
            entropy_gradient=self.algorithm.needs_entropy_gradient,
        )

    @torch.no_grad()
    def _logprobs(self, batches: Sequence[MicroBatch]) -> list[Tensor]:
        """Return the present policy's log-probs [N] of every micro-batch."""
        found = [self._score(batch).logprobs for batch in batches]
        if self._critic is not None:
            self._critic.module.take()  # values that nobody has asked for
        return found

    def _gap(self, minibatch: Minibatch) -> float:
        """Return the largest gap to the engine's log-probs in the ranks' first micro-batches."""
        batch = minibatch.batches[0]
        (logprobs_N,) = self._logprobs([batch])
        present_N = minibatch.weights[0] > 0  # not on a rank without data
        gap_N = torch.where(present_N, logprobs_N - batch.behaviour_N, 0.0).abs()
        return self._across.most(float(gap_N.max()))

    def _backward(
        self, minibatch: Minibatch, index: int, tally: Tally, measure_gap: bool, *, idle: bool
    ) -> None:
        batch, weights_N = minibatch.batches[index], minibatch.weights[index]
        scores, critic = self._score(batch), self._critic
        values = critic.value_batch(batch, minibatch.values[index]) if critic else None
        terms = self.algorithm.loss(minibatch.loss_batch(index, scores, values))
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

    def state_dict(self) -> dict[str, Any]:
        """Return all but the policy's weights, for an exact resume. Tensors and plain values.

        All ranks call it; where weights are divided, rank 0 alone has all of the tensors.
        """
        state = {
            "optimizer": self._optimizer.state_dict(),
            "master": self._master.state(),
            "reference": None if self._reference is None else self._reference.state_dict(),
            "critic": self._critic.module.critic_state() if self._critic else None,
            "algorithm": self.algorithm.state_dict(),
            "updates": self.updates,
            "calls": self.calls,
            "forward_tokens": self.forward_tokens,
        }
        return gathered(state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the policy's weights are restored by the caller."""
        self._weights.take(self._policy, self._own)
        load_optimizer(self._optimizer, state["optimizer"])
        self._master.load(state["master"])
        if self._reference is not None:
            self._reference.load_state_dict(state["reference"])
        self.algorithm.load_state_dict(state["algorithm"])
        if self._critic is not None:
            self._critic.module.load_critic_state(state["critic"])
        self.updates, self.calls = state["updates"], state["calls"]
        self.forward_tokens = state["forward_tokens"]
