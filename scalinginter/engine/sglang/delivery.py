"""Bringing a version of the policy to servers, and making sure that it arrived.

paused -> sent -> every tensor compared --right--> goes on -> log-probs of canary prompts compared
            ^               |
            +--- by disk ---+--wrong again--> the server is lost: it gets no more requests
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean

from scalinginter.config.sync import SyncConfig
from scalinginter.engine.sglang.server import Server, ServerError
from scalinginter.engine.sglang.transfer import Transfer
from scalinginter.engine.sglang.verify import (
    Check,
    TornWeightsError,
    check_tensors,
    logprob_gaps,
)
from scalinginter.engine.sglang.weights import Snapshot, Source

FALLBACK = "disk"


class Delivery:
    """Brings snapshots to servers.

    Args:
        source: where they come from.
        ways: for them to travel, by method; `disk` is among them.
        config: the recipe's `engine.sync`.
        timeout_s: of one call.
    """

    def __init__(
        self, source: Source, ways: Mapping[str, Transfer], config: SyncConfig, timeout_s: float
    ) -> None:
        self.ways = dict(ways)
        self.refused: set[Server] = set()  # that answered, but did not take the last push
        self.source, self.config, self._timeout_s = source, config, timeout_s
        self._num_pushes = 0

    def saved(self, name: str) -> Path:
        """Return a folder with the policy called `name`; of the present one, if it is new."""
        return self.source.saved(name)

    async def push(self, servers: Sequence[Server], name: str) -> dict[str, float]:
        """Bring the policy to `servers` under the weight_version `name`, and verify it.

        A name that was pushed before means the weights of then: a server that was down gets them
        late. One that holds them already is only checked. A server that fails is told by
        `server.lost`, and is in `refused` if it answers all the same; the others go on. Returns
        metrics `sync/...` and `time/sync_...`.
        """
        started = time.perf_counter()
        snapshot = self.source.take(name)
        taken = time.perf_counter()
        self._num_pushes += 1
        self.refused -= set(servers)
        found = await asyncio.gather(*(self._bring(server, snapshot) for server in servers))
        metrics = {
            "sync/bytes": float(snapshot.num_bytes),
            "sync/tensors": float(len(snapshot.tensors)),
            "time/sync_snapshot_s": taken - started,
            "time/sync_servers_s": time.perf_counter() - taken,
        }
        for key in sorted({key for one in found for key in one}):
            values = [one[key] for one in found if key in one]
            fewest = key in ("sync/checksums", "sync/samples")
            total = key == "sync/repairs"
            metrics[key] = sum(values) if total else min(values) if fewest else max(values)
        return metrics

    async def aclose(self) -> None:
        """Let go of the servers."""
        for way in self.ways.values():
            await way.aclose()

    async def _bring(self, server: Server, snapshot: Snapshot) -> dict[str, float]:
        metrics: dict[str, float] = {}
        try:
            if server.usable:
                gaps = await self._gaps(server, snapshot)
                metrics["sync/logprob_gap_before"] = fmean(gaps)
            check, repairs = await self._sent(server, snapshot)
            server.weights = snapshot.name
            gaps = await self._gaps(server, snapshot)
            metrics |= {"sync/logprob_gap": fmean(gaps), "sync/logprob_gap_max": max(gaps)}
            limit = self.config.max_logprob_gap
            if not fmean(gaps) <= limit:  # NaN is not
                raise TornWeightsError(
                    f"its log-probs are {fmean(gaps):.3g} nats from the learner's on the canary "
                    f"prompts, over engine.sync.max_logprob_gap ({limit:g}); does it run the model "
                    "in another precision, or quantised?"
                )
        except (TornWeightsError, ServerError) as error:
            if not isinstance(error, ServerError) or error.status is not None:
                self.refused.add(server)
            server.weights = None
            server.lost(f"it did not take the weights: {error}")
            return metrics | {"sync/repairs": 1.0}
        return metrics | {
            "sync/repairs": float(repairs),
            "sync/checksums": float(check.checksums),
            "sync/samples": float(check.samples),
            "sync/unchecked": float(check.unchecked),
        }

    async def _sent(self, server: Server, snapshot: Snapshot) -> tuple[Check, int]:
        """Send until it arrived: by the recipe's way, then by disk. Returns the repairs, too."""
        holds = server.weights == snapshot.name  # a started one has read them from the folder
        attempts = [None, FALLBACK] if holds else [self.config.method, FALLBACK]
        async with self._paused(server):
            for repairs, way in enumerate(attempts):
                try:
                    if way is not None:
                        flush = self.config.pause != "in_place"
                        await self.ways[way].send(server, snapshot, flush=flush)
                    return await self._checked(server, snapshot), repairs
                except (TornWeightsError, ServerError) as error:
                    gone = isinstance(error, ServerError) and error.status is None
                    if gone or repairs == len(attempts) - 1:
                        raise
            raise AssertionError("the last attempt returns or raises")

    async def _checked(self, server: Server, snapshot: Snapshot) -> Check:
        every = self.config.verify_every
        if every == 0 or (server.usable and self._num_pushes % every):
            return Check(unchecked=len(snapshot.tensors))
        return await check_tensors(server, snapshot, timeout_s=self._timeout_s)

    async def _gaps(self, server: Server, snapshot: Snapshot) -> list[float]:
        return await logprob_gaps(server, self.source.prompts, snapshot, timeout_s=self._timeout_s)

    @asynccontextmanager
    async def _paused(self, server: Server) -> AsyncGenerator[None]:
        """Nothing is answered meanwhile; of what is in progress `engine.sync.pause` decides."""
        mode = {"mode": self.config.pause}
        await server.post("/pause_generation", mode, timeout_s=self._timeout_s)
        try:
            yield
        except BaseException:
            server.lost("it is being given weights")  # before it goes on with wrong ones
            raise
        finally:
            await server.post("/continue_generation", {}, timeout_s=self._timeout_s)
