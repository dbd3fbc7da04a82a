"""Which SGLang this works with, and whether a server does what the trainer counts on."""

import re

from scalinginter.engine.sglang.server import Server
from scalinginter.errors import UserError

TESTED = "0.5.23"
MIN_VERSION, BELOW = (0, 5, 23), (0, 6)
_NEVER_DRAWN = -1e30  # log-probs of masked ids come as the smallest float
_INSTALL = "pip install 'scalinginter[sglang]'"


def check_version(found: str, url: str) -> None:
    """Raise `UserError` for a server of a version that this does not know."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:3])
    if not MIN_VERSION <= numbers < BELOW:
        lowest, below = ".".join(map(str, MIN_VERSION)), ".".join(map(str, BELOW))
        raise UserError(
            f"engine: the server at {url} is SGLang {found}; supported are {lowest} and newer, "
            f"below {below} (tested: {TESTED}). Install one on the server's side: {_INSTALL}"
        )


async def check_server(server: Server, *, max_context: int, timeout_s: float) -> None:
    """Ask a server what it is and raise `UserError` where training on its answers would be wrong.

    Sets `server.data_parallel` and `tensor_parallel`. Raises `ServerError` if it does not answer.
    """
    info = await server.get("/server_info", timeout_s=timeout_s)
    if not isinstance(info, dict) or "version" not in info:
        raise UserError(
            f"engine: what answers at {server.url} is no SGLang server (its /server_info tells no "
            "version); give the address of `python -m sglang.launch_server`"
        )
    check_version(str(info["version"]), server.url)
    server.data_parallel = int(info.get("dp_size") or 1)
    server.tensor_parallel = int(info.get("tp_size") or 1)
    rooms = [info.get(key) for key in ("max_req_input_len", "max_total_num_tokens")]
    room = min((int(value) for value in rooms if value), default=max_context)
    if room < max_context:
        raise UserError(
            f"engine: the server at {server.url} takes prompts of at most {room} tokens, below "
            f"rollout.max_context ({max_context}); start it with a larger --context-length and "
            "--max-total-tokens (or memory share), or lower rollout.max_context"
        )
    # A sync that broke off, of an earlier run even, may have left it paused
    await server.post("/continue_generation", {}, timeout_s=timeout_s)
    await _check_log_probs(server, timeout_s)


async def _check_log_probs(server: Server, timeout_s: float) -> None:
    """The log-probs must be of the tempered distribution: a gap between two ids halves at T = 2.

    SGLANG_RETURN_ORIGINAL_LOGPROB=1 would return those of T = 1.
    """
    gaps = []
    for temperature in (1.0, 2.0):
        reply = await server.post(
            "/generate",
            {
                "input_ids": [0],
                "sampling_params": {"max_new_tokens": 1, "temperature": temperature},
                "return_logprob": True,
                "top_logprobs_num": 2,
            },
            timeout_s=timeout_s,
        )
        (first, second) = reply["meta_info"]["output_top_logprobs"][0]
        gaps.append(first[0] - second[0])
    if abs(gaps[0] - 2 * gaps[1]) > 0.2 * abs(gaps[0]) + 1e-3:
        raise UserError(
            f"engine: the server at {server.url} returns log-probs of temperature 1 whatever the "
            "temperature is; start it without SGLANG_RETURN_ORIGINAL_LOGPROB"
        )


async def grammar_stops(
    server: Server, stop_ids: frozenset[int], *, timeout_s: float
) -> frozenset[int]:
    """Return the ids with which a server ends constrained answers, found out by asking.

    Raises `UserError` for a server whose grammars know no token ids, or that would end answers with
    several ids of which some are not among `stop_ids`.
    """
    if server.grammar_stops is None:
        reply = await server.post(
            "/generate",
            {
                "input_ids": [0],
                "sampling_params": {"max_new_tokens": 2, "ebnf": "root ::= Token(0)"},
                "return_logprob": True,
                "top_logprobs_num": 32,
            },
            timeout_s=timeout_s,
        )
        tops = reply["meta_info"]["output_top_logprobs"]
        if reply["output_ids"][:1] != [0] or len(tops) != 2:
            raise UserError(
                f"engine: the server at {server.url} does not keep to grammars over token ids, "
                "which chat.constrain_to_admissible needs; start it with --grammar-backend "
                "xgrammar (xgrammar 0.2 or newer)"
            )
        server.grammar_stops = frozenset(id for value, id, _ in tops[1] if value > _NEVER_DRAWN)
    strange = server.grammar_stops - stop_ids
    if strange and len(server.grammar_stops) > 1:
        raise UserError(
            f"engine: the server at {server.url} may end constrained answers with ids "
            f"{sorted(strange)}, which end no answer of this model's chat; leave one eos_token_id "
            "in the config.json and generation_config.json that it loads"
        )
    return server.grammar_stops
