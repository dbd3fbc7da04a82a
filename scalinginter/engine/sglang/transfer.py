"""Ways for a snapshot to travel to one server."""

from collections.abc import Mapping
from typing import Any, Protocol

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
        await self._post(server, "/begin_weight_update", {})
        try:
            await self._post(server, "/update_weights_from_tensor", body)
        finally:  # else the next one cannot begin
            await self._post(server, "/end_weight_update", {})

    async def _post(self, server: Server, path: str, body: Mapping[str, Any]) -> None:
        try:
            await server.post(path, body, timeout_s=self._timeout_s)
        except ServerError as error:
            # One that was cut off in the middle of an update has that one still open
            if path != "/begin_weight_update" or error.status is None:
                raise
            await self._post(server, "/end_weight_update", {})
            await server.post(path, body, timeout_s=self._timeout_s)
