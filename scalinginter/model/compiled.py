"""`torch.compile` for the passes of a model that have a gradient, decoder layer by decoder layer.

Every micro-batch has another number of packed tokens and another prefix tree. So the number of
tokens is a symbol of the compiled code, and attention, which follows the tree, stays outside of it.
Layers of one kind share the code: it is made once for all of them.

A pass without gradient (rollouts, reference, scoring the old policy) runs as if this module were
not there.
"""

from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from scalinginter.errors import UserError


def compile_layers(model: nn.Module) -> None:
    """Have the decoder layers of `model` compiled when they are first called, in place.

    Copies of the model are compiled, too. Neither names nor checkpoints of weights change.

    Raises:
        UserError: The model has no layers of the kind that transformers' decoders are made of, or
            nothing can be compiled on this machine.
    """
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers:
        raise UserError(
            f"train.compile: {type(model).__name__} has no decoder layers that can be compiled; "
            "set train.compile: false"
        )
    refuse_without_compiler(next(model.parameters()).device)
    for layer in layers:
        layer.forward = MethodType(_forward, layer)  # type: ignore[method-assign]


def is_compiled(layer: nn.Module) -> bool:
    """Whether `compile_layers` has been at this layer."""
    return getattr(layer.forward, "__func__", None) is _forward


def _forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand in for a layer's `forward`: compiled with a gradient, its own without."""
    forward = type(self).forward
    if torch.is_grad_enabled():
        forward = _compiled(type(self))
    return forward(self, *args, **kwargs)


@cache
def _compiled(layer_class: type[nn.Module]) -> Any:
    return torch.compile(layer_class.forward, dynamic=True)


def refuse_without_compiler(device: torch.device) -> None:
    """Compile a line: `UserError` before training starts, where there is no compiler."""
    try:
        torch.compile(_line)(torch.zeros(8, device=device))
    except Exception as error:  # of a compiler, a linker, triton, inductor: all of their own kinds
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"train.compile: torch cannot compile for {device.type} here ({reason}); install a C++ "
            "compiler (g++, or name one in CXX), or set train.compile: false"
        ) from error


def _line(x: Tensor) -> Tensor:
    return x * 2 + 1
