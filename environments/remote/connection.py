"""JSON over HTTP on a connection that is kept; blocking, for environments in threads.

Not `urllib` (a connection per request) nor aiohttp (a `TextEnv` is not a coroutine).
"""

import base64
import http.client
import json
import os
import select
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

from scalinginter.errors import EnvironmentFailure, UserError, nearest

TOKEN_VARIABLE = "SCALINGINTER_ENV_TOKEN"


class ServiceError(Exception):
    """The service answered with an error: its status and what it said."""

    def __init__(self, status: int, said: Any) -> None:
        sentence = said.get("error", said) if isinstance(said, dict) else said
        super().__init__(str(sentence)[:500])
        self.status = status
        self.said = said if isinstance(said, dict) else {}


class Address:
    """Where a service is, and the headers that it wants.

    `token` is sent as `Authorization: Bearer`; a user and password in the url as `Basic`.

    Raises `UserError` for a url that is none.
    """

    def __init__(self, url: str, token: str | None, schemes: tuple[str, ...]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in schemes or not parts.hostname:
            hint = nearest(parts.scheme, schemes)
            raise UserError(
                f"url must look like {schemes[0]}://host:port (or {', '.join(schemes[1:])})"
                f"{hint}; got {url!r}"
            )
        self.secure = parts.scheme in ("https", "wss")
        self.websocket = parts.scheme in ("ws", "wss")
        self.host = parts.hostname
        self.port = parts.port or (443 if self.secure else 80)
        self.path = parts.path.rstrip("/")
        self.headers = {"Content-Type": "application/json"}
        self.shown = f"{parts.scheme}://{self.host}:{self.port}{self.path}"  # without secrets
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        elif parts.password:
            secret = base64.b64encode(f"{parts.username}:{parts.password}".encode()).decode()
            self.headers["Authorization"] = f"Basic {secret}"

    def connect(self, timeout_s: float) -> socket.socket:
        """Open a TCP or TLS connection. Raises `OSError`."""
        raw = socket.create_connection((self.host, self.port), timeout_s)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.secure:
            return raw
        return ssl.create_default_context().wrap_socket(raw, server_hostname=self.host)


def token_or_environment(token: str | None) -> str | None:
    """Return the token that a parameter or the environment variable gives."""
    return token or os.environ.get(TOKEN_VARIABLE) or None


class HttpConnection:
    """One kept connection to a service. Not for two threads at once."""

    def __init__(self, address: Address, connect_timeout_s: float) -> None:
        self._address = address
        self._connect_timeout_s = connect_timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def request(self, method: str, path: str, body: Any, timeout_s: float) -> Any:
        """Send a request and return the JSON value of its answer.

        Raises `ServiceError` for an answer with a status of 400 or more, `EnvironmentFailure` when
        the service cannot be reached, breaks the connection, answers too late or not in JSON. A
        request is never sent twice: a step that was carried out must not be carried out again.
        """
        what = f"{method} {self._address.shown}{path}"
        try:
            reused = self._connection is not None
            connection = self._open(timeout_s)
            if reused and _is_stale(connection.sock):
                self.close()
                connection = self._open(timeout_s)
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, self._address.path + path, data, self._address.headers)
            response = connection.getresponse()
            content = response.read()
        except TimeoutError as error:
            self.close()
            message = f"{what}: no answer within {timeout_s:g} s"
            raise EnvironmentFailure(message, timeout=True) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise EnvironmentFailure(f"{what}: {describe(error)}") from error
        return _read(response.status, content, what)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()

    def _open(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._connection is None:
            address = self._address
            self._connection = http.client.HTTPConnection(address.host, address.port)
            self._connection.sock = address.connect(self._connect_timeout_s)
        self._connection.sock.settimeout(timeout_s)
        return self._connection


def _is_stale(sock: socket.socket) -> bool:
    """Is there something to read on an idle connection? Then it is its end."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _read(status: int, content: bytes, what: str) -> Any:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
        if status < 400:
            said = content[:80].decode(errors="replace")
            raise EnvironmentFailure(f"{what}: the answer is not JSON: {said!r}") from None
    if status >= 400:
        raise ServiceError(status, value or content[:200].decode(errors="replace"))
    return value


def describe(error: Exception) -> str:
    """Say what happened to a connection."""
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there (connection refused)"
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
        return "the service closed the connection without an answer"
    return f"{type(error).__name__}: {error}"
