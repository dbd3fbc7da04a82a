"""Answers that call tools: as JSON, between tags, or as code.

One call a turn: of several, the first is made, and the observation says so.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from scalinginter.chat.action import Answer, AnswerFormat
from scalinginter.chat.tools import (
    call,
    call_of,
    function_schema,
    parse_json,
    properties,
    text_of,
    value_of,
)
from scalinginter.types import Tool

CODE_TOOL = "python"  # the tool that a block of code is a call of

_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)\n?```", re.DOTALL | re.IGNORECASE)
_OPEN_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n", re.IGNORECASE)


class ToolCall(AnswerFormat):
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Hermes and Qwen have it."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        listed = "\n".join(function_schema(tool) for tool in tools)
        self.instructions = (
            f"You have these tools:\n<tools>\n{listed}\n</tools>\n"
            "Call one tool per answer, in this form:\n"
            '<tool_call>\n{"name": "the tool", "arguments": {"the argument": "its value"}}\n'
            "</tool_call>"
        )

    def _parse(self, text: str) -> Answer:
        blocks = _CALL.findall(text) or ([text] if text.lstrip().startswith("{") else [])
        if not blocks:
            form = '<tool_call>{"name": ..., "arguments": {...}}</tool_call>'
            return Answer(None, f"No tool call found. Answer with {form}.")
        parsed = parse_json(blocks[0])
        if not isinstance(parsed, dict):
            form = '{"name": ..., "arguments": {...}}'
            return Answer(None, f"The tool call is not a JSON object of the form {form}.")
        function = parsed.get("function")
        if isinstance(function, dict):  # OpenAI's nesting
            parsed = function
        arguments = parsed.get("arguments", {})
        if isinstance(arguments, str):  # OpenAI sends them as text
            arguments = parse_json(arguments)
        return _only_one(call(self.tools, parsed.get("name"), arguments), len(blocks))

    def write(self, action: str) -> str:
        tool, arguments = call_of(self.tools, action)
        body = json.dumps({"name": tool.name, "arguments": arguments}, ensure_ascii=False)
        return f"<tool_call>\n{body}\n</tool_call>"


class Tags(AnswerFormat):
    """`<search>who built it</search>`, as in Search-R1 (arXiv 2503.09516): a tag per tool.

    Between the tags stands the only argument, or a JSON object of several.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        names = "|".join(re.escape(tool.name) for tool in tools) or "(?!)"
        self._tag = re.compile(rf"<({names})>(.*?)</\1>", re.DOTALL)
        self._open = re.compile(rf"<({names})>")
        self.forms = "\n".join(f"{_tag_form(tool)}: {tool.description}" for tool in tools)
        self.instructions = f"Answer with one of these, your thoughts before it:\n{self.forms}"

    def opened(self, text: str) -> str:
        """Return the tool whose tag is opened first, or an empty string."""
        match = self._open.search(text)
        return match[1] if match else ""

    def _parse(self, text: str) -> Answer:
        calls = self._tag.findall(text)
        if not calls:
            name = self.opened(text)
            what = f"<{name}> is not closed." if name else "No action found."
            forms = " or ".join(_tag_form(tool) for tool in self.tools.values())
            return Answer(None, f"{what} Answer with {forms}.")
        name, content = calls[0]
        arguments = _arguments(self.tools[name], content)
        return _only_one(call(self.tools, name, arguments), len(calls))

    def write(self, action: str) -> str:
        tool, arguments = call_of(self.tools, action)
        content = json.dumps(arguments, ensure_ascii=False) if len(arguments) > 1 else ""
        if len(properties(tool)) == 1:
            content = text_of(*arguments.values())
        return f"<{tool.name}>{content}</{tool.name}>"


class Code(AnswerFormat):
    """A block of Python is the action (CodeAct, arXiv 2402.01030); the environment runs it in a
    sandbox. Its other tools are called by tags."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        """Raises `ValueError` if no tool runs code."""
        super().__init__(tools)
        if CODE_TOOL not in self.tools:
            there_are = ", ".join(self.tools)
            raise ValueError(f"no tool {CODE_TOOL!r} runs code there; there are: {there_are}")
        self._python = self.tools[CODE_TOOL]
        self._tags = Tags([tool for tool in tools if tool.name != CODE_TOOL])
        self.instructions = (
            "Answer with one block of code, your thoughts before it:\n```python\nthe code\n```\n"
            f"{self._python.description}"
        )
        if self._tags.tools:
            self.instructions += f"\nInstead of code you may answer with:\n{self._tags.forms}"

    def _parse(self, text: str) -> Answer:
        blocks = _BLOCK.findall(text)
        if blocks:
            arguments = _arguments(self._python, blocks[0])
            return _only_one(call(self.tools, CODE_TOOL, arguments), len(blocks))
        if _OPEN_BLOCK.search(text):
            return Answer(None, "The block of code is not closed: end it with ``` on its own line.")
        if self._tags.opened(text):
            return self._tags.parse(text)
        return Answer(None, "No code found. Answer with ```python, the code, and ``` after it.")

    def write(self, action: str) -> str:
        tool, arguments = call_of(self.tools, action)
        if tool is self._python:
            return f"```python\n{text_of(*arguments.values())}\n```"
        return self._tags.write(action)


def _only_one(answer: Answer, count: int) -> Answer:
    if answer.action is None or count == 1:
        return answer
    return Answer(answer.action, f"Only the first of your {count} calls was made: one per answer.")


def _arguments(tool: Tool, content: str) -> Any:
    """What stands between tags: the only argument as text, or several as JSON."""
    schemas = properties(tool)
    if len(schemas) == 1:
        name, schema = next(iter(schemas.items()))
        return {name: value_of(schema, content.strip("\n") if tool.name == CODE_TOOL else content)}
    return parse_json(content) if content.strip() else {}


def _tag_form(tool: Tool) -> str:
    schemas = properties(tool)
    listed = ", ".join(f'"{name}": ...' for name in schemas)
    content = next(iter(schemas)) if len(schemas) == 1 else f"{{{listed}}}" if schemas else ""
    return f"<{tool.name}>{content}</{tool.name}>"
