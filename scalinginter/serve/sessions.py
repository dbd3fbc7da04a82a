"""Sessions of a server: a bounded number, each on a lease that every call renews."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from scalinginter.env.pool import EnvSession
from scalinginter.serve.errors import RefusedError

MAX_REMEMBERED = 4096  # ended sessions whose end can still be explained


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server gives at most."""

    max_sessions: int = 256
    max_body_bytes: int = 1 << 20
    lease_s: float = 600.0  # idle time after which a session is closed


@dataclass(slots=True)
class _Leased:
    session: EnvSession
    expires_s: float  # of time.monotonic
    busy: bool = False


class Sessions:
    """Open episodes by key. A key cannot be guessed: to know it is to own the session."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._leased: dict[str, _Leased] = {}
        self._opening = 0
        self._ended: OrderedDict[str, str] = OrderedDict()  # key -> why

    def __len__(self) -> int:
        return len(self._leased) + self._opening

    @contextmanager
    def slot(self) -> Generator[None]:
        """Hold a place while a session is being opened. Raises `RefusedError` (429) if all are
        taken."""
        if len(self) >= self._limits.max_sessions:
            raise RefusedError(
                429,
                f"all {self._limits.max_sessions} sessions of this server are in use; "
                "close some, wait for their leases to run out, or start it with more "
                "(--max-sessions)",
            )
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1

    def add(self, session: EnvSession) -> str:
        """Lease a session; return its key."""
        key = secrets.token_urlsafe(16)
        self._leased[key] = _Leased(session, time.monotonic() + self._limits.lease_s)
        return key

    @contextmanager
    def borrow(self, key: str) -> Generator[EnvSession]:
        """Give the session for one call and renew its lease.

        Raises `RefusedError`: 404 for an unknown session, 410 for one that ended, 409 for one whose
        last call is not over.
        """
        leased = self._leased.get(key)
        if leased is None and key in self._ended:
            raise RefusedError(410, f"session {key[:40]} is over: {self._ended[key]}")
        if leased is None:
            raise RefusedError(404, f"there is no session {key[:40]!r}; open one: POST /sessions")
        if leased.busy:
            raise RefusedError(409, f"session {key} is busy: wait for the answer to its last call")
        leased.busy = True
        try:
            yield leased.session
        finally:
            leased.busy = False
            leased.expires_s = time.monotonic() + self._limits.lease_s

    async def close(self, key: str, why: str) -> bool:
        """End a session; return whether there was one."""
        leased = self._leased.pop(key, None)
        if leased is None:
            return False
        self._ended[key] = why
        while len(self._ended) > MAX_REMEMBERED:
            self._ended.popitem(last=False)
        await leased.session.close()
        return True

    async def reap(self) -> None:
        """Close the sessions whose lease ran out."""
        now = time.monotonic()
        idle = [k for k, v in self._leased.items() if v.expires_s < now and not v.busy]
        for key in idle:
            await self.close(key, f"its lease of {self._limits.lease_s:g} s ran out")

    async def close_all(self) -> None:
        """Close every session."""
        for key in list(self._leased):
            await self.close(key, "the server stopped")
