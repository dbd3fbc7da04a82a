"""A policy and what says the value of its states, as one module: both are wrapped as one."""

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from scalinginter.model.divided import put


class ActorCritic(nn.Module):
    """A policy with a critic: a linear head on hidden states, which gives a value per position.

    Args:
        policy: A causal language model.
        own_model: The critic has a copy of the policy's decoder; else it reads the policy's.
    """

    def __init__(self, policy: PreTrainedModel, *, own_model: bool) -> None:
        super().__init__()
        self.policy = policy
        self.decoder = copy.deepcopy(policy.base_model) if own_model else None
        hidden_size = int(policy.config.get_text_config().hidden_size)
        self.head = nn.Linear(hidden_size, 1, device=policy.device)
        # Values start at 0 everywhere: the first advantages are those of the returns
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self._seen: list[Tensor] = []  # per forward pass since `take`: values [T]

    def forward(self, *, values_only: bool = False, **inputs: Any) -> Any:
        """Return the policy's output; the values of all positions are kept until `take`.

        `inputs` are those of the policy, one row [1, T]. With `values_only` nothing but the values
        is computed, and None returned.
        """
        shared = {name: value for name, value in inputs.items() if name != "logits_to_keep"}
        decoder: Any = self.policy.base_model if self.decoder is None else self.decoder
        if values_only or self.decoder is not None:
            self._keep(decoder(**shared).last_hidden_state)
            return None if values_only else self.policy(**inputs)
        hook = decoder.register_forward_hook(
            lambda _module, _inputs, output: self._keep(output.last_hidden_state)
        )
        try:
            return self.policy(**inputs)
        finally:
            hook.remove()

    def take(self) -> list[Tensor]:
        """Return the values [T] of each forward pass since the last call."""
        seen, self._seen = self._seen, []
        return seen

    def critic_parameters(self) -> dict[str, nn.Parameter]:
        """Return the trained parameters that are the critic's alone, by name."""
        named = self.named_parameters()
        return {n: p for n, p in named if not n.startswith("policy.") and p.requires_grad}

    def critic_state(self) -> dict[str, Tensor]:
        """Return their values, for a checkpoint."""
        return {name: parameter.detach() for name, parameter in self.critic_parameters().items()}

    def load_critic_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `critic_state` returned, in place."""
        for name, parameter in self.critic_parameters().items():
            put(parameter, state[name])

    def _keep(self, hidden: Tensor) -> None:
        self._seen.append(self.head(hidden[0].to(self.head.weight.dtype)).squeeze(-1))
