"""Log-probs of single sequences by a plain forward: few and short ones, to compare engines by."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel


class _OneSequence:
    """Implements `AttentionLayout`: every token sees those before it."""

    outputs = None

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scaling: float,
        sliding_window: int | None,
    ) -> Tensor:
        if sliding_window is not None and sliding_window < query.shape[2]:
            raise ValueError(f"{query.shape[2]} tokens are more than the window {sliding_window}")
        attended = scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=True
        )
        return attended.transpose(1, 2)


@torch.no_grad()
def sequence_logprobs(
    model: PreTrainedModel, sequences: Sequence[Sequence[int]], *, packed: bool
) -> list[list[float]]:
    """Return the log-probs of each sequence's ids, from the second one on, at temperature 1.

    `packed`: the model's attention takes packed rows (`model.attention`).
    """
    layout = {"attention_layout": _OneSequence()} if packed else {}
    found = []
    for sequence in sequences:
        ids = torch.tensor([list(sequence)], device=model.device)
        logits = model(input_ids=ids, use_cache=False, **layout).logits[0, :-1].float()
        found.append(logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0].tolist())
    return found
