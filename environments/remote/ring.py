"""Several servers of one environment, in turn."""

import itertools
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from scalinginter.errors import EnvironmentFailure

S = TypeVar("S")
T = TypeVar("T")

_turn = itertools.count()  # which server the next ring of this process starts with


class Ring(Generic[S]):
    """The servers that an instance may use. Instances start with one after the other, which spreads
    their episodes; each stays with its server until that one fails."""

    def __init__(self, servers: Sequence[S]) -> None:
        self.servers = tuple(servers)
        self._next = next(_turn) % len(self.servers)

    @property
    def current(self) -> S:
        """The server in use."""
        return self.servers[self._next]

    def begin(self, start: Callable[[S], T]) -> tuple[S, T]:
        """Start something with the server in use, or with the first after it that can.

        A missed deadline is not tried on: it took its time. Raises the last `EnvironmentFailure`.
        """
        for left in reversed(range(len(self.servers))):
            server = self.current
            try:
                return server, start(server)
            except EnvironmentFailure as failure:
                self._next = (self._next + 1) % len(self.servers)
                if failure.timeout or not left:
                    raise
        raise AssertionError("a ring has at least one server")
