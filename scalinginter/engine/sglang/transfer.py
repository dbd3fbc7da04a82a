"""Ways for a snapshot to travel to one server."""

from typing import Protocol

from scalinginter.engine.sglang.memory import handles
from scalinginter.engine.sglang.server import Server, ServerError
from scalinginter.engine.sglang.weights import Snapshot, Source


class Transfer(Protocol):
    """A way for weights to travel."""

    async def send(self, server: Server, snapshot: Snapshot, *, flush: bool) -> None:
        """Make a server answer by `snapshot`, under its name, and drop its cache if `flush`.

        Raises `ServerError`; the server's weights may then be of two versions.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the servers."""
        ...


class DiskTransfer:
    """By way of a folder that the server can read."""

    def __init__(self, source: Source, timeout_s: float) -> None:
        self._source, self._timeout_s = source, timeout_s

    async def send(self, server: Server, snapshot: Snapshot, *, flush: bool) -> None:
        """See `Transfer.send`."""
        body = {
            "model_path": str(self._source.saved(snapshot.name).resolve()),
            "weight_version": snapshot.name,
            "flush_cache": flush,
        }
        await server.post("/update_weights_from_disk", body, timeout_s=self._timeout_s)

    async def aclose(self) -> None:
        """See `Transfer.aclose`."""


class TensorTransfer:
    """By way of memory that the server, on this machine, opens. Snapshots have to be `shared`."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    async def send(self, server: Server, snapshot: Snapshot, *, flush: bool) -> None:
        """See `Transfer.send`."""
        body = {
            "serialized_named_tensors": [
                handles(snapshot.tensors) for _ in range(server.tensor_parallel)
            ],
            "weight_version": snapshot.name,
            "flush_cache": flush,
        }
        await open_update(server, self._timeout_s)
        try:
            await server.post("/update_weights_from_tensor", body, timeout_s=self._timeout_s)
        finally:  # else the next one cannot begin
            await end_update(server, self._timeout_s)

    async def aclose(self) -> None:
        """See `Transfer.aclose`."""


async def open_update(server: Server, timeout_s: float) -> None:
    """Make a server ready for tensors; an update that broke off and is still open is closed."""
    try:
        await server.post("/begin_weight_update", {}, timeout_s=timeout_s)
    except ServerError as error:
        if error.status is None:
            raise
        await end_update(server, timeout_s)
        await server.post("/begin_weight_update", {}, timeout_s=timeout_s)


async def end_update(server: Server, timeout_s: float) -> None:
    """Tell a server that all tensors were sent."""
    await server.post("/end_weight_update", {}, timeout_s=timeout_s)
