"""One SGLang server over HTTP: calls with a deadline, and whether it can be asked at present."""

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any

import aiohttp

_CONNECT_S = 20.0


class ServerError(Exception):
    """A server did not do what it was asked.

    `status` is HTTP's; None: it could not be reached, broke off, or missed the deadline.
    """

    def __init__(self, url: str, problem: str, status: int | None = None) -> None:
        super().__init__(f"{url}: {problem}")
        self.status = status

    @property
    def refused(self) -> bool:
        """Whether the request is at fault, so that another server would refuse it, too."""
        return self.status is not None and 400 <= self.status < 500 and self.status != 429


class Server:
    """A server's address, its connections, and what is known about it.

    Attributes:
        url: where it answers; a restarted one may have moved.
        usable: it answers and holds the present weights. Only then is it asked for tokens.
        weights: the `weight_version` that it holds, as far as is known.
        why_not: why it is not usable, for people.
        data_parallel: copies of the model behind it, each with a prefix cache of its own.
        tensor_parallel: GPUs that share a copy of the model.
        checksums_known: its checksums of tensors are those that are computed here.
        grammar_stops: ids that end a constrained answer there; None: not asked yet.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.usable = False
        self.weights: str | None = None
        self.why_not = "not started"
        self.data_parallel = 1
        self.tensor_parallel = 1
        self.checksums_known = False
        self.grammar_stops: frozenset[int] | None = None
        self.in_flight = 0
        self._http: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lost: asyncio.Future[str] | None = None

    async def get(self, path: str, *, timeout_s: float) -> Any:
        """GET `path`; return its JSON, or its text. Raises `ServerError`."""
        return await self._call("GET", path, None, timeout_s)

    async def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float) -> Any:
        """POST `body` as JSON; return the answer's JSON, or its text. Raises `ServerError`."""
        return await self._call("POST", path, body, timeout_s)

    async def generate(self, body: Mapping[str, Any], *, timeout_s: float) -> Any:
        """POST to /generate; fails as soon as the server counts as lost. Raises `ServerError`."""
        self.in_flight += 1
        try:
            return await self._while_usable(self.post("/generate", body, timeout_s=timeout_s))
        finally:
            self.in_flight -= 1

    def found(self, weights: str) -> None:
        """It answers and holds `weights`, the present ones."""
        self.weights, self.usable, self.why_not = weights, True, ""

    def lost(self, why: str) -> None:
        """It cannot be asked any more; requests in flight fail with `why`."""
        self.usable, self.why_not = False, why
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(why)
        self._lost = None

    async def aclose(self) -> None:
        """Close its connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def _while_usable(self, call: Coroutine[Any, Any, Any]) -> Any:
        if self._lost is None or self._lost.get_loop() is not asyncio.get_running_loop():
            self._lost = asyncio.get_running_loop().create_future()
        lost, task = self._lost, asyncio.ensure_future(call)
        try:
            await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ServerError(self.url, lost.result())
            return task.result()
        finally:
            task.cancel()

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> Any:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(_CONNECT_S, timeout_s))
        try:
            async with self._session().request(
                method, self.url + path, json=body, timeout=timeout
            ) as response:
                text, status = await response.text(), response.status
        except TimeoutError as error:
            raise ServerError(self.url, f"{path}: no answer within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise ServerError(self.url, f"{path}: {reason}") from error
        if status != 200:
            raise ServerError(self.url, f"{path}: HTTP {status}: {_message(text)}", status)
        return json.loads(text) if text[:1] in ("{", "[") else text

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            # No limit: how many requests run at once is the rollout's decision. SGLang closes idle
            # connections after 5 s, unseen while the learner works: none is used again by then.
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0)
            )
            self._loop = loop
        return self._http


def _message(text: str) -> str:
    """The message of an error body, in whichever of SGLang's forms it comes."""
    try:
        body = json.loads(text)
    except ValueError:
        return text.strip()[:400]
    if isinstance(body, dict):
        inner = body.get("error", body)
        body = inner.get("message", inner) if isinstance(inner, dict) else inner
    return str(body)[:400]
