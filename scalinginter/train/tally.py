# ruff: noqa: N803 (names end in the shape of the tensor)
"""Adds up the metrics of the micro-batches of one update, on all ranks."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from scalinginter.algo.loss import LossTerms


class Tally:
    """Loss terms add up within an optimizer step; averages are over the weight of all tokens.

    Weights carry the number of ranks as a factor (DDP averages gradients), so that the mean over
    ranks of a weighted sum is the sum over all tokens.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._sums: dict[str, Tensor] = {}
        self._averages: dict[str, Tensor] = {}
        self._maxima: dict[str, Tensor] = {}
        self._weight = torch.zeros((), device=accelerator.device)

    def add(self, terms: LossTerms, weights_N: Tensor, *, idle: bool = False) -> None:
        """Take in one micro-batch; an idle one (all weights 0) says nothing but the names."""
        for name, value in terms.sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        for name, value in terms.averages.items():
            self._averages[name] = self._averages.get(name, 0.0) + value
        self.add_maxima(terms.maxima, idle=idle)
        self._weight = self._weight + weights_N.sum()

    def add_maxima(self, maxima: Mapping[str, Tensor], *, idle: bool = False) -> None:
        """Take in values of which the largest counts."""
        for name, value in maxima.items():
            value = torch.full_like(value, -torch.inf) if idle else value
            self._maxima[name] = torch.maximum(self._maxima.get(name, value), value)

    def metrics(self, num_steps: int) -> dict[str, float]:
        """Return the metrics of `num_steps` optimizer steps."""
        means = _stack([*self._sums.values(), *self._averages.values(), self._weight])
        means = self._accelerator.reduce(means, "mean")
        weight = means[-1].clamp(min=torch.finfo(means.dtype).tiny)
        split = len(self._sums)
        values = torch.cat([means[:split] / max(num_steps, 1), means[split:-1] / weight])
        names = [*self._sums, *self._averages]
        metrics = dict(zip(names, values.tolist(), strict=True))
        if self._maxima:
            maxima = self._accelerator.gather(_stack(self._maxima.values()).unsqueeze(0))
            metrics |= dict(zip(self._maxima, maxima.amax(0).tolist(), strict=True))
        return metrics


def norm_metrics(norms: Sequence[Sequence[float]], count: int) -> dict[str, float]:
    """Return the mean gradient norms of an update's optimizer steps; `count`: 2 with a critic."""
    names = ["loss/grad_norm", "loss/value_grad_norm"][:count]
    means = np.mean(norms, axis=0) if norms else np.zeros(count)
    return dict(zip(names, means.tolist(), strict=True))


def _stack(values: Iterable[Tensor]) -> Tensor:
    return torch.stack([value.detach().float() for value in values])
