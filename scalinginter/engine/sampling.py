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
    bound = [(i, left) for i, left in enumerate(allowed) if left is not None]
    if free:
        table = logits[_index([rows[i] for i in free], logits)]
        _fill(free, draw(table, [temperatures[i] for i in free], uniform[free]), ids, logprobs)
    if bound:
        at = [i for i, _ in bound]
        index = torch.from_numpy(_table([left for _, left in bound])).to(logits.device)
        kept = logits[_index([rows[i] for i in at], logits)[:, None], index.clamp(min=0)].float()
        kept = kept.masked_fill(index < 0, -torch.inf)
        columns, values = draw(kept, [temperatures[i] for i in at], uniform[at])
        _fill(at, (index.gather(1, columns[:, None])[:, 0], values), ids, logprobs)
    return ids, logprobs


def _index(rows: list[int], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(rows, device=like.device)


def _fill(
    at: list[int], drawn: tuple[torch.Tensor, torch.Tensor], ids: list[int], logprobs: list[float]
) -> None:
    """Write what was drawn to positions `at`, with one synchronisation."""
    tokens, values = torch.stack([part.double() for part in drawn]).tolist()
    for i, token, value in zip(at, tokens, values, strict=True):
        ids[i], logprobs[i] = int(token), value


def _table(allowed: Sequence[tuple[int, ...]]) -> NDArray[np.int64]:
    """Allowed ids as a rectangle, -1 where a row has fewer."""
    table = np.full((len(allowed), max(map(len, allowed))), -1, dtype=np.int64)
    for row, ids in enumerate(allowed):
        table[row, : len(ids)] = ids
    return table
