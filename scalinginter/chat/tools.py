"""Calls of tools: arguments are checked, and a tool's template makes them an action's text."""

import json
import re
from collections.abc import Mapping
from typing import Any

from scalinginter.chat.action import Answer
from scalinginter.errors import nearest
from scalinginter.types import Tool

_SLOT = re.compile(r"\{(\w+)\}")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def function_schema(tool: Tool) -> str:
    """Return a tool as one line of JSON, in OpenAI's function schema."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def properties(tool: Tool) -> dict[str, Any]:
    """Return the schema of each of a tool's parameters, by name."""
    return dict(tool.parameters.get("properties", {}))


def call(tools: Mapping[str, Tool], name: object, arguments: object) -> Answer:
    """Return the action that a call means, or a note that says what is wrong with the call."""
    if not isinstance(name, str) or name not in tools:
        there_are = ", ".join(tools)
        hint = nearest(name[:40], tools) if isinstance(name, str) else ""
        return Answer(None, f"There is no tool {_short(name)}{hint}; there are: {there_are}.")
    tool = tools[name]
    if not isinstance(arguments, dict):
        return Answer(None, f"The arguments of {name} must be an object: {signature(tool)}.")
    problem = _problem(tool, arguments)
    if problem:
        return Answer(None, f"{problem} Call it like this: {signature(tool)}.")
    return Answer(fill(tool, arguments))


def fill(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return the template with its arguments; what is left out takes its schema's default."""
    defaults = {key: schema.get("default", "") for key, schema in properties(tool).items()}
    values = {**defaults, **arguments}
    return _SLOT.sub(lambda slot: text_of(values[slot[1]]), tool.template)


def unfill(tool: Tool, action: str) -> dict[str, Any] | None:
    """Return the arguments that make the template `action`, or None if there are none."""
    pattern, end = "", 0
    for slot in _SLOT.finditer(tool.template):
        pattern += re.escape(tool.template[end : slot.start()]) + f"(?P<{slot[1]}>.*)"
        end = slot.end()
    match = re.fullmatch(pattern + re.escape(tool.template[end:]), action, re.DOTALL)
    if match is None:
        return None
    schemas = properties(tool)
    arguments = {key: value_of(schemas[key], text) for key, text in match.groupdict().items()}
    return None if _problem(tool, arguments) else arguments


def call_of(tools: Mapping[str, Tool], action: str) -> tuple[Tool, dict[str, Any]]:
    """Return the tool and the arguments that stand for `action`.

    Raises `ValueError` if no tool can make it: then the environment's tools do not cover its
    actions.
    """
    for tool in tools.values():
        arguments = unfill(tool, action)
        if arguments is not None:
            return tool, arguments
    raise ValueError(f"no tool of {', '.join(tools)} stands for the action {action[:80]!r}")


def signature(tool: Tool) -> str:
    """Return a call's form: `search(query: string)`."""
    listed = [f"{key}: {_kind(schema)}" for key, schema in properties(tool).items()]
    return f"{tool.name}({', '.join(listed)})"


def _problem(tool: Tool, arguments: Mapping[str, Any]) -> str:
    schemas = properties(tool)
    for key, value in arguments.items():
        if key not in schemas:
            known = ", ".join(schemas) or "none"
            hint = nearest(key[:40], schemas)
            return f"{tool.name} has no argument {_short(key)}{hint}; it has: {known}."
        wrong = _mismatch(schemas[key], value)
        if wrong:
            return f"The argument {key} of {tool.name} {wrong}, got {_short(value)}."
    missing = [key for key in tool.parameters.get("required", ()) if key not in arguments]
    return f"{tool.name} needs the argument {missing[0]}." if missing else ""


def _mismatch(schema: Mapping[str, Any], value: Any) -> str:
    kind = schema.get("type", "string")
    number_for_text = kind == "string" and isinstance(value, int | float)  # 3 for "3": as good
    sound = isinstance(value, _TYPES[kind]) or number_for_text
    if not sound or (isinstance(value, bool) and kind != "boolean"):
        return f"must be of type {kind}"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(map(str, schema['enum']))}"
    return ""


def _kind(schema: Mapping[str, Any]) -> str:
    return "|".join(map(str, schema["enum"])) if "enum" in schema else schema.get("type", "string")


def text_of(value: Any) -> str:
    """Return an argument as it stands in a template."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def value_of(schema: Mapping[str, Any], text: str) -> Any:
    """Return the value that a text stands for under a parameter's schema; the text itself where it
    stands for none, which then has the wrong type."""
    if schema.get("type", "string") == "string":
        return text
    value = parse_json(text)
    return text if value is None else value


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, or None if it is none (or too deep, or not finite)."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
