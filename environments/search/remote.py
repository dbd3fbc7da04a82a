"""A retrieval server as retriever: the protocol of Search-R1 (arXiv 2503.09516).

POST /retrieve {"queries": [text], "topk": 3, "return_scores": true}
-> {"result": [[{"document": {"id", "contents"}, "score": 1.5}]]}
"""

import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

from environments.search.files import parse_document
from environments.search.index import Hit
from scalinginter.errors import EnvironmentFailure, UserError

MAX_ANSWER_BYTES = 16_000_000
_PIECE = 65_536


class RemoteRetriever:
    """Asks a server, one connection a query, each with a deadline."""

    def __init__(self, url: str, timeout_s: float) -> None:
        """Take the server's address; without a path it is `/retrieve`. Connects to nothing yet.

        Raises `UserError` for what is no http(s) URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(
                f"retriever must be a URL like http://127.0.0.1:8000/retrieve, got {url!r}"
            )
        self.url = url
        self._parts = parts
        self._path = parts.path if parts.path not in ("", "/") else "/retrieve"
        self._timeout_s = timeout_s

    def search(self, query: str, topk: int) -> list[Hit]:
        """Return the server's documents. Raises `EnvironmentFailure` if it does not answer in
        time, with an error, or with something else than documents."""
        body = json.dumps({"queries": [query], "topk": topk, "return_scores": True})
        try:
            answer = self._post(body.encode())
        except TimeoutError as error:
            raise EnvironmentFailure(
                f"the retriever {self.url} gave no answer within {self._timeout_s:g} s",
                timeout=True,
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise EnvironmentFailure(f"the retriever {self.url} failed: {error!r}") from error
        return self._hits(answer)[:topk]

    def _post(self, body: bytes) -> bytes:
        deadline = time.monotonic() + self._timeout_s
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_s)
        try:
            connection.connect()
            held = connection.sock  # the connection lets go of it when the answer begins
            connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = b""
            while piece := response.read1(_PIECE):
                answer += piece
                left = deadline - time.monotonic()
                if left <= 0:  # a server that trickles never misses the socket's own timeout
                    raise TimeoutError
                held.settimeout(left)
                if len(answer) > MAX_ANSWER_BYTES:
                    raise http.client.HTTPException(f"more than {MAX_ANSWER_BYTES} bytes")
        finally:
            connection.close()
        if response.status != 200:
            said = answer[:200].decode(errors="replace")
            raise http.client.HTTPException(f"status {response.status}: {said}")
        return answer

    def _hits(self, answer: bytes) -> list[Hit]:
        try:
            found = json.loads(answer)["result"][0]
            return [self._hit(entry) for entry in found]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise EnvironmentFailure(
                f"the retriever {self.url} answered {answer[:200]!r}, which is not "
                '{"result": [[{"document": {"contents": ...}, "score": ...}]]}'
            ) from error

    def _hit(self, entry: dict[str, Any]) -> Hit:
        document = parse_document(entry["document"])
        if document is None:
            raise ValueError("a document without text")
        return Hit(document, float(entry["score"]))
