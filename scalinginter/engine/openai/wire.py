"""Requests and answers of `/chat/completions`, and what its errors mean.

Services agree on the request and the answer (https://platform.openai.com/docs/api-reference/chat)
and on the HTTP status of an error; the error's body differs from one to the next.
"""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from scalinginter.engine.base import ChatAnswer, ChatRequest
from scalinginter.types import FinishReason

_PASSING = frozenset({408, 409, 425, 429})  # and every 5xx
_TOO_LONG = re.compile(  # OpenAI, vLLM, SGLang, llama.cpp, Anthropic
    r"context[ _-]?(?:length|size|window)|exceed_context|(?:prompt|input) is too long"
    r"|maximum (?:allowed )?(?:input )?length",
    re.IGNORECASE,
)


class ApiError(Exception):
    """A service did not answer a request.

    Attributes:
        status: HTTP's; None: it could not be reached, broke off, or missed the deadline.
        passing: whether the same request may be answered later.
        too_long: whether the conversation does not fit the model's context.
        wait_s: how long the service asks to be left alone (Retry-After); None: it does not say.
    """

    def __init__(
        self,
        problem: str,
        status: int | None = None,
        *,
        passing: bool = False,
        too_long: bool = False,
        wait_s: float | None = None,
    ) -> None:
        super().__init__(problem)
        self.status, self.passing = status, passing
        self.too_long, self.wait_s = too_long, wait_s


def chat_body(request: ChatRequest, model: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's body. Keys of `extra` are added; one that is null is left out."""
    body = {
        "model": model,
        "messages": list(request.messages),
        "max_tokens": request.max_new_tokens,
        "temperature": request.temperature,
        "seed": request.seed & 0x7FFFFFFF,  # more bits than that are refused by some
    }
    return {key: value for key, value in {**body, **extra}.items() if value is not None}


def parse_answer(text: str) -> ChatAnswer:
    """Return what a body with status 200 says. Raises `ApiError`, also for an error inside it."""
    try:
        body = json.loads(text)
    except ValueError:
        raise ApiError(f"its answer is not JSON: {_shown(text)}", passing=True) from None
    if isinstance(body, dict) and body.get("error"):  # gateways do so
        code = body["error"].get("code") if isinstance(body["error"], dict) else None
        raise api_error(code if isinstance(code, int) else 502, text, None)
    try:
        choice, usage = body["choices"][0], body.get("usage") or {}
        said = choice["message"].get("content")
        if not isinstance(said, str | None):
            raise TypeError
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        return ChatAnswer(
            text=said or "",
            finish=FinishReason.LENGTH
            if choice.get("finish_reason") == "length"
            else FinishReason.STOP,
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            cached_tokens=int(cached or 0),
            generated_tokens=int(usage.get("completion_tokens") or 0),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        problem = f"its answer has no choices[0].message.content: {_shown(text)}"
        raise ApiError(problem, passing=True) from None


def api_error(status: int, text: str, retry_after: str | None) -> ApiError:
    """Return the error that a body with another status than 200 stands for."""
    message, code = _message(text)
    spent = status == 429 and "quota" in code  # waiting does not fill an account
    too_long = status in (400, 413, 422) and bool(_TOO_LONG.search(f"{code} {message}"))
    return ApiError(
        f"HTTP {status}: {message or 'no message'}",
        status,
        passing=(status in _PASSING or status >= 500) and not spent,
        too_long=too_long,
        wait_s=retry_after_s(retry_after),
    )


def retry_after_s(header: str | None) -> float | None:
    """Return the seconds of a Retry-After header: a number, or a date (RFC 9110, 10.2.3)."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _message(text: str) -> tuple[str, str]:
    """Return the message and the code of an error's body, in whichever form it comes."""
    try:
        body = json.loads(text)
    except ValueError:
        return _shown(text), ""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(inner, dict):
        return _shown(str(inner)), ""
    message = inner.get("message") or inner.get("detail") or inner
    return _shown(str(message)), f"{inner.get('code')} {inner.get('type')}"


def _shown(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 300 else f"{words[:300]}..."
