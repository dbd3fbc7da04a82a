"""Attention over packed rows: what the rows of a training micro-batch see, and how fast.

A micro-batch is one packed row [1, T]: the prefix tree of its rows. Linear layers and norms run on
it as it is, without padding. Only attention needs to know what sees what.
Shape suffix: `_T` packed tokens.
"""

import torch
from torch import Tensor

from scalinginter.train.buckets import Buckets
from scalinginter.train.flex import TreeMask, can_attend_in_flex
from scalinginter.train.spans import Spans, attend_in_spans, can_attend_in_spans
from scalinginter.train.trie import PrefixTree


class PackedLayout:
    """Implements `AttentionLayout` for rows that share prefixes.

    On a CPU every segment attends where it lies (`spans`), on a GPU under a mask of the tree
    (`flex`). Where neither can, rows are gathered from first to last id into a few buckets of
    similar length.

    Args:
        tree: The rows.
        device: Where the index tensors live.
        outputs: Packed tokens whose last hidden state is looked at; None: all.
    """

    def __init__(
        self,
        tree: PrefixTree,
        device: torch.device | str = "cpu",
        outputs: Tensor | None = None,
    ) -> None:
        self.tree, self.outputs, self._device = tree, outputs, device
        self.row_lengths = tree.lengths
        self._spans = Spans.of(tree.segments)
        self._buckets: Buckets | None = None
        self._mask: TreeMask | None = None

    @property
    def num_slots(self) -> int:
        """Places that attention was computed for."""
        return self._buckets.num_slots if self._buckets else len(self.tree)

    @property
    def num_padding(self) -> int:
        """Those of them that hold nothing."""
        return self._buckets.num_padding if self._buckets else 0

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scaling: float,
        sliding_window: int | None,
    ) -> Tensor:
        """Attend. query [1, H, T, D]; key, value [1, Hkv, T, D]; returns [1, T, H, D]."""
        if sliding_window is not None and sliding_window >= max(self.row_lengths):
            sliding_window = None  # all is seen
        if can_attend_in_flex(query, value):
            if self._mask is None:
                self._mask = TreeMask(self.tree, self._device)
            attended = self._mask.attend(query, key, value, scaling, sliding_window)
            return attended.transpose(1, 2)
        query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
        if sliding_window is None and can_attend_in_spans(query, value):
            return attend_in_spans(query, key, value, self._spans, scaling)[None]
        if self._buckets is None:
            self._buckets = Buckets(self.tree, self._device)
        return self._buckets.attend(query, key, value, scaling, sliding_window)[None]
