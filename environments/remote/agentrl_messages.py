"""Chat messages of AgentRL's workers as text, and actions as assistant messages."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scalinginter.env.base import ACT
from scalinginter.types import Tool

Message = Mapping[str, Any]


def tools_of(schemas: Iterable[Mapping[str, Any]] | None) -> tuple[Tool, ...]:
    """Return the tools of OpenAI's or Anthropic's schemas; `act` where there are none.

    The action's text is the tool's name, and a line `parameter: value` for each parameter.
    """
    tools = []
    for schema in schemas or ():
        function = schema.get("function", schema)
        parameters = function.get("parameters") or function.get("input_schema")
        parameters = {"type": "object", "properties": {}} | (parameters or {})
        slots = "".join(f"\n{name}: {{{name}}}" for name in parameters["properties"])
        text = function.get("description") or ""
        tools.append(Tool(function["name"], text, parameters, function["name"] + slots))
    return tuple(tools) or (ACT,)


def assistant_message(action: str, tools: Sequence[Tool], call_id: str) -> dict[str, Any]:
    """Return the message that an action means: a call where its text has the form of one, else the
    text itself."""
    call = _call(action, tools)
    if call is None:
        return {"role": "assistant", "content": action}
    name, arguments = call
    function = {"name": name, "arguments": json.dumps(arguments)}
    call_of_it = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call_of_it]}


def _call(action: str, tools: Sequence[Tool]) -> tuple[str, dict[str, Any]] | None:
    """Undo the template of `tools_of`."""
    name, _, rest = action.strip().partition("\n")
    for tool in tools:
        if tool.name == name and tool is not ACT:
            return name, _arguments(tool, rest)
    return None


def _arguments(tool: Tool, text: str) -> dict[str, Any]:
    """Read `parameter: value` lines; a value goes on until the next parameter's line. What is empty
    and not required was left out."""
    schemas: dict[str, Any] = tool.parameters["properties"]
    found: dict[str, list[str]] = {}
    current = ""
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon and name in schemas and name not in found:
            current = name
            found[name] = [value.removeprefix(" ")]
        elif current:
            found[current].append(line)
    values = {name: "\n".join(lines) for name, lines in found.items()}
    required = tool.parameters.get("required", ())
    return {
        name: _value(schemas[name], value)
        for name, value in values.items()
        if value or name in required
    }


def _value(schema: Mapping[str, Any], text: str) -> Any:
    """Return the JSON value of a text, where the parameter is not a string."""
    if schema.get("type", "string") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # the worker says what is wrong with it
        return text


def system_text(messages: Iterable[Message]) -> str:
    """Return what the system messages say."""
    return "\n\n".join(content_of(m) for m in messages if m.get("role") == "system")


def shown_text(messages: Iterable[Message]) -> str:
    """Return what the other messages say: the observation."""
    return "\n\n".join(content_of(m) for m in messages if m.get("role") != "system")


def content_of(message: Message) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
