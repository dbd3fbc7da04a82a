"""From a recipe's `engine` block and a policy to an engine."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from scalinginter.config.engines import EngineConfig
from scalinginter.engine.sglang.broadcast import BroadcastTransfer
from scalinginter.engine.sglang.client import SGLangEngine
from scalinginter.engine.sglang.delivery import Delivery
from scalinginter.engine.sglang.launch import make_processes, refuse_missing_command
from scalinginter.engine.sglang.memory import own_copy, shared_copy
from scalinginter.engine.sglang.transfer import DiskTransfer, TensorTransfer
from scalinginter.engine.sglang.upkeep import Upkeep
from scalinginter.engine.sglang.weights import Source
from scalinginter.errors import UserError
from scalinginter.model.causal import sequence_logprobs
from scalinginter.model.load import Policy, save_whole
from scalinginter.model.lora import merged_tensors


def make_sglang_engine(
    config: EngineConfig,
    policy: Policy,
    *,
    max_context: int,
    stop_id: int,
    constrained: frozenset[int] | None,
    seed: int,
    folder: Path | None,
    share: tuple[int, int] = (0, 1),
) -> SGLangEngine:
    """Make the engine; no server is started before it is needed.

    Args:
        stop_id: the id that ends an assistant turn.
        constrained: the stop ids of constrained answers; None: there will be none.
        seed: of the servers' own draws.
        folder: for logs and weights; None: a temporary one, removed in the end.
        share: (number of this process, number of processes); each has servers of its own.

    Raises `UserError` if servers cannot be launched here, or if there are too few.
    """
    on_close = None
    rank, size = share
    urls = config.urls[rank::size]
    _refuse_missing_servers(config, size)
    if folder is None:
        temporary = Path(tempfile.mkdtemp(prefix="scalinginter-engine-"))
        folder = temporary
        on_close = lambda: shutil.rmtree(temporary, ignore_errors=True)  # noqa: E731

    if size > 1:
        folder = folder / f"rank{rank}"

    embeddings = policy.model.get_input_embeddings()
    assert isinstance(embeddings, torch.nn.Embedding)
    delivery = make_delivery(config, policy, embeddings.num_embeddings, stop_id, folder)

    def present() -> tuple[Path, str]:
        return upkeep.delivery.saved(upkeep.present()), upkeep.present()

    processes = []
    if config.launch is not None:
        dtype = str(policy.model.dtype).removeprefix("torch.")
        processes = make_processes(config.launch, folder, present, dtype, seed, rank)
    upkeep = Upkeep(
        config,
        delivery,
        processes=processes,
        urls=urls,
        max_context=max_context,
        constrained=constrained,
        on_close=on_close,
    )
    return SGLangEngine(
        upkeep,
        max_context=max_context,
        vocabulary=embeddings.num_embeddings,
        request_timeout_s=config.request_timeout_s,
    )


def _refuse_missing_servers(config: EngineConfig, size: int) -> None:
    """Raise `UserError` if `size` processes cannot each have a server."""
    if config.launch is not None:
        refuse_missing_command(config.launch)
    elif len(config.urls) < size:
        raise UserError(
            f"engine.url names {len(config.urls)} servers for {size} processes; each process needs "
            "one of its own, so name more of them, or use engine.launch"
        )


def make_delivery(
    config: EngineConfig, policy: Policy, vocabulary: int, stop_id: int, folder: Path
) -> Delivery:
    """Make what brings the policy to servers, through `folder` or by memory.

    `vocabulary`: number of ids. `stop_id`: the one that ends an assistant turn.
    """

    def save(target: Path, tensors: Mapping[str, torch.Tensor]) -> None:
        save_whole(policy.model, policy.tokenizer, target, tensors)
        _end_with(stop_id, target)

    source = Source(
        lambda: merged_tensors(policy.model),
        save,
        lambda prompts: sequence_logprobs(policy.model, prompts, packed=policy.packed),
        vocabulary=vocabulary,
        folder=folder / "weights",
        copied={"tensor": shared_copy, "distributed": own_copy}.get(config.sync.method),
    )
    timeout_s = config.request_timeout_s
    ways = {
        "disk": DiskTransfer(source, timeout_s),
        "tensor": TensorTransfer(timeout_s),
        "distributed": BroadcastTransfer(policy.model.device, timeout_s),
    }
    return Delivery(source, ways, config.sync, timeout_s)


def _end_with(stop_id: int, folder: Path) -> None:
    """Make `stop_id` the model's one end of text: a server ends constrained answers with any."""
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        if path.is_file():
            path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": stop_id}))
