"""Bringing the policy's weights to servers."""

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from scalinginter.engine.sglang.server import Server, ServerError


class WeightSync(Protocol):
    """A way for weights to travel."""

    async def push(self, servers: Sequence[Server], name: str) -> dict[str, float]:
        """Bring the policy's weights to `servers` under the weight_version `name`.

        A name that was pushed before means the weights of then: a server that was down gets them
        late. A server that fails is told by `server.lost`; the others go on. Returns metrics
        `sync/...`.
        """
        ...


class DiskSync:
    """Weights by way of a folder that the servers can read.

    Args:
        save: writes the policy into a folder.
        folder: where; two copies at most are kept there.
        timeout_s: of one server's loading.
    """

    def __init__(self, save: Callable[[Path], None], folder: Path, *, timeout_s: float) -> None:
        self._save, self._folder, self._timeout_s = save, folder, timeout_s
        self._saved: tuple[str, Path] | None = None

    def saved(self, name: str) -> Path:
        """Return the folder that holds the weights called `name`; the present ones, if it is new.

        The folder before it stays: a server may be loading from it.
        """
        if self._saved is None or self._saved[0] != name:
            before = self._saved[1] if self._saved else None
            target = self._folder / name
            self._folder.mkdir(parents=True, exist_ok=True)
            self._save(target)
            for other in self._folder.iterdir():
                if other not in (target, before):
                    shutil.rmtree(other, ignore_errors=True)
            self._saved = name, target
        return self._saved[1]

    async def push(self, servers: Sequence[Server], name: str) -> dict[str, float]:
        """See `WeightSync.push`."""
        started = time.perf_counter()
        folder = self.saved(name).resolve()
        await asyncio.gather(*(self._load(server, folder, name) for server in servers))
        return {"sync/seconds": time.perf_counter() - started}

    async def _load(self, server: Server, folder: Path, name: str) -> None:
        body = {"model_path": str(folder), "weight_version": name, "flush_cache": True}
        try:
            await server.post("/update_weights_from_disk", body, timeout_s=self._timeout_s)
        except ServerError as error:
            server.lost(f"it did not take the weights: {error}")
        else:
            server.weights = name
