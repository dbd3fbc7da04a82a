"""The policy that a KL is measured from: that of the start, or one that follows the training."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from scalinginter.model.divided import put
from scalinginter.model.load import frozen_copy
from scalinginter.model.lora import adapter_state, is_adapted, swapped
from scalinginter.train.batch import MicroBatch
from scalinginter.train.logprobs import score


class Reference:
    """A frozen policy: a copy of the model, or of its adapter alone where it has one.

    With an adapter no second model is held: the policy computes with the adapter's first tensors,
    which is the base itself unless a cold start trained them.

    Args:
        model: The policy at the start, not wrapped.
        every: Updates after which the reference becomes the policy of then; None: never.
        frozen: Makes a copy that is not trained; None: `model` is whole and can be copied.
    """

    def __init__(
        self,
        model: nn.Module,
        every: int | None = None,
        frozen: Callable[[], nn.Module] | None = None,
    ) -> None:
        self._policy, self._every = model, every
        self._adapter: dict[str, Tensor] | None = None
        self._copy = model
        if is_adapted(model):
            self._adapter = _cloned(adapter_state(model))
        else:
            self._copy = frozen() if frozen else frozen_copy(model)

    @torch.no_grad()
    def logprobs(self, batch: MicroBatch, *, packed: bool, temperature: float) -> Tensor:
        """Return the log-probs [N] of a micro-batch's trained tokens under the reference."""
        with self._active():
            return score(self._copy, batch, packed=packed, temperature=temperature).logprobs

    def follow(self, updates: int) -> bool:
        """Become the policy if its number of updates is a multiple of `every`; return whether."""
        if self._every is None or updates == 0 or updates % self._every:
            return False
        if self._adapter is None:
            self._copy.load_state_dict(self._policy.state_dict())
        else:
            self._adapter = _cloned(adapter_state(self._policy))
        return True

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights of the reference, for an exact resume."""
        return self._copy.state_dict() if self._adapter is None else self._adapter

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        if self._adapter is None:
            for name, tensor in self._copy.state_dict().items():
                put(tensor, state[name])
        else:
            self._adapter = _cloned(state)

    def _active(self) -> AbstractContextManager[None]:
        return nullcontext() if self._adapter is None else swapped(self._policy, self._adapter)


def _cloned(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in state.items()}
