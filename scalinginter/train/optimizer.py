"""What surrounds AdamW: fp32 master weights and the learning-rate schedule."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from scalinginter.config.schema import TrainConfig
from scalinginter.model.divided import put


class MasterWeights:
    """fp32 copies of weights that are stored in fewer bits; fp32 weights are used as they are.

    bf16 keeps 8 bits: at a learning rate of 1e-6 nearly every update of a bf16 weight rounds to
    nothing. The optimizer works on `parameters`; `pull` hands it the gradients and `push` rounds
    the result back into the model.
    """

    def __init__(self, model: nn.Module) -> None:
        trained = [p for p in model.parameters() if p.requires_grad]
        self.parameters: list[Tensor] = [
            p if p.dtype == torch.float32 else p.detach().float().requires_grad_() for p in trained
        ]
        pairs = zip(trained, self.parameters, strict=True)
        self._copies = [(p, master) for p, master in pairs if p is not master]

    def pull(self) -> None:
        """Move the model's gradients to the copies."""
        for parameter, master in self._copies:
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None

    @torch.no_grad()
    def push(self) -> None:
        """Round the copies back into the model."""
        for parameter, master in self._copies:
            parameter.copy_(master)

    def state(self) -> list[Tensor]:
        """Return the copies, for a checkpoint."""
        return [master.detach() for _, master in self._copies]

    def load(self, state: list[Tensor]) -> None:
        """Restore what `state` returned."""
        for (_, master), saved in zip(self._copies, state, strict=True):
            put(master, saved)


def make_optimizer(
    groups: Sequence[Sequence[Tensor]], config: TrainConfig
) -> torch.optim.Optimizer:
    """Return AdamW over groups of parameters, each with a learning rate of its own."""
    return torch.optim.AdamW(
        [{"params": list(group)} for group in groups],
        lr=config.learning_rate,
        betas=(config.betas[0], config.betas[1]),
        weight_decay=config.weight_decay,
    )


def learning_rate_scale(
    update: int,
    *,
    warmup_steps: int,
    decay: Literal["constant", "linear", "cosine"],
    total_steps: int | None,
) -> float:
    """Return the factor on the learning rate of update number `update` (from 0), in [0, 1].

    Rises by equal steps to 1 at the last warm-up update, then decays to 0 at `total_steps`.

    Raises:
        ValueError: A decay without `total_steps`.
    """
    if update < warmup_steps:
        return (update + 1) / warmup_steps
    if decay == "constant":
        return 1.0
    if total_steps is None:
        raise ValueError(f"decay {decay!r} needs the number of steps of the run")
    progress = min(1.0, (update - warmup_steps) / max(1, total_steps - warmup_steps))
    return 1.0 - progress if decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))


def set_learning_rates(
    optimizer: torch.optim.Optimizer,
    rates: Sequence[float],
    config: TrainConfig,
    update: int,
    total_steps: int | None,
) -> float:
    """Set the rates of the optimizer's groups for update number `update`; return the policy's."""
    scale = learning_rate_scale(
        update,
        warmup_steps=config.warmup_steps,
        decay=config.decay,
        total_steps=total_steps,
    )
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * scale
    return rates[0] * scale
