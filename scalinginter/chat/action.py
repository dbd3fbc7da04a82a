"""From an answer's text to an action, and what the agent is told about the form of its answers.

    plain      get log
    react      Thought: a log is needed first.
               Action: get log
    tool_call  <tool_call>{"name": "act", "arguments": {"action": "get log"}}</tool_call>
    tags       <act>get log</act>
    code       a ```python block is run; other tools are called by their tags

Parsing never raises and never evaluates anything: text without an action gives a note, which the
agent gets as its observation, and the turn is spent.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from scalinginter.types import Tool

TURNS_LEFT = "{observation}\nTurns left: {left}"
"""An observation as the model sees it, where a recipe shows the turns that are left."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer's text means."""

    action: str | None  # what the environment gets; None: no action was found
    note: str = ""  # what is wrong with the form, for the agent; never empty without an action


class AnswerFormat(ABC):
    """One form of answers, for an environment with these tools."""

    instructions: str
    """Appended to what the environment tells. What it describes is what `parse` accepts."""

    uses_tools: bool = True
    """Whether actions are calls of tools; else they are the environment's own text."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = {tool.name: tool for tool in tools}

    def parse(self, text: str) -> Answer:
        """Return what an answer means. A leading block of thoughts is not looked at."""
        return self._parse(text.rpartition("</think>")[2])

    def briefing(self, instructions: str, rules: str) -> str:
        """Return what the agent is told once, from an environment's instructions and rules."""
        told = rules if self.uses_tools else instructions
        return f"{told}\n{self.instructions}".strip()

    @abstractmethod
    def _parse(self, text: str) -> Answer:
        """Find the action."""

    @abstractmethod
    def write(self, action: str) -> str:
        """Return an answer that means `action`, as an expert would give it."""


# "Action:", and what models make of it: "**Action:**", "Action 1:"
_ACTION = re.compile(r"^[ \t*]*action[ \t*\d]*:(?:\*\*)?(.*)$", re.IGNORECASE | re.MULTILINE)


class Plain(AnswerFormat):
    """The answer's first line that holds anything is the action."""

    instructions = "Answer with one action and nothing else."
    uses_tools = False

    def _parse(self, text: str) -> Answer:
        action = _first_line(text)
        if action is None:
            return Answer(None, "No action found. Answer with one action on the first line.")
        return Answer(action)

    def write(self, action: str) -> str:
        return action


class ReAct(AnswerFormat):
    """A thought, then `Action:` (ReAct, arXiv 2210.03629). The last line of that kind counts; where
    it is empty, the action is on the next line that is not."""

    instructions = (
        "Answer with a thought and one action, in this form:\n"
        "Thought: what you think\n"
        "Action: the action you take"
    )
    uses_tools = False

    def _parse(self, text: str) -> Answer:
        matches = list(_ACTION.finditer(text))
        action = _first_line(text[matches[-1].start(1) :]) if matches else None
        if action is None:
            note = (
                "No action found. End your answer with a line 'Action: ' and the action you take."
            )
            return Answer(None, note)
        return Answer(action)

    def write(self, action: str) -> str:
        return f"Thought: The next step is clear.\nAction: {action}"


def _first_line(text: str) -> str | None:
    return next((line.strip() for line in text.splitlines() if line.strip()), None)
