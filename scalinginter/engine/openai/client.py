"""Any service with an OpenAI-compatible `/chat/completions`, for evaluation.

Its answers are text: it returns no token ids and its weights are elsewhere, so nothing can be
trained on them.
"""

import asyncio
import json
import os
from typing import NoReturn

import aiohttp

from scalinginter.config.engines import EngineConfig
from scalinginter.engine.base import ChatAnswer, ChatRequest, EngineStats
from scalinginter.engine.openai.wire import ApiError, api_error, chat_body, parse_answer
from scalinginter.errors import ContextFull, EngineFailure, UserError, nearest
from scalinginter.seeds import derive

_CONNECT_S = 20.0
_MAX_BACKOFF_S = 30.0  # between two attempts, where the service names no time
_MOST_NAMED = 12


def key_of(config: EngineConfig) -> str | None:
    """Return the service's key; None: the recipe names none.

    Raises `UserError` if the environment variable that should hold it is not set.
    """
    if config.api_key_env is None:
        return None
    key = os.environ.get(config.api_key_env, "").strip()
    if not key:
        raise UserError(
            f"engine.api_key_env: the environment variable {config.api_key_env} is not set; "
            "export it with the key, or set engine.api_key_env: null for a service without keys"
        )
    return key


class OpenAIEngine:
    """Implements `engine.base.ChatEngine`.

    A request that fails for a reason that passes (429, 5xx, a timeout, a broken connection, an
    answer that is no JSON) is sent again, `engine.max_retries` times, after the time that the
    service asks for or one that doubles. Belongs to one event loop.
    """

    def __init__(self, config: EngineConfig) -> None:
        """Raises `UserError` if the key is not there."""
        assert config.base_url is not None
        assert config.model is not None
        self.stats = EngineStats()
        self.num_retries = 0
        self._config, self._key, self._model = config, key_of(config), config.model
        self._base = config.base_url.rstrip("/").removesuffix("/chat/completions")
        self._http: aiohttp.ClientSession | None = None
        self._not_before = 0.0  # in the loop's time: the service has asked to be left alone

    @property
    def description(self) -> str:
        """The model, for people."""
        return f"{self._model} at {self._base}"

    @property
    def usage(self) -> str:
        """What the answers so far took, for people."""
        stats = self.stats
        return (
            f"{self.description}: {stats.requests:,} answers, as it counts "
            f"{stats.forwarded_tokens - stats.generated_tokens + stats.cached_tokens:,} prompt "
            f"tokens ({stats.cached_tokens:,} cached) and {stats.generated_tokens:,} of answers; "
            f"{self.num_retries:,} requests sent again"
        )

    async def start(self, max_new_tokens: int, temperature: float) -> None:
        """Ask for one short answer, in the form of all the others.

        Raises `UserError` for a wrong key, an unknown model, and whatever else refuses every
        request.
        """
        messages = ({"role": "user", "content": "Say ok."},)
        try:
            await self._answer(ChatRequest(messages, max_new_tokens, 0, temperature))
        except ApiError as error:
            await self._refuse(error)

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        """See `ChatEngine.chat`."""
        try:
            answer = await self._answer(request)
        except ApiError as error:
            kind = ContextFull if error.too_long else EngineFailure
            raise kind(f"{self.description}: {error}") from error
        self.stats.requests += 1
        self.stats.cached_tokens += answer.cached_tokens
        self.stats.generated_tokens += answer.generated_tokens
        self.stats.forwarded_tokens += (
            answer.prompt_tokens - answer.cached_tokens + answer.generated_tokens
        )
        return answer

    async def aclose(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    async def _answer(self, request: ChatRequest) -> ChatAnswer:
        """Send a request until it is answered. Raises the last `ApiError`."""
        body = chat_body(request, self._model, self._config.extra_body)
        for attempt in range(self._config.max_retries + 1):
            await self._until_welcome()
            try:
                return parse_answer(await self._call("POST", "/chat/completions", body))
            except ApiError as error:
                if not error.passing or attempt == self._config.max_retries:
                    raise
                await self._back_off(error, attempt, request.seed)
            self.num_retries += 1
        raise AssertionError("max_retries is 0 or more")

    async def _until_welcome(self) -> None:
        while (left := self._not_before - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)

    async def _back_off(self, error: ApiError, attempt: int, seed: int) -> None:
        """Wait, for longer each time; a time that the service names holds for every request."""
        if error.wait_s is not None:
            until = asyncio.get_running_loop().time() + error.wait_s
            self._not_before = max(self._not_before, until)
            return
        spread = derive("back off", seed, attempt) % 1000 / 1000  # not all at the same moment
        await asyncio.sleep(min(_MAX_BACKOFF_S, 0.5 * 2**attempt) * (0.5 + spread / 2))

    async def _call(self, method: str, path: str, body: dict[str, object] | None) -> str:
        """Return the text of an answer with status 200. Raises `ApiError`."""
        if self._http is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            # No limit: how many requests run at once is the rollout's decision.
            connector = aiohttp.TCPConnector(limit=0)
            self._http = aiohttp.ClientSession(connector=connector, headers=headers)
        limit = self._config.request_timeout_s
        timeout = aiohttp.ClientTimeout(total=limit, sock_connect=min(_CONNECT_S, limit))
        try:
            # A redirect is not followed: the key goes nowhere but where the user sent it.
            async with self._http.request(
                method, self._base + path, json=body, timeout=timeout, allow_redirects=False
            ) as response:
                text = await response.text(errors="replace")
        except TimeoutError:
            raise ApiError(f"no answer within {limit:g} s", passing=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(str(error) or type(error).__name__, passing=True) from error
        if response.status != 200:
            raise api_error(response.status, text, response.headers.get("Retry-After"))
        return text

    async def _refuse(self, error: ApiError) -> NoReturn:
        """Raise what the first answer's failure means for the user."""
        where, config = f"{self.description}: {error}", self._config
        if error.status in (401, 403):
            held = f"engine.api_key_env: the key in {config.api_key_env} was refused"
            if config.api_key_env is None:
                held = (
                    "engine.api_key_env: no key was sent; set it to the name of the environment "
                    "variable that holds one"
                )
            raise UserError(f"{held}. {where}") from error
        if error.status == 404:
            raise UserError(f"{await self._what_there_is()}. {where}") from error
        if error.passing:
            raise UserError(
                f"engine.base_url: no answer after {config.max_retries + 1} attempts. {where}"
            ) from error
        raise UserError(
            f"engine: the service refuses requests of this form. {where}\nengine.extra_body adds "
            "keys to a request's body, and leaves out those that are null there"
        ) from error

    async def _what_there_is(self) -> str:
        """What to say of a 404: the service's models, or that the address is wrong."""
        try:
            listed = json.loads(await self._call("GET", "/models", None))
            names = sorted(str(entry["id"]) for entry in listed["data"])
        except (ApiError, ValueError, KeyError, TypeError):
            return (
                "engine.base_url or engine.model is wrong; base_url is what comes before "
                "/chat/completions, mostly .../v1"
            )
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return (
            f"engine.model: got {self._model!r}{nearest(self._model, names)}; there are: "
            f"{', '.join(names[:_MOST_NAMED])}{more}"
        )
