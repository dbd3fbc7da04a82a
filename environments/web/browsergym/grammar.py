"""BrowserGym's high-level actions, one call a turn: read as literals, written anew, never run.

BrowserGym turns an action into Python and executes it. What reaches it from here is one call of a
function of the table with strings and numbers in it, whatever the model wrote. Left out are its
functions for coordinates and for uploads, which read files of the machine.
"""

import ast
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from scalinginter.errors import nearest
from scalinginter.types import Tool

MAX_ACTION = 6000  # characters that are read
MAX_WAIT_MS = 5000
ENDS = ("send_msg_to_user", "report_infeasible")

_ID = re.compile(r"[A-Za-z0-9]{1,20}")
_BID = ("string", "id of an element, as in brackets")
_TEXT = "string"
_Parameters = dict[str, tuple[str, str]]

FUNCTIONS: dict[str, tuple[str, _Parameters]] = {
    "click": ("Click an element.", {"bid": _BID}),
    "dblclick": ("Double-click an element.", {"bid": _BID}),
    "hover": ("Move the pointer to an element.", {"bid": _BID}),
    "focus": ("Give an element the focus.", {"bid": _BID}),
    "clear": ("Empty a field.", {"bid": _BID}),
    "fill": ("Replace a field's content.", {"bid": _BID, "value": (_TEXT, "the new content")}),
    "select_option": (
        "Choose an option of a list.",
        {"bid": _BID, "options": (_TEXT, "the option's label")},
    ),
    "press": ("Press a key in an element.", {"bid": _BID, "key_comb": (_TEXT, "Enter, Control+a")}),
    "drag_and_drop": ("Drag an element to another.", {"from_bid": _BID, "to_bid": _BID}),
    "scroll": (
        "Scroll by pixels.",
        {"delta_x": ("number", "right"), "delta_y": ("number", "down")},
    ),
    "noop": ("Wait.", {"wait_ms": ("number", f"milliseconds, at most {MAX_WAIT_MS}")}),
    "goto": ("Open an address.", {"url": (_TEXT, "http or https")}),
    "go_back": ("Go back in the history.", {}),
    "go_forward": ("Go forward in the history.", {}),
    "new_tab": ("Open a tab.", {}),
    "tab_focus": ("Go to a tab.", {"index": ("integer", "from 0")}),
    "tab_close": ("Close the tab in front.", {}),
    "send_msg_to_user": ("Say something: the answer.", {"text": (_TEXT, "what to say")}),
    "report_infeasible": ("End: it cannot be done.", {"reason": (_TEXT, "why")}),
}
"""Every function: what it does, and its parameters with their kind and meaning."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function of the table."""

    name: str
    arguments: tuple[str | float | int, ...]

    @property
    def code(self) -> str:
        """The call as BrowserGym reads it."""
        return f"{self.name}({', '.join(map(repr, self.arguments))})"


def form(name: str) -> str:
    """Return how a function is written: `fill(bid, value)`."""
    return f"{name}({', '.join(FUNCTIONS[name][1])})"


GRAMMAR = "\n".join(f"{form(name)} - {does.lower()[:-1]}" for name, (does, _) in FUNCTIONS.items())


def tools() -> tuple[Tool, ...]:
    """Return the functions in OpenAI's schema."""
    made = []
    for name, (does, parameters) in FUNCTIONS.items():
        properties = {
            key: {"type": kind, "description": d} for key, (kind, d) in parameters.items()
        }
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        template = f"{name}({', '.join(f'{{{key}}}' for key in parameters)})"
        made.append(Tool(name, does, schema, template))
    return tuple(made)


_CALL = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)


def parse_call(text: str, origins: Sequence[str] = ()) -> Call | str:
    """Return the call that a text is, or a hint that says how to write one.

    Arguments are Python's literals, `fill('12', "it's")`, or bare, `fill(12, it's)`: then the last
    one takes the rest. `origins`: what `goto` may open; empty: everything over http.
    """
    text = text[:MAX_ACTION].encode("utf-8", "replace").decode().strip().strip("`").strip()
    match = _CALL.fullmatch(text)
    name = match[1] if match else ""
    if match is None or name not in FUNCTIONS:
        word = re.match(r"\w*", text)
        guess = nearest(word.group()[:30], FUNCTIONS) if word else ""
        return f"Not an action{guess}. Write one call of: {', '.join(FUNCTIONS)}."
    parameters = FUNCTIONS[name][1]
    values = _literals(text, list(parameters))
    if values is None or len(values) != len(parameters):
        values = _bare(match[2], len(parameters))
    if len(values) != len(parameters):
        return f"Write {name} as: {form(name)}"
    arguments = []
    for (key, (kind, about)), value in zip(parameters.items(), values, strict=True):
        if (kind, about) == _BID and not _ID.fullmatch(str(value)):
            return f"{key} of {form(name)} must be an id as in brackets, got {str(value)[:40]!r}."
        known = str(value) if kind == "string" else _number(value, kind)
        if known is None:
            return f"{key} of {form(name)} must be a {kind}, got {str(value)[:40]!r}."
        arguments.append(known)
    call = Call(name, tuple(arguments))
    return _refusal(call, origins) or call


def _literals(text: str, names: list[str]) -> list[Any] | None:
    """Return the arguments of a call of literals, None if it is none."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd escapes in strings
            call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        given = [ast.literal_eval(argument) for argument in call.args]
        named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError):
        return None
    if set(named) != set(names[len(given) :]):
        return given if not named else []
    return given + [named[name] for name in names[len(given) :]]


def _bare(text: str, count: int) -> list[str]:
    if not text.strip():
        return []
    return [part.strip() for part in text.split(",", max(0, count - 1))]


def _number(value: Any, kind: str) -> float | int | None:
    try:
        number = float(value)
        whole = int(number)
    except (TypeError, ValueError, OverflowError):  # no number, not a number, infinite
        return None
    if kind == "integer":
        return whole if whole == number else None
    return number if abs(number) <= 1e6 else None


def _refusal(call: Call, origins: Sequence[str]) -> str:
    if call.name == "noop" and not 0 <= float(call.arguments[0]) <= MAX_WAIT_MS:
        return f"noop waits at most {MAX_WAIT_MS} ms."
    if call.name != "goto":
        return ""
    url = str(call.arguments[0])
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{url[:100]!r} is not an address."
    if parts.scheme not in ("http", "https"):  # file: would show the machine's files
        return f"{url[:100]!r} is no http address."
    if origins and f"{parts.scheme}://{parts.netloc}" not in origins:
        return f"This browser opens {', '.join(origins)} only."
    return ""
