"""Our own wire format over HTTP and websocket: see `scalinginter.env.wire`."""

import asyncio
import json
import weakref
from typing import Any

import aiohttp
from aiohttp import web

from scalinginter.serve.errors import RefusedError
from scalinginter.serve.guard import body_of, guards, json_response, read_object
from scalinginter.serve.service import EnvService

HEARTBEAT_S = 30.0  # a websocket whose peer does not answer a ping within half of it is closed
SOCKETS = web.AppKey("sockets", weakref.WeakSet[web.WebSocketResponse])
MAX_IN_FLIGHT = 256  # calls of one websocket; the next is read when one is over


def make_app(service: EnvService, token: str | None) -> web.Application:
    """Make the application. With a token, every path but `/health` needs it."""
    limits = service.limits
    app = web.Application(
        client_max_size=limits.max_body_bytes, middlewares=guards(token, limits.max_body_bytes)
    )

    async def health(request: web.Request) -> web.Response:
        return json_response({"ok": True, "sessions": len(service.sessions)})

    def route(method: str, path: str, call: str) -> None:
        async def handle(request: web.Request) -> web.Response:
            body = await body_of(request) | _query(request) | dict(request.match_info)
            return json_response(await service.call(call, body))

        app.router.add_route(method, path, handle)

    app[SOCKETS] = weakref.WeakSet()
    app.on_shutdown.append(_close_websockets)
    app.router.add_get("/health", health)
    app.router.add_get("/ws", lambda request: _websocket(service, request))
    route("GET", "/info", "info")
    route("GET", "/tasks", "tasks")
    route("GET", "/corpus", "corpus")
    route("POST", "/sessions", "open")
    route("POST", "/sessions/{session}/step", "step")
    route("GET", "/sessions/{session}/admissible", "admissible")
    route("GET", "/sessions/{session}/plan", "plan")
    route("DELETE", "/sessions/{session}", "close")
    return app


def _query(request: web.Request) -> dict[str, Any]:
    """Return the query's values; those that are whole numbers as such."""
    return {k: int(v) if v.isdecimal() else v for k, v in request.query.items()}


async def _close_websockets(app: web.Application) -> None:
    for socket in list(app[SOCKETS]):
        await socket.close(code=aiohttp.WSCloseCode.GOING_AWAY, message=b"the server stops")


async def _websocket(service: EnvService, request: web.Request) -> web.WebSocketResponse:
    """Answer calls until the socket ends, many at once, in the order in which they are ready."""
    socket = web.WebSocketResponse(
        heartbeat=HEARTBEAT_S, max_msg_size=service.limits.max_body_bytes, compress=False
    )
    await socket.prepare(request)
    request.app[SOCKETS].add(socket)
    opened: set[str] = set()
    slots = asyncio.Semaphore(MAX_IN_FLIGHT)
    running: set[asyncio.Task[None]] = set()

    async def carry_out(text: str | bytes) -> None:
        try:
            answer = await _answer(service, text, opened)
            if not socket.closed:
                await socket.send_str(json.dumps(answer))
        except ConnectionError:  # it left without waiting for the answer
            pass
        finally:
            slots.release()

    try:
        async for message in socket:
            if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                continue
            await slots.acquire()
            task = asyncio.create_task(carry_out(message.data))
            running.add(task)
            task.add_done_callback(running.discard)
    finally:
        await asyncio.gather(*running, return_exceptions=True)
        for key in opened:
            await service.sessions.close(key, "its websocket ended")
    return socket


async def _answer(service: EnvService, text: str | bytes, opened: set[str]) -> dict[str, Any]:
    label: Any = None
    try:
        body = read_object(text)
        label = body.get("id")
        answer = await service.call(str(body.get("call")), body)
    except RefusedError as refused:
        return {"id": label, "status": refused.status, **refused.answer()}
    if body["call"] == "open":
        opened.add(answer["session"])
    elif body["call"] == "close":
        opened.discard(body["session"])
    return {"id": label, "status": 200, **answer}
