"""A service with /v1/chat/completions: really HTTP, and its answers are as a test says."""

import asyncio
import threading

import pytest
from aiohttp import web

from scalinginter.config.engines import EngineConfig
from scalinginter.engine.base import ChatRequest
from scalinginter.engine.openai.client import OpenAIEngine


class ChatService:
    """`answer(body)` gives what a request gets: a body, a response, or a coroutine of one.

    It runs in a thread of its own, so that a command can have the main one. `bodies`, `headers`: of
    the requests so far. `models`: what GET /models lists; None: there is no such path.
    """

    def __init__(self):
        self.answer, self.models = lambda body: self.said("right"), ["small", "large"]
        self.bodies, self.headers = [], []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    @staticmethod
    def said(text, finish="stop", prompt=10, cached=4, generated=2):
        """Return the body of an answer."""
        message = {"role": "assistant", "content": text}
        return {
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": generated,
                "prompt_tokens_details": {"cached_tokens": cached},
            },
        }

    @staticmethod
    def refused(status, message, code=None, headers=None):
        """Return an error as OpenAI writes it."""
        error = {"error": {"message": message, "code": code}}
        return web.json_response(error, status=status, headers=headers)

    @staticmethod
    def raw(text, status=200, headers=None):
        """Return any response."""
        return web.Response(text=text, status=status, headers=headers)

    def first(self, *answers, then="right"):
        """Give these answers, each once, and then a good one."""
        left = list(answers)
        self.answer = lambda body: left.pop(0) if left else self.said(then)

    def start(self):
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    async def _serve(self):
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._list)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _chat(self, request):
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        answer = self.answer(body)
        if asyncio.iscoroutine(answer):
            answer = await answer
        return answer if isinstance(answer, web.Response) else web.json_response(answer)

    async def _list(self, _):
        if self.models is None:
            raise web.HTTPNotFound
        return web.json_response({"data": [{"id": name} for name in self.models]})


@pytest.fixture
def service():
    """Return a running service that always says `right`."""
    served = ChatService()
    served.start()
    yield served
    served.stop()


@pytest.fixture
def with_engine(service):
    """Return a function that runs a coroutine function on an engine of the service."""

    def run(use, **config):
        async def whole():
            values = {"base_url": service.url, "model": "small", "max_retries": 2} | config
            engine = OpenAIEngine(EngineConfig(kind="openai", **values))
            try:
                return await use(engine)
            finally:
                await engine.aclose()

        return asyncio.run(whole())

    return run


@pytest.fixture
def chat(with_engine):
    """Return a function that sends one request and returns the answer and the engine."""

    def send(**config):
        messages = ({"role": "system", "content": "walk"}, {"role": "user", "content": "go"})

        async def use(engine):
            return await engine.chat(ChatRequest(messages, 7, 2**62 + 5, 0.5)), engine

        return with_engine(use, **config)

    return send


@pytest.fixture
def begin(with_engine):
    """Return a function that asks for the first answer, as an evaluation does."""
    return lambda **config: with_engine(lambda engine: engine.start(7, 0.5), **config)
