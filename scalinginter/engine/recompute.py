"""Forward passes without a cache, for models whose attention cannot be packed. Slow but right."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from scalinginter.engine.answer import Answer


class RecomputeForward:
    """Forwards the whole context of every answer for every token.

    Rows are padded on the right: a causal model (attention or state space) never looks ahead, so
    padding behind the last token changes nothing before it and no mask is needed.
    """

    forks = 0  # nothing is kept, so nothing can fail to match

    def __init__(self, model: PreTrainedModel, *, max_batch_tokens: int, pad_id: int) -> None:
        self._model = model
        self._max_batch_tokens = max_batch_tokens
        self._pad_id = pad_id

    def open(self, answer: Answer) -> bool:
        return True

    def pause(self, name: str) -> None:
        pass

    def close(self, name: str) -> None:
        pass

    def reset(self, *, free_memory: bool) -> None:
        pass

    def forward(self, answers: Sequence[Answer]) -> tuple[torch.Tensor, list[tuple[Answer, int]]]:
        """Logits [M, V] and the row of each answer, in batches of `max_batch_tokens` or fewer."""
        order = sorted(answers, key=lambda answer: (len(answer.ids), answer.request.session))
        parts, done = [], []
        while order:
            width = len(order[0].ids)
            size = 1
            while size < len(order) and len(order[size].ids) * (size + 1) <= self._max_batch_tokens:
                width = len(order[size].ids)
                size += 1
            batch, order = order[:size], order[size:]
            done += [(answer, len(done) + i) for i, answer in enumerate(batch)]
            parts.append(self._logits(batch, width))
        return torch.cat(parts), done

    def _logits(self, batch: list[Answer], width: int) -> torch.Tensor:
        rows = [answer.ids + [self._pad_id] * (width - len(answer.ids)) for answer in batch]
        ends = sorted({len(answer.ids) - 1 for answer in batch})
        device = self._model.device
        logits = self._model(
            input_ids=torch.tensor(rows, device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(ends, device=device),
        ).logits
        for answer in batch:
            answer.forwarded += width
        columns = [ends.index(len(answer.ids) - 1) for answer in batch]
        return logits[torch.arange(len(batch)), columns]
