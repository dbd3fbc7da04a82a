"""What goes over the wire: a request as SGLang's /generate takes it, and its answer, checked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalinginter.engine.base import GenerateRequest

_SEED_BITS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Piece:
    """What one /generate call gave: a part of an answer, often all of it."""

    ids: list[int]
    logprobs: list[float]  # of each id under the distribution it was drawn from
    weights: list[str]  # the weight_version that drew each id
    prompt_tokens: int
    cached_tokens: int


def generate_body(
    request: GenerateRequest,
    ids: Sequence[int],
    num_answered: int,
    *,
    rid: str,
    weights: str,
    ebnf: str | None,
) -> dict[str, Any]:
    """Return the body that asks for the rest of an answer.

    The cache is looked up under `weights`: what older ones computed is never found. `ids` is the
    prompt and the `num_answered` ids of the answer so far. Every knob that would bend the
    distribution is set to do nothing: a server may have defaults of its own, from the model's
    generation_config.
    """
    room = request.max_new_tokens - num_answered
    before_stops = request.min_new_tokens - 1 - num_answered  # ids that cannot end the answer
    unstoppable = before_stops > 0 or not request.stop_ids
    if before_stops > 0 and request.min_new_tokens < request.max_new_tokens:
        room = min(room, before_stops)
    params: dict[str, Any] = {
        "max_new_tokens": room,
        "temperature": request.temperature,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "stop_token_ids": sorted(request.stop_ids),
        "ignore_eos": unstoppable,  # its own end of text; and stop_token_ids with it
        "skip_special_tokens": False,
        "sampling_seed": request.seed & _SEED_BITS,
    }
    if ebnf is not None:
        params["ebnf"] = ebnf
    return {
        "rid": rid,
        "input_ids": list(ids),
        "sampling_params": params,
        "return_logprob": True,
        "extra_key": weights,
    }


def parse_piece(reply: Any) -> Piece:
    """Read an answer of /generate. Raises `ValueError` for one that is not whole or not finite."""
    ids = reply["output_ids"]
    meta = reply["meta_info"]
    pairs = meta.get("output_token_logprobs") or []
    if [pair[1] for pair in pairs] != ids:
        raise ValueError(f"{len(ids)} ids came with log-probs of {len(pairs)}, or of other ids")
    logprobs = [pair[0] for pair in pairs]
    if not all(value is not None and math.isfinite(value) for value in logprobs):
        raise ValueError("log-probs are not finite; the weights there have blown up or are torn")
    return Piece(
        ids=ids,
        logprobs=logprobs,
        weights=_weights_of(meta, len(ids)),
        prompt_tokens=meta["prompt_tokens"],
        cached_tokens=meta["cached_tokens"],
    )


def _weights_of(meta: dict[str, Any], count: int) -> list[str]:
    spans = meta.get("weight_versions")
    if not spans:
        return [meta["weight_version"]] * count
    weights = [span["version"] for span in spans for _ in range(span["start"], span["end"])]
    if len(weights) < count:  # what an aborted answer drew last
        weights += [meta["weight_version"]] * (count - len(weights))
    return weights[:count]
