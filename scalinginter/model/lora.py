"""LoRA adapters inside a model of transformers (arXiv 2106.09685), through peft.

An adapter is put into the model in place: it keeps its class and its forward, so that engine,
learner and packed rows work on it as on any other. The base is frozen; what is trained, saved and
restored are the adapter's tensors.

    y = W x + alpha / r * B (A x)        merged: W + alpha / r * B A
"""

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from scalinginter.config.lora import LoRAConfig
from scalinginter.errors import UserError, nearest
from scalinginter.model.divided import put

if TYPE_CHECKING:
    from peft import LoraConfig

ADAPTER_CONFIG, ADAPTER_WEIGHTS, BASE = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "base.json",
)
_NAME = "default"  # peft's name of the only adapter
_PREFIX = "base_model.model."  # of names in an adapter file: PeftModel.from_pretrained wants it
_SAMPLED = 4096  # leading elements of each tensor that a fingerprint looks at


def add_adapter(model: PreTrainedModel, config: LoRAConfig, *, base: str, seed: int) -> None:
    """Freeze `model` and put a fresh adapter into it. B is 0: the model computes what it did.

    `base` is what `model.path` says. torch's global generator is left as it was. Raises `UserError`
    for names that no linear layer has, and where peft is not installed.
    """
    names = config.target_modules
    if names != ["all-linear"]:
        linears = {n.rpartition(".")[2] for n, m in model.named_modules() if type(m) is nn.Linear}
        for name in names:
            if name not in linears:
                raise UserError(
                    f"model.lora.target_modules: the model has no linear layer {name!r}"
                    f"{nearest(name, sorted(linears))}; it has: {', '.join(sorted(linears))}; "
                    "or [all-linear]"
                )
    peft = _peft()
    settings = peft.LoraConfig(
        r=config.r,
        lora_alpha=config.alpha,
        target_modules="all-linear" if names == ["all-linear"] else sorted(names),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _inject(model, settings)


def is_adapted(model: nn.Module) -> bool:
    """Whether a model carries an adapter."""
    return any(_is_adapter(name) for name, _ in model.named_parameters())


def adapter_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the adapter's tensors by name, detached; they are those of the model, not copies."""
    return {n: p.detach() for n, p in model.named_parameters() if _is_adapter(n)}


def load_adapter_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put what `adapter_state` returned back, in place. Raises `ValueError` for other names."""
    own = adapter_state(model)
    if own.keys() != state.keys():
        raise ValueError(f"not this adapter's tensors: {sorted(own.keys() ^ state.keys())[:3]}")
    for name, tensor in own.items():
        put(tensor, state[name])


@contextmanager
def swapped(model: nn.Module, state: Mapping[str, Tensor]) -> Generator[None]:
    """Let the model compute with another adapter's tensors for a while."""
    own = {name: tensor.clone() for name, tensor in adapter_state(model).items()}
    load_adapter_state(model, state)
    try:
        yield
    finally:
        load_adapter_state(model, own)


@torch.no_grad()
def merged_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Give names and tensors of `model.state_dict()` as they would be without an adapter.

    Names, order, shapes and dtypes are those of the base model; an adapted weight is
    W + alpha / r * B A, a new tensor. One at a time, so that no second copy of the model is needed.
    Works for models without an adapter, too.
    """
    modules = dict(model.named_modules())
    for name, tensor in model.state_dict().items():
        if _is_adapter(name):
            continue
        owner, found, parameter = name.rpartition(".base_layer.")
        if found and parameter == "weight":
            layer: Any = modules[owner]
            tensor = tensor + layer.get_delta_weight(_NAME).to(tensor.dtype)
        yield name.replace(".base_layer.", "."), tensor


@torch.no_grad()
def merge(model: PreTrainedModel) -> None:
    """Add the adapter to the base's weights and take it out, in place."""
    for name, module in list(model.named_modules()):
        if hasattr(module, "base_layer") and hasattr(module, "lora_A"):
            layer: Any = module
            weight = layer.base_layer.weight
            weight += layer.get_delta_weight(_NAME).to(weight.dtype)
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, layer.base_layer)
    if hasattr(model, "peft_config"):
        del model.peft_config
    model.requires_grad_(True)


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Write the adapter into `folder`, as `PeftModel.from_pretrained(base, folder)` reads it."""
    settings: Any = model.peft_config
    settings[_NAME].save_pretrained(folder)
    state = adapter_state(model).items()
    tensors = {_PREFIX + name.replace(f".{_NAME}.", "."): t.contiguous() for name, t in state}
    save_file(tensors, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    (folder / BASE).write_text(json.dumps({"fingerprint": _fingerprint(model)}))


def load_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Put the adapter that `save_adapter` wrote into its base, which `model` must be.

    Raises `UserError` where the model is another one than the adapter was trained on.
    """
    settings = _peft().LoraConfig.from_pretrained(folder)
    base = folder / BASE
    if base.is_file() and json.loads(base.read_text())["fingerprint"] != _fingerprint(model):
        raise UserError(
            f"{folder}: this adapter was trained on other weights than those of model.path "
            f"({settings.base_model_name_or_path} then); name the base it belongs to by "
            "model.path, and for tiny: models keep environment and seed"
        )
    settings.inference_mode = False
    _inject(model, settings)
    restore_adapter(model, folder)


def restore_adapter(model: nn.Module, folder: Path) -> None:
    """Put the tensors that `save_adapter` wrote back into the adapter that `model` has."""
    names = {_PREFIX + name.replace(f".{_NAME}.", "."): name for name in adapter_state(model)}
    state = load_file(folder / ADAPTER_WEIGHTS)
    load_adapter_state(model, {names.get(name, name): tensor for name, tensor in state.items()})


def holds_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter, and so no whole model."""
    return (folder / ADAPTER_CONFIG).is_file()


def _inject(model: PreTrainedModel, settings: "LoraConfig") -> None:
    _peft().inject_adapter_in_model(settings, model, _NAME)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_is_adapter(name))
    model.peft_config = {_NAME: settings}  # type: ignore[assignment]
    model.eval()


def _is_adapter(name: str) -> bool:
    return ".lora_" in name


def _fingerprint(model: nn.Module) -> str:
    """A digest of names, shapes and first elements of the base's tensors."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if not _is_adapter(name):
            digest.update(f"{name.replace('.base_layer.', '.')} {tuple(tensor.shape)}".encode())
            sample = tensor.detach().flatten()[:_SAMPLED].float().cpu().contiguous()
            digest.update(sample.numpy().tobytes())
    return digest.hexdigest()


def _peft() -> Any:
    try:
        import peft  # imported here: it takes seconds, and only adapters need it
    except ModuleNotFoundError as error:
        raise UserError(
            "model.lora needs peft, which is not installed: pip install 'scalinginter[lora]'"
        ) from error
    return peft
