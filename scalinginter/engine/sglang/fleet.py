"""Which server answers which request; which ones are down, and bringing them back.

A group's episodes share their opening prompt, so all of them go to one server for as long as it is
usable: its prefix cache then serves the prompt once per group and every turn's context once per
episode.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from scalinginter.engine.sglang.server import Server, ServerError
from scalinginter.errors import EngineFailure

_STRIKES = 2  # missed health checks in a row; one may be due to this process having slept


class GoneError(Exception):
    """A server that will not come back in this run."""


@dataclass
class _Home:
    """Where a group lives."""

    server: Server
    sessions: set[str] = field(default_factory=set)


class Fleet:
    """Routes sessions to servers and watches the servers.

    Args:
        servers: all of them; none is usable before `revive` or its owner says so.
        revive: brings a server back: waits until it answers, checks it, and gives it the present
            weights. Raises `ServerError` to be called again later, `GoneError` to give it up.
        recover_timeout_s: longest wait of a request for a usable server.
        health_timeout_s: within which a server with work to do has to say that it lives.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        revive: Callable[[Server], Awaitable[None]],
        *,
        recover_timeout_s: float,
        health_timeout_s: float,
    ) -> None:
        self.servers = list(servers)
        self.num_lost = 0  # times that a server stopped being usable
        self._revive = revive
        self._recover_timeout_s, self._health_timeout_s = recover_timeout_s, health_timeout_s
        self._homes: dict[str, _Home] = {}
        self._gone: set[str] = set()
        self._changed: asyncio.Future[None] | None = None
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def usable(self) -> list[Server]:
        return [server for server in self.servers if server.usable]

    def watch(self) -> None:
        """Start to watch the servers; belongs to the running event loop."""
        self._watchers = [asyncio.create_task(self._watch(server)) for server in self.servers]

    async def aclose(self) -> None:
        """Stop watching and close all connections."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers = []
        for server in self.servers:
            await server.aclose()

    async def take(self, session: str) -> tuple[Server, int | None]:
        """Return the server of a session, and the rank behind it where it has several.

        Waits for one to come back if none is usable. Raises `EngineFailure` after
        `recover_timeout_s`, or at once if none will come back.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._recover_timeout_s
        while True:
            server = self._choose(session)
            if server is not None:
                rank = None
                if server.data_parallel > 1:
                    rank = zlib.crc32(_group(session).encode()) % server.data_parallel
                return server, rank
            if len(self._gone) == len(self.servers) or loop.time() >= deadline:
                raise EngineFailure(f"no SGLang server is usable. {self.standing()}")
            if self._changed is None or self._changed.get_loop() is not loop:
                self._changed = loop.create_future()
            await asyncio.wait({self._changed}, timeout=deadline - loop.time())

    def release(self, session: str) -> None:
        """Forget where a session lives."""
        home = self._homes.get(_group(session))
        if home is not None:
            home.sessions.discard(session)
            if not home.sessions:
                del self._homes[_group(session)]

    def lost(self, server: Server, why: str) -> None:
        """A server cannot be used; its watcher brings it back."""
        if server.usable:
            self.num_lost += 1
        server.lost(why)

    def found(self, server: Server, weights: str) -> None:
        """A server answers and holds the present weights."""
        server.found(weights)
        self._wake()

    def standing(self) -> str:
        """Say, for people, which servers are down and why."""
        down = [f"{s.url} is down ({s.why_not})" for s in self.servers if not s.usable]
        return "; ".join(down)

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    def _choose(self, session: str) -> Server | None:
        group = _group(session)
        home = self._homes.get(group)
        if home is None or not home.server.usable:
            load = {id(server): 0 for server in self.servers}
            for other in self._homes.values():
                load[id(other.server)] += len(other.sessions)
            usable = self.usable
            if not usable:
                return None
            home = _Home(min(usable, key=lambda server: load[id(server)]))
            self._homes[group] = home
        home.sessions.add(session)
        return home.server

    async def _watch(self, server: Server) -> None:
        strikes, every = 0, self._health_timeout_s / 10
        while True:
            await asyncio.sleep(every)
            if not server.usable:
                strikes = 0
                if not await self._back(server):
                    return
            elif server.in_flight:
                strikes = 0 if await self._lives(server) else strikes + 1
                if strikes >= _STRIKES:
                    self.lost(server, f"/health gave no answer {strikes} times")

    async def _lives(self, server: Server) -> bool:
        try:
            await server.get("/health", timeout_s=self._health_timeout_s / _STRIKES)
        except ServerError as error:
            return error.status is not None  # 503: it answers, but is very busy, or going down
        return True

    async def _back(self, server: Server) -> bool:
        """Try to bring a server back; False: it is given up."""
        try:
            await self._revive(server)
        except ServerError as error:
            server.why_not = str(error)
        except GoneError as error:
            server.why_not = str(error)
            self._gone.add(server.url)
            self._wake()
            return False
        return True


def _group(session: str) -> str:
    """The group of a session: the episodes of a group are called `group#index`."""
    return session.rpartition("#")[0] or session
