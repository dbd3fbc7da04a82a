"""The forms of answers by their names in a recipe (`chat.format`)."""

from collections.abc import Sequence

from scalinginter.chat.action import AnswerFormat, Plain, ReAct
from scalinginter.chat.tool_formats import Code, Tags, ToolCall
from scalinginter.errors import UserError
from scalinginter.types import Tool

FORMATS: dict[str, type[AnswerFormat]] = {
    "plain": Plain,
    "react": ReAct,
    "tool_call": ToolCall,
    "tags": Tags,
    "code": Code,
}


def answer_format(name: str, tools: Sequence[Tool], environment: str) -> AnswerFormat:
    """Return the form `name` for an environment with these tools.

    Raises `UserError` if the environment has not what the form needs.
    """
    try:
        return FORMATS[name](tools)
    except ValueError as error:
        raise UserError(f"chat.format: {name} does not suit {environment!r}: {error}") from error
