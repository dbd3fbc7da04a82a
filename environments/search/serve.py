"""Serves a corpus to this environment, or to any client of Search-R1's retrieval protocol:
`scalinginter serve-retriever`."""

import asyncio
import socket
from typing import Any

from aiohttp import web

from environments.search.atlas import atlas_index
from environments.search.files import index_of
from environments.search.index import Hit, Retriever
from scalinginter.errors import UserError

MAX_BODY_BYTES = 1_000_000
MAX_QUERIES = 256
MAX_TOPK = 100


def make_app(retriever: Retriever) -> web.Application:
    """Return the application: `POST /retrieve` and `GET /health`."""

    async def retrieve(request: web.Request) -> web.Response:
        try:
            body = await request.json()
        except ValueError:
            return _refusal("the body is not JSON")
        if not isinstance(body, dict):
            return _refusal('the body must be {"queries": [text], "topk": number}')
        queries, topk = body.get("queries"), body.get("topk", 3)
        if not isinstance(queries, list) or not all(isinstance(q, str) for q in queries):
            return _refusal("queries must be a list of texts")
        if len(queries) > MAX_QUERIES:
            return _refusal(f"at most {MAX_QUERIES} queries at once, got {len(queries)}")
        if type(topk) is not int or not 1 <= topk <= MAX_TOPK:
            return _refusal(f"topk must be a whole number from 1 to {MAX_TOPK}, got {topk!r:.40}")
        # Off the event loop: a long list of queries must not hold up the others.
        found = await asyncio.to_thread(lambda: [retriever.search(q, topk) for q in queries])
        scored = bool(body.get("return_scores", False))
        return web.json_response({"result": [[_entry(h, scored) for h in hits] for hits in found]})

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/retrieve", retrieve)
    app.router.add_get("/health", health)
    return app


def _refusal(message: str) -> web.Response:
    return web.json_response({"error": message}, status=400)


def _entry(hit: Hit, scored: bool) -> dict[str, Any]:
    """Return a hit as Search-R1's server writes it; its clients split `contents` into lines."""
    document = {
        "id": hit.document.id,
        "title": hit.document.title,
        "text": hit.document.text,
        "contents": f'"{hit.document.title}"\n{hit.document.text}',
    }
    return {"document": document, "score": hit.score} if scored else document


def corpus(world: str, documents: str | None) -> Retriever:
    """Return the index of a file of documents, or of one of our worlds."""
    return index_of(documents) if documents else atlas_index(world)


def serve(retriever: Retriever, host: str, port: int) -> None:
    """Serve until stopped (Ctrl-C or SIGTERM); port 0 takes a free one.

    Prints the address when the server takes requests. Raises `UserError` if it cannot listen.
    """
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; "
            "choose another --host or --port (0: a free one)"
        ) from None
    host, port = listening.getsockname()[:2]

    def announce(*_: object) -> None:
        print(f"http://{host}:{port}/retrieve", flush=True)

    web.run_app(make_app(retriever), sock=listening, print=announce)
