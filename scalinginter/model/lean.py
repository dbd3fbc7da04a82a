"""A pass through Llama-like decoders in fewer steps than transformers takes, with its result.

A tiny model on a CPU spends more time between matrix products than in them: per layer transformers
makes some 70 tensor operations, and autograd walks back through all of them. Here a norm, rotary
positions and the feed-forward part are one step each, with a gradient written by hand that runs
block by block in the cache. Weights, modules and checkpoints stay those of transformers.

Shape legend: T packed tokens, C channels, H heads, D head size.
"""

from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from scalinginter.model.compiled import is_compiled

_SMALL = 1 << 17  # elements of a weight that is copied in less time than a call takes
BLOCK_BYTES = 3 << 18  # of one tensor: the few that a step touches fit the cache together

_NORMS: dict[type[nn.Module], type[nn.Module]] = {  # decoder -> its norm
    llama.LlamaModel: llama.LlamaRMSNorm,
    qwen2.Qwen2Model: qwen2.Qwen2RMSNorm,
    qwen3.Qwen3Model: qwen3.Qwen3RMSNorm,
}


def make_lean(model: PreTrainedModel) -> bool:
    """Switch a model's decoder to the lean pass where it is known; return whether it was.

    The pass is taken for fp32 weights and packed rows. Everything else (bf16, autocast, gradient
    checkpointing, weights sharded by FSDP2, compiled layers in a pass with gradient, other
    arguments) goes through transformers as before.
    """
    decoder = model.base_model
    if not _is_known(decoder):
        return False
    decoder.forward = MethodType(_forward, decoder)  # type: ignore[method-assign]
    return True


def _is_known(decoder: nn.Module) -> bool:
    """Whether every module is the very class that the lean pass was written for.

    A linear layer may carry a LoRA adapter of peft: it is then called and not looked into.
    """
    norm = _NORMS.get(type(decoder))
    if norm is None or decoder.config.hidden_act != "silu":  # type: ignore[union-attr]
        return False
    linears = [m for name, m in decoder.named_modules() if name.endswith("_proj")]
    norms = [m for name, m in decoder.named_modules() if name.endswith("norm")]
    known = all(_is_plain(m) or _is_adapted(m) for m in linears)
    return known and all(type(m) is norm for m in norms)


def _is_plain(module: nn.Module) -> bool:
    return type(module) is nn.Linear


def _is_adapted(module: nn.Module) -> bool:
    return hasattr(module, "lora_A") and type(getattr(module, "base_layer", None)) is nn.Linear


def _forward(
    self: Any, input_ids: Tensor | None = None, position_ids: Tensor | None = None, **kwargs: Any
) -> BaseModelOutputWithPast:
    """Stand in for the decoder's `forward`."""
    layout = kwargs.get("attention_layout")
    plain = layout is None or any(
        value is not None and value is not False
        for name, value in kwargs.items()
        if name != "attention_layout"
    )
    checkpointing = self.gradient_checkpointing and self.training
    weights = self.embed_tokens.weight
    mixed = weights.dtype != torch.float32 or torch.is_autocast_enabled(weights.device.type)
    sharded = hasattr(self.layers[0], "unshard")  # FSDP2 brings weights when a layer is called
    compiled = torch.is_grad_enabled() and is_compiled(self.layers[0])
    leave = plain or checkpointing or mixed or sharded or compiled
    if leave or input_ids is None or position_ids is None:
        return type(self).forward(self, input_ids=input_ids, position_ids=position_ids, **kwargs)
    x = self.embed_tokens(input_ids)
    rotary = _rotary(*self.rotary_emb(x, position_ids))
    x = x[0]
    for layer in self.layers:
        attended = _attend(layer.self_attn, _norm(layer.input_layernorm, x), rotary, layout)
        if layer is self.layers[-1] and layout.outputs is not None:
            x, attended = (rows.index_select(0, layout.outputs) for rows in (x, attended))
        x = _add(x, attended, layer.self_attn.o_proj)
        x = _feed(layer.mlp, x, _norm(layer.post_attention_layernorm, x))
    x = _norm(self.norm, x)
    if layout.outputs is not None:
        x = x.new_zeros(position_ids.shape[1], x.shape[1]).index_copy(0, layout.outputs, x)
    return BaseModelOutputWithPast(last_hidden_state=x[None])


def _rotary(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """[1, T, D] each -> [T, 1, D], with the sign that `_rotated` wants of the first half."""
    half = sin.shape[-1] // 2
    sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
    return cos[0].unsqueeze(1), sin[0].unsqueeze(1)


def _attend(module: Any, x: Tensor, rotary: tuple[Tensor, Tensor], layout: Any) -> Tensor:
    """x [T, C] -> [T, H * D]."""
    attended = layout.attend(
        module.layer_idx,
        *(states.transpose(0, 1)[None] for states in _heads(module, x, *rotary)),
        scaling=module.scaling,
        sliding_window=getattr(module, "sliding_window", None),
    )
    return attended.reshape(len(x), -1)


def _heads(module: Any, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x [T, C] -> query [T, H, D], key and value [T, K, D]."""
    size = module.head_dim
    parts = module.q_proj, module.k_proj, module.v_proj
    small = module.q_proj.weight.numel() <= _SMALL and all(map(_is_plain, parts))
    if small and not torch.is_grad_enabled():
        return _heads_at_once(module, x, cos, sin)
    query, key, value = (linear(x).view(len(x), -1, size) for linear in parts)
    if isinstance(module, qwen3.Qwen3Attention):
        query, key = _norm(module.q_norm, query), _norm(module.k_norm, key)
    return _rotate(query, cos, sin), _rotate(key, cos, sin), value


def _heads_at_once(
    module: Any, x: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same in fewer calls, for weights that are copied in less time than a call takes."""
    size, eps = module.head_dim, module.config.rms_norm_eps
    parts = module.q_proj, module.k_proj, module.v_proj
    biases = [part.bias for part in parts if part.bias is not None]
    weight = torch.cat([part.weight for part in parts])
    states = F.linear(x, weight, torch.cat(biases) if biases else None).view(len(x), -1, size)
    heads, key_heads = (part.out_features // size for part in parts[:2])
    turned, value = states.split((heads + key_heads, key_heads), dim=1)
    if isinstance(module, qwen3.Qwen3Attention):
        norms = (module.q_norm.weight.expand(heads, -1), module.k_norm.weight.expand(key_heads, -1))
        turned = F.rms_norm(turned, (size,), None, eps).mul_(torch.cat(norms))
    query, key = _rotated(turned, cos, sin).split((heads, key_heads), dim=1)
    return query, key, value


def _feed(module: Any, residual: Tensor, x: Tensor) -> Tensor:
    """residual, x [T, C] -> [T, C]: the gated feed-forward part added to the residual."""
    parts = module.gate_proj, module.up_proj, module.down_proj
    plain = all(_is_plain(part) and part.bias is None for part in parts)
    if plain and torch.is_grad_enabled():
        return _Feed.apply(residual, x, *(part.weight for part in parts))  # type: ignore[return-value]
    return _add(residual, F.silu(parts[0](x)).mul(parts[1](x)), parts[2])


def _add(residual: Tensor, x: Tensor, linear: nn.Linear) -> Tensor:
    if linear.bias is None and _is_plain(linear):
        return torch.addmm(residual, x, linear.weight.t())
    return residual + linear(x)


def _norm(module: Any, x: Tensor) -> Tensor:
    """RMS norm over the last dimension of `x`, any shape."""
    weight, eps = module.weight, module.variance_epsilon
    if torch.is_grad_enabled():
        normed: Any = _Norm.apply(x.reshape(-1, x.shape[-1]), weight, eps)
        return normed.view(x.shape)
    return F.rms_norm(x, weight.shape, weight, eps)


def _scale(rows: Tensor, eps: float) -> Tensor:
    """[N, C] -> [N, 1]: one over the root of the mean square."""
    return torch.linalg.vecdot(rows, rows).mul_(1 / rows.shape[1]).add_(eps).rsqrt_()[:, None]


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, H, D]; cos, sin [T, 1, D] of `_rotary`."""
    if torch.is_grad_enabled():
        return _Rotate.apply(x, cos, sin)  # type: ignore[return-value]
    return _rotated(x, cos, sin)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x cos + [x2, x1] sin, with x1 and x2 the halves of each head."""
    return (x * cos).addcmul_(x.roll(x.shape[-1] // 2, -1), sin)


def _blocks(rows: Tensor) -> list[slice]:
    """Cut rows into blocks for a CPU's cache; elsewhere a launch costs more than memory."""
    if rows.device.type != "cpu":
        return [slice(None)]
    step = max(1, BLOCK_BYTES // (rows.shape[1] * rows.element_size()))
    return [slice(start, start + step) for start in range(0, len(rows), step)]


class _Norm(torch.autograd.Function):
    """y = w x / rms(x). With n = x / rms(x): dx = (w g - n mean(w g n)) / rms(x), dw = sum(g n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = _scale(x, eps)
        out = torch.empty_like(x)
        for at in _blocks(x):
            torch.mul(x[at], scale[at], out=out[at]).mul_(weight)
        ctx.save_for_backward(x, weight, scale)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,) = gradients
        x, weight, scale = ctx.saved_tensors
        dx, dweight = torch.empty_like(x), torch.zeros_like(weight)
        for at in _blocks(x):
            normed = x[at] * scale[at]
            product = gradient[at] * normed
            dweight += product.sum(0)
            mean = torch.mv(product, weight).mul_(-1 / x.shape[1])[:, None]
            torch.mul(gradient[at], weight, out=dx[at]).addcmul_(normed, mean).mul_(scale[at])
        return dx, dweight, None


class _Rotate(torch.autograd.Function):
    """The transpose of a rotation is the rotation back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotated(gradients[0], cos, sin.roll(sin.shape[-1] // 2, -1)), None, None


class _Feed(torch.autograd.Function):
    """residual + (silu(x Wg') * x Wu') Wd': products and activation block by block, so that what
    is between them is still in the cache when it is used. Weights are as in `nn.Linear`."""

    @staticmethod
    def forward(
        ctx: Any, residual: Tensor, x: Tensor, to_gate: Tensor, to_up: Tensor, to_down: Tensor
    ) -> Tensor:
        gate = x.new_empty(len(x), len(to_gate))
        up, out = torch.empty_like(gate), torch.empty_like(residual)
        for at in _blocks(gate):
            torch.mm(x[at], to_gate.t(), out=gate[at])
            torch.mm(x[at], to_up.t(), out=up[at])
            active = F.silu(gate[at]).mul_(up[at])
            torch.addmm(residual[at], active, to_down.t(), out=out[at])
        ctx.save_for_backward(x, gate, up, to_gate, to_up, to_down)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        (gradient,) = gradients
        x, gate, up, to_gate, to_up, to_down = ctx.saved_tensors
        dx = torch.empty_like(x)
        dto_gate, dto_up, dto_down = (torch.zeros_like(w) for w in (to_gate, to_up, to_down))
        for at in _blocks(gate):
            active = F.silu(gate[at])
            dactive = gradient[at] @ to_down
            dup = dactive * active
            dgate = torch.ops.aten.silu_backward(dactive.mul_(up[at]), gate[at])
            dto_down.addmm_(gradient[at].t(), active.mul_(up[at]))
            dto_gate.addmm_(dgate.t(), x[at])
            dto_up.addmm_(dup.t(), x[at])
            torch.mm(dgate, to_gate, out=dx[at]).addmm_(dup, to_up)
        return gradient, dx, dto_gate, dto_up, dto_down
