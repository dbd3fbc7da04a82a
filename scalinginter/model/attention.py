"""One attention function for learner and engine: the layout of the batch decides what sees what.

Both push sequences of unequal length through a model as one packed row, `[1, T]`, without padding.
Which keys a query may see is known to a layout object; `transformers` hands it through the model's
forward (`attention_layout=`) to the function registered here under the name `ATTENTION`.
"""

from typing import Any, Protocol

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from scalinginter.model.lean import make_lean

ATTENTION = "scalinginter"


class AttentionLayout(Protocol):
    """Says what the packed tokens of one forward pass attend to.

    `outputs`, int64 and without repeats: the packed tokens whose last hidden state is looked at,
    so that the last layer may leave out the others. None: all.
    """

    outputs: torch.Tensor | None

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        sliding_window: int | None,
    ) -> torch.Tensor:
        """Attend. query [1, H, T, D]; key, value [1, Hkv, T, D]; returns [1, T, H, D]."""
        ...


@torch.compiler.disable  # compiled, it would be compiled again for every tree
def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    attention_layout: AttentionLayout | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    if attention_layout is None:
        raise RuntimeError("this model was prepared for packed rows; pass attention_layout")
    output = attention_layout.attend(
        int(module.layer_idx),  # type: ignore[arg-type]
        query,
        key,
        value,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        sliding_window=sliding_window,
    )
    return output, None


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, lambda *args, **kwargs: None)


def supports_packing(model: PreTrainedModel) -> bool:
    """Whether the model's attention can be replaced by ours without changing what it computes.

    Not for models without attention (state spaces), with attention sinks or with capped attention
    logits; those take the slower per-sequence path.
    """
    config = model.config.get_text_config()
    replaceable = getattr(model, "_supports_attention_backend", False)
    stateful = getattr(model, "_is_stateful", False)
    capped = getattr(config, "attn_logit_softcapping", None) is not None
    has_sinks = getattr(config, "model_type", "") == "gpt_oss"
    return replaceable and not (stateful or capped or has_sinks)


def prepare(model: PreTrainedModel) -> bool:
    """Switch the model to packed attention where it can be; return whether it was."""
    if not supports_packing(model):
        return False
    model.set_attn_implementation(ATTENTION)
    make_lean(model)
    return True
