# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""Attention over a prefix tree by FlexAttention: each prefix once, on a GPU.

FlexAttention (Dong et al., arXiv 2412.05496) computes attention under any mask, block by block,
and leaves out blocks in which nothing is seen. In a prefix tree the packed id k is seen by exactly
the packed ids from k to the end of its segment's subtree (`PrefixTree.ends`), an interval. So the
blocks follow from the least and the largest end of each: no mask of T x T is ever laid out.

Shape suffixes: `_T` packed tokens, `_B` blocks of them.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.utils._triton import has_triton

from scalinginter.train.trie import PrefixTree

BLOCK = 128  # packed tokens of a block, FlexAttention's default
LEAST_HEAD = 16  # FlexAttention's kernels take no smaller heads


def can_attend_in_flex(query: Tensor, value: Tensor) -> bool:
    """Whether FlexAttention has kernels for these tensors, forward and backward, and is of use.

    Within one block nothing can be left out; and as all other trees have several, their sizes can
    be symbols of the compiled code.

    Args:
        query: [1, H, T, D].
        value: [1, K, T, D].
    """
    large = query.shape[-2] > BLOCK and min(query.shape[-1], value.shape[-1]) >= LEAST_HEAD
    return query.device.type == "cuda" and large and has_triton()


class TreeMask:
    """What the packed ids of a tree see, as FlexAttention wants it."""

    def __init__(self, tree: PrefixTree, device: torch.device | str) -> None:
        self._ends_T = torch.from_numpy(tree.ends()).to(device)
        self._positions_T = torch.from_numpy(tree.positions).to(device)
        self._blocks: dict[int | None, BlockMask] = {}  # by sliding window

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int | None
    ) -> Tensor:
        """query [1, H, T, D]; key, value [1, K, T, D] with H a multiple of K; returns as `query`.

        A query sees the last `window` positions of its row, its own among them.
        """
        attend = _compiled() if query.device.type == "cuda" else flex_attention
        if window not in self._blocks:  # all layers have one or two
            self._blocks[window] = self.blocks(window)
        return attend(
            query,
            key,
            value,
            block_mask=self._blocks[window],
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )

    def sees(self, window: int | None) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """Return FlexAttention's `mask_mod`: whether a query sees a key."""
        ends_T, positions_T = self._ends_T, self._positions_T

        def below(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (key <= query) & (query < ends_T[key])

        if window is None:
            return below
        width: int = window

        def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            distance = positions_T[query] - positions_T[key]
            return below(batch, head, query, key) & (distance < width)

        return near

    def blocks(self, window: int | None) -> BlockMask:
        """Return the blocks with something seen, and which of them are seen whole."""
        length = len(self._ends_T)
        ends = self._by_block(self._ends_T, 0)
        starts_B = torch.arange(len(ends), device=ends.device) * BLOCK
        lower = starts_B[:, None] > starts_B  # the keys' block lies before the queries'
        least_B, most_B = ends.amin(1), ends.amax(1)
        some = lower & (most_B > starts_B[:, None])
        whole = lower & (least_B >= starts_B[:, None] + BLOCK)
        if window is not None:
            deepest_B = self._by_block(self._positions_T, 0).amax(1)
            highest_B = self._by_block(self._positions_T, length).amin(1)
            some &= highest_B[:, None] - deepest_B < window
            whole &= deepest_B[:, None] - highest_B < window
        some.fill_diagonal_(True)
        return BlockMask.from_kv_blocks(
            *_listed(some & ~whole),
            *_listed(whole),
            BLOCK_SIZE=BLOCK,
            mask_mod=self.sees(window),
            seq_lengths=(length, length),
        )

    def _by_block(self, values_T: Tensor, filling: int) -> Tensor:
        """[T] -> [B, BLOCK]."""
        return F.pad(values_T, (0, -len(values_T) % BLOCK), value=filling).view(-1, BLOCK)


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """[B, B], by queries and keys -> how many per line [1, 1, B], and which first [1, 1, B, B]."""
    order = blocks.int().argsort(dim=1, descending=True, stable=True)
    return blocks.sum(1, dtype=torch.int32)[None, None], order.int()[None, None]


@cache
def _compiled() -> Any:
    """FlexAttention as one kernel; uncompiled it lays all scores out."""
    return torch.compile(flex_attention, dynamic=True)
