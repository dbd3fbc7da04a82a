"""Loading and saving a policy."""

import copy
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from scalinginter.config.schema import ModelConfig
from scalinginter.errors import UserError
from scalinginter.model import tiny
from scalinginter.model.attention import prepare
from scalinginter.model.lora import (
    add_adapter,
    is_adapted,
    load_adapter,
    restore_adapter,
    save_adapter,
)
from scalinginter.model.source import resolve

HUB_TIMEOUT_S = 5.0
M = TypeVar("M", bound=torch.nn.Module)

disable_progress_bar()  # one bar per tensor would tear the run's own display


@dataclass
class Policy:
    """Weights and the tokenizer that goes with them."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    packed: bool  # its attention takes packed rows (`model.attention`)
    description: str  # one line for people


def load_policy(
    config: ModelConfig,
    *,
    corpus: Callable[[], list[str]],
    seed: int,
    device: torch.device,
    adapter: Path | None = None,
) -> Policy:
    """Load what `config.path` names onto `device`, in evaluation mode.

    `corpus` gives the environment's texts, and is called for `tiny:` paths only, whose weights come
    from `seed`. `adapter`: a folder with an adapter that is put into the model; where there is none
    and `config.lora` is set, a fresh one. Raises `UserError` for a path that leads nowhere.
    """
    source = resolve(config.path)
    dtype = _dtype(config.dtype, device)
    if source.kind == "tiny":
        tokenizer = tiny.make_tokenizer(corpus())
        model: PreTrainedModel = tiny.make_model(source.value, tokenizer, seed=seed, dtype=dtype)
    else:
        local_only = source.kind == "folder" or not _answers(source.value)
        model, tokenizer = _load_pretrained(source.value, dtype, local_only=local_only)
    if adapter is not None:
        load_adapter(model, adapter)
    elif config.lora is not None:
        add_adapter(model, config.lora, base=config.path, seed=seed)
    packed = prepare(model)
    model.to(device)  # type: ignore[arg-type]
    if config.gradient_checkpointing:
        # Reentrant checkpoints of a frozen layer's input would have no gradient
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return Policy(model, tokenizer, packed, _describe(config.path, model, tokenizer, device))


def _describe(
    path: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> str:
    count = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    adapted = f" ({trained:,} of them in an adapter)" if trained < count else ""
    return (
        f"{path}: {type(model).__name__}, {count:,} parameters{adapted}, vocabulary "
        f"{len(tokenizer):,}, {str(model.dtype).removeprefix('torch.')} on {device}"
    )


def save_policy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write model and tokenizer so that `AutoModelForCausalLM.from_pretrained(folder)` loads them.

    Of a model with an adapter the adapter alone is written, for `PeftModel.from_pretrained`. The
    folder appears when it is whole; one that was there is replaced.
    """
    aside = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    if is_adapted(model):
        aside.mkdir(parents=True)
        save_adapter(model, aside)
    else:
        model.save_pretrained(aside)
    tokenizer.save_pretrained(aside)
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(aside, folder)


def save_whole(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
) -> None:
    """Write a whole model, of the kind of `model` with other tensors, and its tokenizer.

    As `save_policy` does, but an adapter is not written: the tensors are merged.
    """
    aside = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    model.save_pretrained(aside, state_dict=dict(tensors))
    tokenizer.save_pretrained(aside)
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(aside, folder)


def restore_weights(model: PreTrainedModel, folder: Path) -> None:
    """Put the weights that `save_policy` wrote to `folder` back into `model`, in place."""
    from transformers import AutoModelForCausalLM

    if is_adapted(model):
        restore_adapter(model, folder)
        return
    saved = AutoModelForCausalLM.from_pretrained(folder, dtype=model.dtype, local_files_only=True)
    model.load_state_dict(saved.state_dict())


@torch.no_grad()
def copy_weights(source: torch.nn.Module, target: torch.nn.Module) -> None:
    """Copy parameters and buffers, in place, to a model of the same kind.

    Raises `ValueError` where they are not the same tensors by name and shape.
    """
    pairs = [
        (dict(get(source)), dict(get(target)))
        for get in (torch.nn.Module.named_parameters, torch.nn.Module.named_buffers)
    ]
    for theirs, mine in pairs:
        if {n: t.shape for n, t in theirs.items()} != {n: t.shape for n, t in mine.items()}:
            raise ValueError("the two models do not have the same tensors")
        for name, tensor in mine.items():
            tensor.copy_(theirs[name])


def frozen_copy(model: M) -> M:
    """Return a copy that is not trained, in evaluation mode."""
    return copy.deepcopy(model).requires_grad_(False).eval()


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return getattr(torch, name)


def _load_pretrained(
    name: str, dtype: torch.dtype, *, local_only: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    # Imported here: they import a great deal that tiny models do not need.
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local_only)
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, local_files_only=local_only)
    except (OSError, ValueError) as error:
        raise UserError(f"model.path: {name} cannot be loaded: {error}") from error
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    return model.eval(), tokenizer


def _answers(hub_id: str) -> bool:
    """Ask the hub for the model once, so that a wrong id or a dead network is told in seconds.

    False: the hub is out of reach, but the model is in its local cache.
    """
    from huggingface_hub import model_info, try_to_load_from_cache
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        model_info(hub_id, timeout=HUB_TIMEOUT_S)
    except RepositoryNotFoundError as error:
        raise UserError(
            f"model.path: the hub has no model {hub_id!r} that you may read; check the spelling, "
            "and for a gated model HF_TOKEN"
        ) from error
    except Exception as error:  # of an HTTP library that differs between versions of the client
        if isinstance(try_to_load_from_cache(hub_id, "config.json"), str):
            return False
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"model.path: {hub_id!r} is not a folder, and not in the local cache of a hub that "
            f"cannot be reached ({reason}); give a folder, smollm2 or tiny:small, or check "
            "the network, HF_ENDPOINT and HF_HUB_OFFLINE"
        ) from error
    return True
