"""A `serve-env` server as its client sees it: the calls of `scalinginter.env.wire`."""

import json
from typing import Any
from urllib.parse import urlencode

from environments.remote.connection import Address, HttpConnection, ServiceError
from environments.remote.websocket import WebSocket
from scalinginter.errors import EnvironmentFailure

SCHEMES = ("http", "https", "ws", "wss")

# call: (HTTP method, path)
_ROUTES = {
    "info": ("GET", "/info"),
    "tasks": ("GET", "/tasks"),
    "corpus": ("GET", "/corpus"),
    "open": ("POST", "/sessions"),
    "step": ("POST", "/sessions/{session}/step"),
    "admissible": ("GET", "/sessions/{session}/admissible"),
    "plan": ("GET", "/sessions/{session}/plan"),
    "close": ("DELETE", "/sessions/{session}"),
}


class Server:
    """One server, over HTTP or a websocket, whichever its url says. It connects when it has to."""

    def __init__(self, url: str, token: str | None, connect_timeout_s: float) -> None:
        self.address = Address(url, token, SCHEMES)
        self._connect_timeout_s = connect_timeout_s
        self._http = HttpConnection(self.address, connect_timeout_s)
        self._socket: WebSocket | None = None

    def call(self, name: str, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return the answer to a call of the wire format.

        Raises `ServiceError` for an error that the server names, `EnvironmentFailure` where there
        is no answer.
        """
        if self.address.websocket:
            return self._over_websocket(name, body, timeout_s)
        method, path = _ROUTES[name]
        path = path.format(session=body.get("session"))
        if method == "POST":
            return self._http.request(method, path, body, timeout_s)
        query = {k: v for k, v in body.items() if k != "session"}
        path += f"?{urlencode(query)}" if query else ""
        return self._http.request(method, path, None, timeout_s)

    def _over_websocket(self, name: str, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if self._socket is None:
            self._socket = WebSocket(self.address, "/ws", self._connect_timeout_s)
        try:
            answer = json.loads(self._socket.exchange(json.dumps(body | {"call": name}), timeout_s))
        except EnvironmentFailure:
            self._socket = None
            raise
        if answer["status"] >= 400:
            raise ServiceError(answer["status"], answer)
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._http.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
