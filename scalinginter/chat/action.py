"""From an answer's text to an action, and what the agent is told about the form of its answers.

Parsing never raises: text without an action gives None, and the agent gets `HELP` as observation.
"""

import re
from collections.abc import Callable
from typing import Literal

Format = Literal["plain", "react"]

# "Action:", and what models make of it: "**Action:**", "Action 1:"
_ACTION = re.compile(r"^[ \t*]*action[ \t*\d]*:(?:\*\*)?(.*)$", re.IGNORECASE | re.MULTILINE)

INSTRUCTIONS: dict[str, str] = {
    "plain": "Answer with one action and nothing else.",
    "react": (
        "Answer with a thought and one action, in this form:\n"
        "Thought: what you think\n"
        "Action: the action you take"
    ),
}
"""Appended to the environment's instructions. What they describe is what the parser accepts."""

HELP: dict[str, str] = {
    "plain": "No action found. Answer with one action on the first line.",
    "react": "No action found. End your answer with a line 'Action: ' and the action you take.",
}
"""The observation after an answer without an action."""


def parse_plain(text: str) -> str | None:
    """Return the answer's first line that holds anything, or None if there is none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), None)


def parse_react(text: str) -> str | None:
    """Return what follows `Action:` on the last line of that kind, or, if that is empty, the next
    line that is not (ReAct, arXiv 2210.03629); None without an action."""
    matches = list(_ACTION.finditer(text))
    return parse_plain(text[matches[-1].start(1) :]) if matches else None


PARSERS: dict[str, Callable[[str], str | None]] = {
    "plain": parse_plain,
    "react": parse_react,
}
