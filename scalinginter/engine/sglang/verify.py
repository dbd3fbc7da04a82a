"""Whether a server holds a snapshot, tensor by tensor, and computes what the learner does."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from scalinginter.engine.sglang.server import Server, ServerError
from scalinginter.engine.sglang.weights import Snapshot

_ROWS = 2  # of each tensor that is looked at where checksums say nothing


class TornWeightsError(Exception):
    """A server answers, but does not hold the weights that it was sent."""


@dataclass(frozen=True)
class Check:
    """How many tensors of a snapshot were found on a server, and how."""

    checksums: int = 0  # by the checksum of all their bytes
    samples: int = 0  # by their first rows
    unchecked: int = 0  # the server has no way to tell


async def check_tensors(server: Server, snapshot: Snapshot, *, timeout_s: float) -> Check:
    """Compare every tensor of a server with a snapshot.

    By checksums where the server has them whole and computes them as they are computed here (on a
    GPU it does not), else by their first rows. Raises `TornWeightsError` for a wrong name, or
    tensors that are wrong or missing, `ServerError` for a server that does not answer.
    """
    about = await server.get("/model_info", timeout_s=timeout_s)
    name = about.get("weight_version")
    if name != snapshot.name:
        raise TornWeightsError(f"it says that it holds {name!r}, not {snapshot.name!r}")
    ranks = await _checksums(server, timeout_s)
    right: set[str] = set()
    wrong: set[str] = set()
    for theirs, sums in ranks.items():
        parts = snapshot.parts_of(theirs)
        if parts:
            (right if sums <= snapshot.digests(theirs) else wrong).update(parts)
    server.checksums_known |= bool(right)
    if not server.checksums_known:  # it may have other checksums than these
        wrong.clear()
    left = snapshot.tensors.keys() - right - wrong
    samples = await _sampled(server, snapshot, sorted(left), timeout_s)
    wrong |= {name for name, same in samples.items() if same is False}
    if wrong:
        first = ", ".join(sorted(wrong)[:3])
        raise TornWeightsError(
            f"{len(wrong)} of {len(snapshot.tensors)} tensors are not those of {snapshot.name!r}: "
            f"{first}{', ...' if len(wrong) > 3 else ''}"
        )
    seen = sum(same is True for same in samples.values())
    return Check(len(right), seen, len(left) - seen)


async def logprob_gaps(
    server: Server, prompts: Sequence[list[int]], expected: Snapshot, *, timeout_s: float
) -> list[float]:
    """Return |learner - server| of every id of the canary prompts but the first, in nats.

    `expected` has the learner's. Raises `ServerError`.
    """
    body = {
        "input_ids": list(prompts),
        "sampling_params": {"max_new_tokens": 1, "temperature": 1.0},
        "return_logprob": True,
        "logprob_start_len": 0,
        "extra_key": f"canary-{server.weights}",  # no cache of other weights
    }
    replies = await server.post("/generate", body, timeout_s=timeout_s)
    gaps = []
    for reply, wanted in zip(replies, expected.canaries, strict=True):
        got = [entry[0] for entry in reply["meta_info"]["input_token_logprobs"][1:]]
        gaps += [abs(a - b) for a, b in zip(got, wanted, strict=True)]
    return gaps


async def _checksums(server: Server, timeout_s: float) -> dict[str, set[str]]:
    """The checksums of each tensor of a server, over its copies; none if it has them in parts."""
    try:
        reply = await server.post("/weights_checker", {"action": "checksum"}, timeout_s=timeout_s)
    except ServerError as error:
        if error.status is None:
            raise
        return {}
    sums: dict[str, set[str]] = {}
    for rank in reply.get("ranks") or []:
        places = rank["parallelism_info"]
        for place in places if isinstance(places, list) else [places]:
            if place["tp_size"] > 1 or place["pp_size"] > 1:
                return {}
        for name, checksum in rank["checksums"].items():
            sums.setdefault(name, set()).add(checksum)
    return sums


async def _sampled(
    server: Server, snapshot: Snapshot, names: Sequence[str], timeout_s: float
) -> dict[str, bool | None]:
    """Whether the first rows of tensors are those of the snapshot; None: it cannot be told."""

    async def same(name: str) -> bool | None:
        if _is_cut_wrongly(name, snapshot):
            return None
        body = {"name": name, "truncate_size": _ROWS}
        try:
            got: Any = await server.post("/get_weights_by_name", body, timeout_s=timeout_s)
        except ServerError as error:
            if error.status is None:
                raise
            return None
        if not isinstance(got, list):
            return None
        wanted = snapshot.tensors[name][:_ROWS].detach().float().cpu()
        found = torch.tensor(got, dtype=torch.float32)
        return found.shape == wanted.shape and torch.equal(found, wanted)

    return dict(zip(names, await asyncio.gather(*map(same, names)), strict=True))


def _is_cut_wrongly(name: str, snapshot: Snapshot) -> bool:
    """SGLang cuts q, k and v out of their one tensor as if the heads filled the hidden size."""
    layer, found, _ = name.partition(".self_attn.")
    query = snapshot.tensors.get(f"{layer}.self_attn.q_proj.weight")
    if not found or query is None or "o_proj" in name or "norm" in name:
        return False
    return query.shape[0] != query.shape[1]
