"""The servers' lives: started, checked, given weights, brought back, stopped."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence

from scalinginter.config.engines import EngineConfig
from scalinginter.engine.sglang.delivery import Delivery
from scalinginter.engine.sglang.fleet import Fleet, GoneError
from scalinginter.engine.sglang.launch import ServerProcess, died
from scalinginter.engine.sglang.server import Server, ServerError
from scalinginter.engine.sglang.versions import check_server, grammar_stops
from scalinginter.errors import EngineFailure, RunFailedError, UserError

QUICK_S = 30.0  # for calls that a healthy server answers at once
_POLL_S = 0.5


class Upkeep:
    """Keeps servers usable: a server gets requests only while it holds the present weights.

    Args:
        config: the deadlines.
        delivery: how the policy's weights get to the servers.
        processes: servers to start; or
        urls: servers that run already.
        max_context: tokens that a prompt and its completion may have together.
        constrained: the stop ids of constrained requests, which servers are then checked for.
        on_close: called in the end.
    """

    def __init__(
        self,
        config: EngineConfig,
        delivery: Delivery,
        *,
        processes: Sequence[ServerProcess] = (),
        urls: Sequence[str] = (),
        max_context: int,
        constrained: frozenset[int] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.started = False
        self.tag = secrets.token_hex(4)  # weights of another run must not pass for ours
        self.processes = list(processes)
        self.delivery = delivery
        self._config, self._max_context = config, max_context
        self._constrained, self._on_close = constrained, on_close
        self._version = 0
        self._changing = asyncio.Lock()  # starting, syncing, reviving: one at a time
        self.fleet = Fleet(
            [Server(url) for url in urls or ("http://127.0.0.1",) * len(self.processes)],
            self._revive,
            recover_timeout_s=config.recover_timeout_s,
            health_timeout_s=config.health_timeout_s,
        )

    def weights_name(self, version: int) -> str:
        """Return the weight_version of the policy's `version` on the servers."""
        return f"{self.tag}-{version}"

    def version_of(self, name: str) -> int | None:
        """Return the version that a weight_version means; None: not weights of this engine."""
        tag, _, number = name.rpartition("-")
        return int(number) if tag == self.tag and number.isdigit() else None

    def present(self) -> str:
        """Return the weight_version that servers have to hold."""
        return self.weights_name(self._version)

    async def start(self, version: int) -> None:
        """Start or find the servers, check them, and give them the policy's weights as `version`.

        Raises `UserError` for servers that do not come up or are not what is needed.
        """
        async with self._changing:
            if self.started:
                return
            self._version = version
            for process in self.processes:
                process.start()
            await asyncio.gather(*(self._bring_up(server) for server in self.fleet.servers))
            self.started = True
            self.fleet.watch()

    async def push(self, version: int) -> dict[str, float]:
        """Bring the policy's present weights to all usable servers as `version`.

        A version that they hold already is the same weights, and nothing is done.
        One that does not take them is not usable any more: it is brought back with them. Raises
        `RunFailedError` if all servers answer and none takes them: that would not change.
        """
        async with self._changing:
            self._version = version
            name = self.present()
            servers = [server for server in self.fleet.usable if server.weights != name]
            metrics = await self.delivery.push(servers, name)
            failed = [server for server in servers if server.weights != name]
            for server in failed:
                server.lost(server.why_not or "it did not take the weights")
            self.fleet.num_lost += len(failed)
        if servers and self.delivery.refused >= set(self.fleet.servers):
            raise RunFailedError(f"no SGLang server took the new weights. {self.fleet.standing()}")
        return metrics | {"sync/servers": float(len(servers) - len(failed))}

    async def aclose(self) -> None:
        """Stop what was started."""
        await self.delivery.aclose()
        await self.fleet.aclose()
        await asyncio.gather(*(process.stop() for process in self.processes))
        self.started = False
        if self._on_close is not None:
            self._on_close()

    async def _bring_up(self, server: Server) -> None:
        """Bring one server up at the start. Raises `UserError`."""
        try:
            await self._make_usable(server)
        except (ServerError, EngineFailure, GoneError) as error:
            raise UserError(f"engine: a server did not come up. {error}") from error

    async def _revive(self, server: Server) -> None:
        """See `Fleet`: bring a lost server back."""
        async with self._changing:
            process = self._process_of(server)
            if process is not None:
                hung = time.monotonic() - process.started_at > self._config.health_timeout_s
                if process.running and hung and not await self._answers(server):
                    await process.stop()
                if not process.running:
                    self._restart(process)
            try:
                await self._make_usable(server)
            except UserError as error:
                raise GoneError(str(error)) from error
            except EngineFailure as error:
                raise ServerError(server.url, str(error)) from error

    def _restart(self, process: ServerProcess) -> None:
        assert self._config.launch is not None
        if process.starts > self._config.launch.max_restarts:
            raise GoneError(f"it was started {process.starts} times; {process.last_words()}")
        process.start()

    async def _answers(self, server: Server) -> bool:
        try:
            await server.get("/health", timeout_s=self._config.health_timeout_s)
        except ServerError as error:
            return error.status is not None
        return True

    async def _make_usable(self, server: Server) -> None:
        """Wait until a server answers, check it, give it the weights; raises what went wrong."""
        process = self._process_of(server)
        if process is not None:
            server.url = process.url
        await self._until_healthy(server, process)
        server.grammar_stops = None
        await check_server(server, max_context=self._max_context, timeout_s=QUICK_S)
        if self._constrained is not None:
            await grammar_stops(server, self._constrained, timeout_s=QUICK_S)
        name = self.present()
        about = await server.get("/model_info", timeout_s=QUICK_S)
        server.weights = about.get("weight_version")
        await self.delivery.push([server], name)
        if server.weights != name:
            raise ServerError(server.url, server.why_not or "it did not take the weights")
        self.fleet.found(server, name)

    async def _until_healthy(self, server: Server, process: ServerProcess | None) -> None:
        """Wait for /health; it refuses or says 503 while a server starts."""
        starting = process is not None or not self.started
        deadline = time.monotonic() + (self._config.start_timeout_s if starting else 0)
        while True:
            if process is not None and not process.running:
                raise died(process)
            try:
                await server.get("/health", timeout_s=self._config.health_timeout_s)
            except ServerError as error:
                if time.monotonic() >= deadline:
                    raise
                server.why_not = str(error)
            else:
                return
            await asyncio.sleep(_POLL_S)

    def _process_of(self, server: Server) -> ServerProcess | None:
        return self.processes[self.fleet.servers.index(server)] if self.processes else None
