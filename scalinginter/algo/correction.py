# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""Weights for tokens that another policy drew than the one that is about to be updated.

    log-weight of a token    token: log pi_old - log pi_drew
                             sequence: its sum over the token's sequence
                             geometric_mask: its mean over the token's sequence

pi_old is the policy before the update, as the learner scores it; pi_drew is what the engine
recorded: an older version, or another arithmetic. Shape suffix: `_N` tokens.
"""

import torch
from torch import Tensor

from scalinginter.config.algorithms import PolicyGradientConfig

LARGEST_LOG = 20.0  # exp of a sum over a long sequence would be infinite


def correction_weights(log_weights_N: Tensor, config: PolicyGradientConfig) -> Tensor:
    """Return what each token's surrogate is multiplied with, float [N], without a gradient.

    Truncated importance weights, min(weight, `correction_max`) (V-trace, arXiv 1802.01561, section
    4.1; of tokens: decoupled PPO, arXiv 2505.24298, equation 5), or, with `geometric_mask`, 1 for
    the tokens of a sequence whose weight lies in `correction_band` and 0 for the others.
    """
    weights_N = importance(log_weights_N)
    if config.correction == "geometric_mask":
        low, high = config.correction_band
        return ((weights_N >= low) & (weights_N <= high)).to(weights_N.dtype)
    return weights_N.clamp(max=config.correction_max)


def importance(log_weights_N: Tensor) -> Tensor:
    """Return the weights [N] before they are truncated: finite for every finite or infinite log."""
    return torch.exp(log_weights_N.detach().clamp(max=LARGEST_LOG))
