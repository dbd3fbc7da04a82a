"""How the trained weights lie among the processes: whole in each (DDP), or in parts (FSDP2).

    none    the learner trains `policy.model` itself; accelerate wraps it in DDP
    fsdp2   the learner trains a copy, of which each of N processes holds one Nth: weights,
            gradients, optimizer. After an update `publish` brings it to `policy.model`.

So `policy.model` is whole everywhere and in both ways: engines, checkpoints, guard and evaluation
read it and know nothing of parts. It costs its bytes once per process, without gradients, without
optimizer, and in main memory where another program generates.

FSDP2 is torch's `fully_shard` (arXiv 2304.11277), called here: accelerate leaves its own out on a
CPU, and wants an optimizer over the model's parameters where ours has fp32 master weights.
"""

import copy
import os
import warnings
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor, nn
from transformers import PreTrainedModel

from scalinginter.config.schema import Recipe
from scalinginter.errors import UserError
from scalinginter.model.divided import laid_out, put, whole
from scalinginter.model.load import Policy, frozen_copy

M = TypeVar("M", bound=nn.Module)


class Weights:
    """Whole in every process."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def trained(self, model: PreTrainedModel) -> PreTrainedModel:
        """Return the model that is trained for `model`: itself, or a copy of it."""
        return model

    def frozen(self, model: PreTrainedModel) -> PreTrainedModel:
        """Return a copy that is not trained, divided where what is trained is."""
        return frozen_copy(model)

    def divide(self, module: M) -> M:
        """Divide a module among the processes, in place, where that is asked for; return it."""
        return module

    def wrap(
        self, module: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return both as they are trained: gradients are those of all processes."""
        with warnings.catch_warnings():  # of torch about an argument that accelerate passes on
            warnings.simplefilter("ignore", FutureWarning)
            return self._accelerator.prepare(module, optimizer)

    def publish(self, trained: nn.Module, model: nn.Module) -> None:
        """Bring what was trained to `model`; all processes call it."""

    def take(self, model: nn.Module, trained: nn.Module) -> None:
        """Bring the weights of `model` to what is trained."""


class DividedWeights(Weights):
    """In parts, by FSDP2. All processes make one, and call its methods together.

    Args:
        accelerator: Knows the device.
        cpu_offload: Parts and optimizer lie in main memory; layers come to the GPU when they run.
    """

    def __init__(self, accelerator: Accelerator, *, cpu_offload: bool = False) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        super().__init__(accelerator)
        self._offload = cpu_offload
        self._mesh = init_device_mesh(accelerator.device.type, (dist.get_world_size(),))

    def trained(self, model: PreTrainedModel) -> PreTrainedModel:
        """See `Weights.trained`. The copy lies in main memory until it is divided."""
        device = model.device
        copied = copy.deepcopy(model.to("cpu"))  # type: ignore[arg-type]
        model.to(device)  # type: ignore[arg-type]
        return copied

    def frozen(self, model: PreTrainedModel) -> PreTrainedModel:
        """See `Weights.frozen`."""
        return self.divide(self.trained(model).requires_grad_(False).eval())

    def divide(self, module: M) -> M:
        """See `Weights.divide`. Layers come to the device one at a time."""
        from torch.distributed.fsdp import (
            CPUOffloadPolicy,
            MixedPrecisionPolicy,
            OffloadPolicy,
            fully_shard,
        )

        settings: dict[str, Any] = {
            "mesh": self._mesh,
            "reshard_after_forward": True,  # of the root, too: parameters are parts between passes
            "mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float32),
            "offload_policy": CPUOffloadPolicy() if self._offload else OffloadPolicy(),
        }
        for layer in list(_layers(module)):
            fully_shard(layer, **settings)
        fully_shard(module, **settings)
        return module

    def wrap(
        self, module: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        """See `Weights.wrap`. Every micro-batch sends its gradients: they stay in parts."""
        return module, optimizer

    @torch.no_grad()
    def publish(self, trained: nn.Module, model: nn.Module) -> None:
        """See `Weights.publish`."""
        for part, target in _trained_pairs(trained, model):
            target.copy_(whole(part))

    def take(self, model: nn.Module, trained: nn.Module) -> None:
        """See `Weights.take`. Nothing is sent."""
        for part, source in _trained_pairs(trained, model):
            put(part, source)


def make_weights(recipe: Recipe, accelerator: Accelerator, policy: Policy) -> Weights:
    """Make what `train.sharding` says. Raises `UserError` for what cannot be done."""
    if recipe.train.sharding == "none":
        return Weights(accelerator)
    if not policy.packed:
        raise UserError(
            "train.sharding: fsdp2 needs a model that takes packed rows, so that all processes "
            f"make as many passes; {type(policy.model).__name__} runs row by row. "
            "Set train.sharding: none"
        )
    if recipe.train.cpu_offload and accelerator.device.type == "cpu":
        raise UserError(
            "train.cpu_offload: weights are in main memory already, since model.device is cpu; "
            "set train.cpu_offload: false"
        )
    return DividedWeights(accelerator, cpu_offload=recipe.train.cpu_offload)


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Restore the state of an optimizer from whole tensors, also where its parameters are parts."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = {
        number: {name: _state_like(value, parameters[number]) for name, value in entries.items()}
        for number, entries in saved["state"].items()
    }
    optimizer.load_state_dict({**saved, "state": state})


def as_launched(recipe: Recipe) -> Recipe:
    """Return the recipe with the sharding that accelerate's configuration asks for.

    accelerate's own FSDP is switched off then (see above). Raises `UserError` for what a run
    cannot do.
    """
    asked = {name: _environment(f"ACCELERATE_USE_{name}") for name in ("FSDP", "DEEPSPEED")}
    if asked["DEEPSPEED"] == "true":
        raise UserError(
            "accelerate launch asks for DeepSpeed, whose engine takes optimizer steps inside "
            "backward; use docs/cluster/fsdp2.yaml, which divides weights, gradients and optimizer "
            "as ZeRO-3 does"
        )
    if asked["FSDP"] != "true":
        return recipe
    wanted = {"FSDP_VERSION": "2", "FSDP_RESHARD_AFTER_FORWARD": "true"}
    for name, value in (wanted | {"FSDP_ACTIVATION_CHECKPOINTING": "false"}).items():
        got = _environment(name) or value
        if got != value:
            raise UserError(
                f"accelerate's configuration: {name.lower()}: got {got}, only {value} is possible "
                "(docs/cluster/fsdp2.yaml; gradient checkpointing: model.gradient_checkpointing)"
            )
    if recipe.train.compile:
        raise UserError(
            "train.compile: true and accelerate's FSDP do not go together; set train.compile=false"
        )
    os.environ["ACCELERATE_USE_FSDP"] = "false"
    offload = recipe.train.cpu_offload or _environment("FSDP_OFFLOAD_PARAMS") == "true"
    train = recipe.train.model_copy(update={"sharding": "fsdp2", "cpu_offload": offload})
    return recipe.model_copy(update={"train": train})


def _environment(name: str) -> str:
    return os.environ.get(name, "").lower()


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """Give the decoder's layers: what transformers says must not be split."""
    names = {
        name
        for part in module.modules()
        if isinstance(part, PreTrainedModel)
        for name in part._no_split_modules or ()
    }
    return (part for part in module.modules() if type(part).__name__ in names)


def _trained_pairs(trained: nn.Module, model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    pairs = zip(trained.parameters(), model.parameters(), strict=True)
    return ((part, target) for part, target in pairs if target.requires_grad)


def _state_like(value: Any, parameter: Tensor) -> Any:
    """Adam's moments have the shape of their parameter; its count of steps is one number."""
    return laid_out(value, parameter) if value.shape == parameter.shape else value
