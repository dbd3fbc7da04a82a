# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""Which trained tokens of an optimizer step belong together, wherever packing has put them.

A sequence is an episode's trained tokens, or a turn's. An episode can be several rows, and its rows
can lie in several micro-batches; all of them are in one process.
Shape suffixes: `_N` trained tokens of a micro-batch, `_S` sequences.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from scalinginter.train.batch import MicroBatch
from scalinginter.train.critic import positions_of
from scalinginter.types import TrainingSample


class Sequences:
    """The sequences of one optimizer step.

    Args:
        samples: The rows that were packed.
        batches: What `pack` made of them.
        of: What one sequence is.
    """

    def __init__(
        self,
        samples: Sequence[TrainingSample],
        batches: Sequence[MicroBatch],
        of: Literal["episode", "turn"],
    ) -> None:
        numbers: dict[tuple[int, int], int] = {}

        def number(row: int, position: int) -> int:
            sample = samples[row]
            turn = int(sample.turn_index[position]) if of == "turn" else 0
            return numbers.setdefault((sample.episode, turn), len(numbers))

        self._ids: list[Tensor] = []  # per micro-batch [N]: each token's sequence
        for batch in batches:
            at = zip(batch.row_N.tolist(), positions_of(batch), strict=True)
            own = [number(row, position) for row, position in at]
            self._ids.append(torch.tensor(own, dtype=torch.int64, device=batch.row_N.device))
        present = torch.zeros(len(batches), len(numbers), dtype=torch.bool)
        for index, ids_N in enumerate(self._ids):
            present[index, ids_N.cpu()] = True
        self._size = len(numbers)
        self.divided = bool((present.sum(0) > 1).any())  # some sequence is in several micro-batches

    def means(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Return for every token the mean of `values` over its sequence: per micro-batch [N].

        Those of micro-batches beyond the ones that were given (idle ones) are left as they are.
        """
        count = len(self._ids)
        return [*self._means(self._ids, values[:count]), *values[count:]]

    def sums(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Return the sum instead of the mean."""
        count = len(self._ids)
        return [*self._means(self._ids, values[:count], times_length=True), *values[count:]]

    def means_within(self, index: int, values_N: Tensor) -> Tensor:
        """Return the same [N] for one micro-batch, where no sequence is divided."""
        if index >= len(self._ids):
            return values_N
        (means_N,) = self._means([self._ids[index]], [values_N])
        return means_N

    def _means(
        self, ids: Sequence[Tensor], values: Sequence[Tensor], *, times_length: bool = False
    ) -> list[Tensor]:
        if not ids:
            return []
        sums_S, counts_S = values[0].new_zeros(2, self._size, dtype=torch.float64)
        for ids_N, values_N in zip(ids, values, strict=True):
            sums_S.index_add_(0, ids_N, values_N.double())
            counts_S.index_add_(0, ids_N, torch.ones_like(values_N, dtype=torch.float64))
        means_S = sums_S if times_length else sums_S / counts_S.clamp(min=1.0)
        return [means_S[ids_N].to(values[0].dtype) for ids_N in ids]
