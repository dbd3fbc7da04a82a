"""What every request passes first: the token, the size limit, and errors as JSON sentences."""

import base64
import binascii
import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from scalinginter.serve.errors import RefusedError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN_PATHS = ("/health",)  # answered without the token: a probe needs none
log = logging.getLogger(__name__)


def json_response(answer: Any, status: int = 200) -> web.Response:
    """Return an answer. Pure ASCII, so that text with lone surrogates arrives as it was sent."""
    body = json.dumps(answer).encode()
    return web.Response(body=body, status=status, content_type="application/json")


def read_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; nothing at all is an empty one. Raises `RefusedError` (400)."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"this is not JSON: {error}"[:200]) from None
    if not isinstance(value, dict):
        raise RefusedError(400, f"a JSON object is wanted, got {type(value).__name__}")
    return value


async def body_of(request: web.Request) -> dict[str, Any]:
    """Return the JSON object that a request carries."""
    return read_object(await request.read())


def guards(token: str | None, max_body_bytes: int) -> list[Any]:
    """Return the middlewares of an application, the outermost first."""

    @web.middleware
    async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except RefusedError as refused:
            return json_response(refused.answer(), refused.status)
        except web.HTTPRequestEntityTooLarge:
            sentence = f"the body is larger than {max_body_bytes} bytes (--max-body-bytes)"
            return json_response({"error": sentence}, 413)
        except web.HTTPException as error:
            where = f"{request.method} {request.path}"[:200]
            return json_response({"error": f"{error.reason}: {where}"}, error.status)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            sentence = "the server failed; its log says why"
            return json_response({"error": sentence}, 500)

    @web.middleware
    async def tokens(request: web.Request, handler: Handler) -> web.StreamResponse:
        if token is not None and request.path not in OPEN_PATHS:
            _check_token(request.headers.get("Authorization", ""), token)
        return await handler(request)

    return [errors, tokens]


def _check_token(header: str, token: str) -> None:
    """Compare in constant time. `Basic` is for clients that can only put it into the url."""
    scheme, _, given = header.partition(" ")
    if scheme == "Basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            given = ""
    if not hmac.compare_digest(given.encode(errors="replace"), token.encode()):
        said = "a wrong token" if header else "no token"
        raise RefusedError(401, f"{said}; send the header 'Authorization: Bearer TOKEN'")
