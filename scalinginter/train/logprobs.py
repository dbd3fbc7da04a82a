# ruff: noqa: N803, N806 (names end in the shape of the tensor)
"""Log-probs of the trained tokens of a micro-batch, under the distribution they were drawn from.

Only the logits at position t-1 of a trained token t are computed, once for rows that share it. A
token drawn under a constraint has the softmax over the allowed ids alone; the others do not enter.
Shape suffixes: `_N` trained tokens, `_D` draws, `_C` constrained ones (the first C), `V` ids.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scalinginter.train.batch import Constraints, MicroBatch

# Logits worked on at once: on a CPU they stay in its cache, elsewhere the bound is on memory.
CPU_ELEMENTS, ELEMENTS = 1 << 18, 1 << 23


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log-prob and entropy (nats) of each trained token, float32 [N]."""

    logprobs: Tensor
    entropy: Tensor


def score(
    model: nn.Module,
    batch: MicroBatch,
    *,
    packed: bool,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> TokenScores:
    """Run the model over a micro-batch and score its trained tokens.

    Args:
        model: A causal language model of transformers, wrapped for training or not.
        batch: From `pack`.
        packed: Whether the model was prepared for packed rows; if not, it runs row by row.
        temperature: At which the tokens were drawn.
        entropy_gradient: Whether the loss has an entropy term.
    """
    logits = (_packed_logits if packed else _row_logits)(model, batch)
    logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    scores = _score_draws(logits, batch, entropy_gradient)
    if len(batch.draw_N) > len(batch.targets_D):
        scores = (values_D.index_select(0, batch.draw_N) for values_D in scores)
    return TokenScores(*scores)


def _score_draws(
    logits: Tensor, batch: MicroBatch, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Return log-probs and entropies, [D] each."""
    if batch.constraints is None:
        return _free(logits, batch.targets_D, entropy_gradient)
    bound = len(batch.constraints.line_C)
    logprobs_C, entropy_C = _constrained(logits[:bound], batch.constraints)
    if bound == len(logits):
        return logprobs_C, entropy_C
    logprobs, entropy = _free(logits[bound:], batch.targets_D[bound:], entropy_gradient)
    return torch.cat([logprobs_C, logprobs]), torch.cat([entropy_C, entropy])


def _packed_logits(model: nn.Module, batch: MicroBatch) -> Tensor:
    return model(
        input_ids=batch.ids_T.unsqueeze(0),
        position_ids=batch.positions_T.unsqueeze(0),
        attention_layout=batch.layout,
        logits_to_keep=batch.context_D,
        use_cache=False,
    ).logits[0]


def _row_logits(model: nn.Module, batch: MicroBatch) -> Tensor:
    """For models whose attention is their own: each row with its prompt, one at a time."""
    before_D = batch.positions_T[batch.context_D]
    draws, pieces = [], []
    for at, row in enumerate(batch.rows):
        own = (batch.row_D == row).nonzero().squeeze(1)
        if not len(own):  # all that this row drew has been scored with others
            continue
        draws.append(own)
        ids = batch.ids_T[torch.from_numpy(batch.layout.tree.index(at)).to(own.device)]
        output = model(input_ids=ids[None], logits_to_keep=before_D[own], use_cache=False)
        pieces.append(output.logits[0])
    return torch.cat(pieces)[torch.cat(draws).argsort()]


def _free(logits: Tensor, targets_D: Tensor, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
    if entropy_gradient:
        logprobs = logits.log_softmax(-1)
        return _pick(logprobs, targets_D), -(logprobs.exp() * logprobs).sum(-1)
    return _Scores.apply(logits, targets_D)  # type: ignore[return-value]


class _Scores(torch.autograd.Function):
    """Log-probs of the targets and entropies, some rows at a time; entropies have no gradient.

    d logprob[t] / d logits = onehot(t) - softmax(logits).
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets_D: Tensor) -> tuple[Tensor, Tensor]:
        probs = torch.empty_like(logits)
        logprobs_D, entropy_D = logits.new_empty(2, len(logits))
        elements = CPU_ELEMENTS if logits.device.type == "cpu" else ELEMENTS
        rows = max(1, elements // logits.shape[-1])
        for start in range(0, len(logits), rows):
            at = slice(start, start + rows)
            logprobs = logits[at].log_softmax(-1)
            logprobs_D[at] = _pick(logprobs, targets_D[at])
            torch.exp(logprobs, out=probs[at])
            entropy_D[at] = -torch.linalg.vecdot(probs[at], logprobs)
        ctx.save_for_backward(probs, targets_D)
        ctx.mark_non_differentiable(entropy_D)
        return logprobs_D, entropy_D

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        probs, targets_D = ctx.saved_tensors
        gradient_D = gradients[0].unsqueeze(1)
        return (probs * -gradient_D).scatter_add_(1, targets_D.unsqueeze(1), gradient_D), None


def _pick(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(1, index.unsqueeze(1)).squeeze(1)


def _constrained(logits_C: Tensor, constraints: Constraints) -> tuple[Tensor, Tensor]:
    """Softmax over the allowed ids: [C, A] logits are all that is looked at."""
    ids = constraints.table[constraints.line_C]
    absent = ids < 0
    logits = logits_C.gather(1, ids.clamp(min=0)).masked_fill(absent, -torch.inf)
    logprobs = logits.log_softmax(-1)
    surprise = torch.where(absent, 0.0, logprobs)
    return _pick(logprobs, constraints.target_C), -(surprise.exp() * surprise).sum(-1)
