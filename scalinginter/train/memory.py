"""How much memory an update at a longer horizon will need, and how much there is.

Activations grow with the tokens of a micro-batch. What autograd keeps for a short row is counted
tensor by tensor, on any device, and scaled up: nothing has to run out to know that it would.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from scalinginter.config.schema import Recipe
from scalinginter.model.load import Policy
from scalinginter.train.batch import pack
from scalinginter.train.logprobs import score
from scalinginter.types import TrainingSample

PROBE_TOKENS = 128
GB = 1e9


def shortage(
    recipe: Recipe,
    policy: Policy,
    row_tokens: int,
    *,
    device: torch.device | None = None,
    parts: int = 1,
) -> str:
    """Say what is short for an update whose longest row has `row_tokens` ids; empty: nothing.

    `device`: where the update is computed; None: where the policy is. `parts`: processes that
    share the gradients.

    Rollout (keys and values of all episodes at a time, where they are kept here) and update come
    one after the other: the larger of the two counts, against `guard.memory_share` of what is free.
    """
    device = device or policy.model.device
    free, rollout = free_bytes(device), recipe.rollout
    if free is None or recipe.guard.memory_share is None:
        return ""
    row = min(row_tokens, rollout.max_context)
    episodes = min(rollout.max_concurrent, rollout.num_tasks * rollout.group_size)
    batch = max(row, min(recipe.train.micro_batch_tokens, row * episodes))
    update = update_bytes(
        policy.model,
        batch,
        packed=policy.packed,
        vocabulary=policy.model.config.vocab_size,
        parts=parts,
    )
    caches = cache_bytes(policy.model, row * episodes) if recipe.engine.kind == "local" else 0
    needed = max(update, caches)
    if needed <= recipe.guard.memory_share * free:
        return ""
    what = "an update" if update >= caches else "the episodes' keys and values"
    return f"{what} would take {needed / GB:.1f} GB, {free / GB:.1f} GB are free on {device}"


def update_bytes(
    model: nn.Module, tokens: int, *, packed: bool, vocabulary: int, parts: int = 1
) -> int:
    """Estimate the bytes that forward and backward pass of one micro-batch keep at a time.

    Activations of `tokens` ids, all trained (an upper bound), and one gradient per parameter,
    of which this process has one in `parts`.
    """
    length = min(tokens, PROBE_TOKENS)
    batch = pack([_row(length, vocabulary)], length, next(model.parameters()).device)[0]
    kept = saved_bytes(model, lambda: score(model, batch, packed=packed).logprobs.sum())
    gradients = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return round(kept * tokens / length) + gradients // parts


def cache_bytes(model: PreTrainedModel, tokens: int) -> int:
    """Return the bytes of keys and values of `tokens` ids in all layers."""
    config: Any = model.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * width * tokens * model.dtype.itemsize


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that a process may still take on a device; None where nobody knows."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    meminfo = Path("/proc/meminfo")
    if not meminfo.is_file():
        return None
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def _row(length: int, vocabulary: int) -> TrainingSample:
    trained = np.arange(length) > 0
    return TrainingSample(
        ids=np.arange(length, dtype=np.int64) % vocabulary,
        mask=trained,
        logprobs=np.zeros(length, dtype=np.float32),
        advantages=np.ones(length, dtype=np.float32),
        turn_index=np.zeros(length, dtype=np.int32),
        allowed=(None,) * length,
        group_id="probe",
        episode=0,
    )


def saved_bytes(model: nn.Module, forward: Callable[[], Tensor]) -> int:
    """Return the bytes of all storages that autograd saves in `forward`, parameters left out."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}  # held, so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in own:
            kept[address] = tensor
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        forward()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
