"""Tensors that several processes hold in parts (torch's `DTensor`), beside tensors that are whole.

Everything here takes whole tensors, too, and leaves them as they are.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor with the parts of all processes, each of which calls this."""
    if not isinstance(tensor, DTensor):
        return tensor
    there: Any = tensor.to(tensor.device_mesh.device_type)
    return there.full_tensor()


def gathered(tree: Any) -> Any:
    """Return dicts and lists with every divided tensor made whole, in the memory of process 0.

    One at a time: no device holds more than one of them. Elsewhere they are left out (None). All
    processes call it.
    """
    if isinstance(tree, dict):
        return {key: gathered(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(gathered(value) for value in tree)
    if not isinstance(tree, DTensor):
        return tree
    tensor = whole(tree)
    return tensor.cpu() if dist.get_rank() == 0 else None


def laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """Return this process's part of a whole tensor where `like` is divided; nothing is sent.

    Every process has the same whole one.
    """
    if not isinstance(like, DTensor) or isinstance(tensor, DTensor):
        return tensor
    tensor = tensor.detach().to(like.device_mesh.device_type)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


@torch.no_grad()
def put(target: Tensor, tensor: Tensor) -> None:
    """Copy a whole tensor, or one that is divided alike, into `target`, in place."""
    target.copy_(laid_out(tensor, target))
