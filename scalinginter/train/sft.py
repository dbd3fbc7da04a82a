"""Cold start: cross-entropy on expert demonstrations, before any reinforcement learning."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from accelerate import Accelerator

from scalinginter.config.schema import SFTConfig
from scalinginter.model.divided import whole
from scalinginter.model.load import Policy
from scalinginter.train.batch import MicroBatch, pack
from scalinginter.train.logprobs import score
from scalinginter.train.optimizer import MasterWeights
from scalinginter.types import TrainingSample


def cold_start(
    policy: Policy,
    demonstrations: Sequence[TrainingSample],
    config: SFTConfig,
    *,
    accelerator: Accelerator,
    micro_batch_tokens: int,
    seed: int,
    max_grad_norm: float = 1.0,
    temperature: float = 1.0,
    report: Callable[[int, dict[str, float]], None] = lambda step, metrics: None,
) -> int:
    """Raise the log-probs of the demonstrations' trained tokens; return the tokens forwarded.

    Tokens with a set of allowed ids are trained as the policy draws them, by the softmax over that
    set. Behaviour log-probs and advantages of the demonstrations are not read. The optimizer is
    one of its own and ends with the call. Every rank does the same work in the same order, so that
    their weights stay equal without any exchange.

    Args:
        policy: Its model is changed in place.
        demonstrations: Rows of expert episodes; rows of one episode stay together.
        config: The recipe's `sft` block.
        accelerator: Gives the device and the precision.
        micro_batch_tokens: Tokens of one forward and backward pass.
        seed: Of the order of the demonstrations.
        max_grad_norm: Gradients are clipped to this norm.
        temperature: At which the policy will be sampled.
        report: Called after each optimizer step with its number, from 0, and its metrics.
    """
    master = MasterWeights(policy.model)
    optimizer = torch.optim.AdamW(master.parameters, lr=config.learning_rate, weight_decay=0.0)
    forwarded, step = 0, 0
    for epoch in range(config.num_epochs):
        for rows in _batches(demonstrations, config.batch_size, seed, epoch):
            batches = pack(rows, micro_batch_tokens, accelerator.device)
            if not batches:
                continue
            metrics = _accumulate(policy, batches, accelerator, temperature)
            norm = whole(torch.nn.utils.clip_grad_norm_(policy.model.parameters(), max_grad_norm))
            master.pull()
            optimizer.step()
            master.push()
            policy.model.zero_grad()
            forwarded += sum(batch.num_forwarded(policy.packed) for batch in batches)
            report(step, metrics | {"loss/grad_norm": float(norm), "sft/epoch": float(epoch)})
            step += 1
    return forwarded


def _batches(
    demonstrations: Sequence[TrainingSample], batch_size: int, seed: int, epoch: int
) -> list[list[TrainingSample]]:
    """Shuffle the episodes by (seed, epoch) and cut them into batches."""
    rows: dict[int, list[TrainingSample]] = {}
    for sample in demonstrations:
        rows.setdefault(sample.episode, []).append(sample)
    episodes = np.random.default_rng((seed, epoch)).permutation(list(rows))
    return [
        [row for episode in episodes[start : start + batch_size] for row in rows[int(episode)]]
        for start in range(0, len(episodes), batch_size)
    ]


def _accumulate(
    policy: Policy, batches: list[MicroBatch], accelerator: Accelerator, temperature: float
) -> dict[str, float]:
    """Add up the gradients of the mean cross-entropy per trained token."""
    num_tokens = sum(len(batch.targets_N) for batch in batches)
    loss, entropy = 0.0, 0.0
    for batch in batches:
        with accelerator.autocast():
            scores = score(policy.model, batch, packed=policy.packed, temperature=temperature)
        part = -scores.logprobs.sum() / num_tokens
        part.backward()
        loss += float(part.detach())
        entropy += float(scores.entropy.detach().sum()) / num_tokens
    return {"loss/sft": loss, "loss/entropy": entropy, "update/tokens": float(num_tokens)}
