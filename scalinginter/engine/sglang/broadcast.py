"""Weights by broadcast: the learner and one server's processes are a group of torch.distributed.

A group per server, so that one that is lost takes no other along. Both sides make the group beside
the default one, from the same store and name, as SGLang does (`init_weights_update_group`).
"""

import asyncio
import itertools
import os
import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import GroupName, _new_process_group_helper, _world

from scalinginter.engine.sglang.launch import free_port
from scalinginter.engine.sglang.server import Server, ServerError
from scalinginter.engine.sglang.transfer import end_update, open_update
from scalinginter.engine.sglang.weights import Snapshot

_QUICK_S = 10.0
_numbers = itertools.count()


class BroadcastTransfer:
    """Implements `Transfer`, over NCCL for a policy on a GPU, else over gloo.

    Args:
        device: of the policy.
        timeout_s: of joining a server, and of one transfer.
    """

    def __init__(self, device: torch.device, timeout_s: float) -> None:
        self._device, self._timeout_s = device, timeout_s
        self._groups: dict[Server, tuple[str, dist.ProcessGroup]] = {}

    async def send(self, server: Server, snapshot: Snapshot, *, flush: bool) -> None:
        """See `Transfer.send`."""
        try:
            name, group = self._groups.get(server) or await self._join(server)
            await open_update(server, self._timeout_s)
            try:
                await self._broadcast(server, snapshot, name, group, flush)
            finally:
                await end_update(server, self._timeout_s)
        except (ServerError, RuntimeError) as error:
            await self._leave(server)
            if isinstance(error, ServerError):
                raise
            # Gloo's and NCCL's own; whether the server lives is found out by the next call
            raise ServerError(server.url, f"broadcast: {error}", 500) from error

    async def aclose(self) -> None:
        """Leave all groups."""
        for server in list(self._groups):
            await self._leave(server)

    async def _broadcast(
        self,
        server: Server,
        snapshot: Snapshot,
        name: str,
        group: dist.ProcessGroup,
        flush: bool,
    ) -> None:
        tensors = snapshot.tensors
        body = {
            "names": list(tensors),
            "dtypes": [str(t.dtype).removeprefix("torch.") for t in tensors.values()],
            "shapes": [list(t.shape) for t in tensors.values()],
            "group_name": name,
            "weight_version": snapshot.name,
            "flush_cache": flush,
        }
        url = "/update_weights_from_distributed"
        received = asyncio.ensure_future(server.post(url, body, timeout_s=self._timeout_s))
        sent = asyncio.ensure_future(asyncio.to_thread(self._send_all, tensors, group))
        await _both(received, sent)

    def _send_all(self, tensors: Mapping[str, torch.Tensor], group: dist.ProcessGroup) -> None:
        for tensor in tensors.values():
            options = dist.BroadcastOptions()
            options.rootRank = 0
            group.broadcast([tensor.to(self._device)], options).wait()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    async def _join(self, server: Server) -> tuple[str, dist.ProcessGroup]:
        name = f"scalinginter-{os.getpid()}-{next(_numbers)}"
        backend = "nccl" if self._device.type == "cuda" else "gloo"
        host, port, size = _address_for(server.url), free_port(), 1 + server.tensor_parallel
        body = {
            "master_address": host,
            "master_port": port,
            "rank_offset": 1,
            "world_size": size,
            "group_name": name,
            "backend": backend,
        }
        url = "/init_weights_update_group"
        theirs = asyncio.ensure_future(server.post(url, body, timeout_s=self._timeout_s))
        timeout = timedelta(seconds=self._timeout_s)

        def join() -> dist.ProcessGroup:
            store = dist.TCPStore(host, port, size, is_master=True, timeout=timeout)
            group, _ = _new_process_group_helper(
                size,
                0,
                [],
                dist.Backend(backend),
                dist.PrefixStore(name, store),
                group_name=GroupName(name),
                timeout=timeout,
            )
            assert isinstance(group, dist.ProcessGroup)
            _world.pg_group_ranks[group] = {rank: rank for rank in range(size)}  # to destroy it by
            return group

        ours = asyncio.ensure_future(asyncio.to_thread(join))
        await _both(theirs, ours)
        self._groups[server] = name, ours.result()
        return self._groups[server]

    async def _leave(self, server: Server) -> None:
        """Forget the group: the next transfer makes a new one."""
        found = self._groups.pop(server, None)
        if found is None:
            return
        name, group = found
        try:
            body = {"group_name": name}
            await server.post("/destroy_weights_update_group", body, timeout_s=_QUICK_S)
        except ServerError:
            pass
        dist.destroy_process_group(group)


async def _both(first: asyncio.Future[Any], second: asyncio.Future[Any]) -> None:
    """Wait for both, or for the first error: the other side then waits in vain, for its timeout."""
    done, left = await asyncio.wait({first, second}, return_when=asyncio.FIRST_EXCEPTION)
    for task in left:
        task.cancel()
    for task in done:
        task.result()


def _address_for(url: str) -> str:
    """Return the address of this machine on the way to a server."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent
        probe.connect((parts.hostname or "127.0.0.1", parts.port or 80))
        return probe.getsockname()[0]
