"""Drawing tokens. The full distribution always: no top-p, no top-k (their log-probs are
renormalised and would not be those of the policy that is trained)."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def uniforms(seeds: Sequence[int], indices: Sequence[int]) -> NDArray[np.float64]:
    """One number in [0, 1) per (seed, token index): splitmix64 used as a counter-based generator.

    A draw depends on its own seed and index alone, so neither the batch nor the order of requests
    can change it. (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014.)
    """
    key = _mix(np.array([seed & _MASK for seed in seeds], dtype=np.uint64) + np.uint64(_GOLDEN))
    counter = np.asarray(indices, dtype=np.uint64) + np.uint64(1)
    bits = _mix(key + counter * np.uint64(_GOLDEN))
    return (bits >> np.uint64(12)).astype(np.float64) * 2.0**-52


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def draw(
    logits: torch.Tensor, temperatures: Sequence[float], uniform: NDArray[np.float64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one column per row by inverting the distribution function.

    Args:
        logits: [N, V]; minus infinity where a column is not allowed.
        temperatures: [N]; 0 takes the largest logit, its log-prob is that of temperature 1.
        uniform: [N] in [0, 1).

    Returns:
        columns [N] int64 and log-probs [N] float32 under softmax(logits / temperature). A column
        of probability 0 is never drawn.
    """
    logits = logits.float()
    greedy = [row for row, value in enumerate(temperatures) if value == 0]
    if any(value not in (0, 1) for value in temperatures):
        scale = torch.tensor([value or 1.0 for value in temperatures], device=logits.device)
        logits = logits / scale[:, None]
    logprobs = torch.log_softmax(logits, dim=-1)
    cumulative = logprobs.double().exp().cumsum(-1)
    target = torch.from_numpy(uniform).to(logits.device) * cumulative[:, -1]
    columns = torch.searchsorted(cumulative, target[:, None], right=True)
    if greedy:
        columns[greedy] = logits[greedy].argmax(-1, keepdim=True)
    columns = columns.clamp_(max=logits.shape[1] - 1)  # NaN rows only; refused by the caller
    return columns[:, 0], logprobs.gather(1, columns)[:, 0]


def choose(
    logits: torch.Tensor,
    rows: Sequence[int],
    allowed: Sequence[tuple[int, ...] | None],
    temperatures: Sequence[float],
    uniform: NDArray[np.float64],
) -> tuple[list[int], list[float]]:
    """Draw one id for each of N answers.

    Args:
        logits: [M, V].
        rows: [N] the row of `logits` of each answer (answers with one context share a row).
        allowed: [N] ids that the answer's constraint leaves; None: all.
        temperatures: [N].
        uniform: [N] in [0, 1).

    Returns:
        N ids and N log-probs, renormalised over the allowed ids.
    """
    ids, logprobs = [0] * len(rows), [0.0] * len(rows)
    free = [i for i, left in enumerate(allowed) if left is None]
    bound = [i for i, left in enumerate(allowed) if left is not None]
    for part in (free, bound):
        if not part:
            continue
        at = torch.tensor([rows[i] for i in part], device=logits.device)
        if part is free:
            columns, values = draw(logits[at], [temperatures[i] for i in part], uniform[part])
        else:
            table = _table([allowed[i] for i in part])
            index = torch.from_numpy(table).to(logits.device)
            kept = logits[at[:, None], index.clamp(min=0)].float()
            kept = kept.masked_fill(index < 0, -torch.inf)
            picked, values = draw(kept, [temperatures[i] for i in part], uniform[part])
            columns = index.gather(1, picked[:, None])[:, 0]
        both = torch.stack((columns.double(), values.double())).tolist()  # one synchronisation
        for i, token, logprob in zip(part, *both, strict=True):
            ids[i], logprobs[i] = int(token), logprob
    return ids, logprobs


def _table(allowed: Sequence[tuple[int, ...] | None]) -> NDArray[np.int64]:
    """Allowed ids as a rectangle, -1 where a row has fewer."""
    width = max(len(ids or ()) for ids in allowed)
    table = np.full((len(allowed), width), -1, dtype=np.int64)
    for row, ids in enumerate(allowed):
        table[row, : len(ids or ())] = ids
    return table
