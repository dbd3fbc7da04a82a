"""Numbers of all processes together, over the device's own backend."""

from collections.abc import Sequence

import torch
from accelerate import Accelerator


class AcrossRanks:
    """Adds and compares numbers of the processes of an Accelerator; all of them call it alike."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sums over all processes."""
        totals = torch.tensor(values, dtype=torch.float64, device=self._accelerator.device)
        return self._accelerator.reduce(totals, "sum").tolist()

    def most(self, value: float) -> float:
        """Return the largest value of all processes."""
        if self._accelerator.num_processes == 1:
            return value
        own = torch.tensor([value], dtype=torch.float64, device=self._accelerator.device)
        return float(self._accelerator.gather(own).max())  # type: ignore[union-attr]
