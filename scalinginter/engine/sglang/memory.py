"""Tensors in shared memory, and what tells another process of this machine where they are."""

import base64
import io
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing  # registers how tensors are pickled for other processes
from torch import Tensor


@contextmanager
def _by_name() -> Generator[None]:
    """Memory has a name that any process can open, not a descriptor that children inherit."""
    strategy = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        yield
    finally:
        torch.multiprocessing.set_sharing_strategy(strategy)


def shared_copy(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU that other processes of this machine can open."""
    with _by_name():
        return own_copy(tensor).share_memory_()


def own_copy(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU."""
    return tensor.to("cpu", copy=True).contiguous()


def handles(tensors: Mapping[str, Tensor]) -> str:
    """Return the places of tensors that `shared_copy` made, for one process that opens them once.

    It is what SGLang takes as one entry of `serialized_named_tensors`.
    """
    buffer = io.BytesIO()
    with _by_name():
        ForkingPickler(buffer).dump(list(tensors.items()))
    return base64.b64encode(buffer.getvalue()).decode()
