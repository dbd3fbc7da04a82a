"""Attention of one bucket of rows over the KV cache (shape legend: `slots`).

The G query heads that share a key head are folded into the query length, so that keys are read
once and never repeated.
"""

import torch
import torch.nn.functional as F

from scalinginter.engine.buckets import Bucket, Common, make_mask, take
from scalinginter.engine.slots import by_products


def attend_bucket(
    bucket: Bucket,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scaling: float,
    window: int | None,
) -> torch.Tensor:
    """query [N * Q, H, D], keys and values [S, K, C, D] -> [N * Q, H, D]."""
    num, heads = len(bucket.positions), keys.shape[1]
    group = query.shape[1] // heads
    folded = query.view(num, bucket.width, heads, group, query.shape[2])
    folded = folded.transpose(1, 2).reshape(num, heads, bucket.width * group, query.shape[2])
    window = None if window is None or window >= bucket.length else window
    if by_products(query):
        out = _by_products(bucket, folded.mul(scaling), keys, values, group, window)
    else:
        mask = bucket.mask(0, window, group, query.dtype)
        own = bucket.read(keys), bucket.read(values)
        out = F.scaled_dot_product_attention(folded, *own, attn_mask=mask, scale=scaling)
    out = out.view(num, heads, bucket.width, group, values.shape[3]).transpose(1, 2)
    return out.reshape(num * bucket.width, heads * group, values.shape[3])


def _by_products(
    bucket: Bucket,
    folded: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    group: int,
    window: int | None,
) -> torch.Tensor:
    """folded [N, K, QG, D], scaled -> [N, K, QG, D].

    With few queries a slot, two matrix products and a softmax in between read the cache faster
    than a fused kernel. Columns of the scores: keys in common, then a row's own.
    """
    num, heads, width, size = folded.shape
    common = bucket.common if window is None else None
    first = common.length if common else 0
    pairs, columns = num * heads, bucket.length - first
    own_keys = bucket.read(keys, first).transpose(2, 3).reshape(pairs, size, columns)
    scores = torch.bmm(folded.reshape(pairs, width, size), own_keys)
    scores = scores.view(num, heads, width, columns)
    if common:
        scores = torch.cat((_common_scores(common, folded, keys), scores), dim=-1)
    seen = bucket.seen if window is None else 0
    if seen < bucket.length:
        scores[..., seen:] += bucket.mask(seen, window, group, scores.dtype)
    weights = torch.softmax(scores, dim=-1)
    own_values = bucket.read(values, first).reshape(pairs, columns, -1)
    out = torch.bmm(weights[..., first:].view(pairs, width, columns), own_values)
    out = out.view(num, heads, width, -1)
    if common:
        out += _common_values(common, weights[..., :first], values)
    return out


def _common_scores(common: Common, folded: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """The scores [N, K, QG, length] of keys that are read once for all rows of a group."""
    found = take(keys[:, :, : common.length], common.slots).transpose(2, 3)  # [M, K, D, length]
    scores = torch.bmm(_by_group(common, folded, len(found)), found.flatten(0, 1))
    return _by_row(common, scores.view(*found.shape[:2], -1, common.length), folded.shape[2])


def _common_values(common: Common, weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """What the weights [N, K, QG, length] of those keys take: [N, K, QG, D]."""
    found = take(values[:, :, : common.length], common.slots)  # [M, K, length, D]
    taken = torch.bmm(_by_group(common, weights, len(found)), found.flatten(0, 1))
    return _by_row(common, taken.view(*found.shape[:2], -1, found.shape[3]), weights.shape[2])


def _by_group(common: Common, rows: torch.Tensor, num_groups: int) -> torch.Tensor:
    """[N, K, QG, X] -> [M * K, R * QG, X]."""
    rows = rows if common.rows is None else rows.index_select(0, common.rows)
    heads, size = rows.shape[1], rows.shape[3]
    rows = rows.unflatten(0, (num_groups, -1)).transpose(1, 2)
    return rows.reshape(num_groups * heads, -1, size)


def _by_row(common: Common, groups: torch.Tensor, width: int) -> torch.Tensor:
    """[M, K, R * QG, X] -> [N, K, QG, X]."""
    rows = groups.unflatten(2, (-1, width)).transpose(1, 2).flatten(0, 1)
    return rows if common.places is None else rows.index_select(0, common.places)


def attend_long(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scaling: float,
    window: int | None,
) -> torch.Tensor:
    """One row: query [1, H, Q, D], keys and values [1, K, L, D] -> [Q, H, D]."""
    count, length = query.shape[2], keys.shape[2]
    causal = count == length and (window is None or window >= length)
    positions = torch.arange(length - count, length, device=query.device)[None]
    mask = None if causal else make_mask(positions, 0, length, window, query.dtype)[:, None]
    out = F.scaled_dot_product_attention(
        query,
        keys.contiguous() if keys.stride(-1) != 1 else keys,  # the fused kernel asks for it
        values,
        attn_mask=mask,
        is_causal=causal,
        scale=scaling,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return out[0].transpose(0, 1)
