"""Maths problems with a Python interpreter: compute, then answer."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

from environments.code.python_math.problems import PROBLEMS, Number, Problem, chain
from environments.code.sandbox import Session
from environments.code.seeded import Drawn, PartsEnv, SandboxParams, told
from scalinginter.env.base import chosen_kinds
from scalinginter.types import Task, Tool

PYTHON = Tool(
    "python",
    "Run Python code and see what it prints. Variables are kept for your next call. The standard "
    "library is there; there is no network.",
    {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "the code"}},
        "required": ["code"],
    },
    "python\n{code}",
)
ANSWER = Tool(
    "answer",
    "Give the answer: a whole number or a fraction such as 3/7.",
    {
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "the number"}},
        "required": ["answer"],
    },
    "answer {answer}",
)
RULES = """\
Solve a maths problem. You can run Python code to compute; the answer must be exact.
A problem may have several parts: the next one is shown when the one before is solved. A wrong \
answer ends the episode."""
GRAMMAR = """
Every turn you answer with one action:
python CODE - run Python code and see what it prints. The code may go on over several lines after \
the word python. Variables are kept. The value of a last expression is printed.
answer NUMBER - give the answer, a whole number or a fraction such as 3/7."""
HELP = "Not an action. Say python and code, or answer and a number."
_NUMBER = re.compile(r"[+-]?\d{1,400}(?:\s*/\s*\d{1,400}|\.\d{1,400})?")
MAX_CODE = 100_000  # characters of one action


class PythonMath(PartsEnv):
    """Answer maths problems; each right part earns 1 / parts, a wrong answer ends the episode.

    Args:
        kinds: which problems (see the card); None: all.
        sandbox_url: a SandboxFusion server that runs the code instead; None: this machine.
        shared: those of `environments.code.seeded.PartsEnv`.
    """

    env_id: ClassVar[str] = "python_math"
    instructions = RULES + GRAMMAR

    def __init__(
        self,
        *,
        kinds: Sequence[str] | None = None,
        sandbox_url: str | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self._kinds = chosen_kinds(kinds, tuple(PROBLEMS), "problem")
        limits = replace(self._limits, cpu_s=max(1, int(self._limits.wall_s) * 4))
        self._place = SandboxParams(self._level, sandbox_url, limits)
        self._session: Session | None = None

    @property
    def rules(self) -> str:
        return RULES

    def tools(self) -> Sequence[Tool]:
        return (PYTHON, ANSWER)

    def _draw(self, chance: random.Random, index: int) -> Drawn:
        count = self._parts[index % len(self._parts)]
        drawn = []
        for _ in range(count):
            kind = chance.choice(self._kinds)
            drawn.append([kind, PROBLEMS[kind].draw(chance)])
        return {"parts": drawn}, count * self.turns_per_part, f"p{count}"

    def _begin(self, task: Task) -> str:
        self.close()
        self._chain: list[tuple[Problem, list[int], Number]] = chain(task.data["parts"])
        self._part = 0
        return self._show()

    @property
    def _count(self) -> int:
        return len(self._chain)

    def _show(self) -> str:
        problem, arguments, _ = self._chain[self._part]
        return f"{self._title()}{problem.ask(arguments)}"

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        verb, rest = split_action(action)
        if verb == "python" and rest.strip():
            return self._run(rest), 0.0, False, False
        if verb == "answer" and rest.strip():
            return self._answer(rest.strip())
        return HELP, 0.0, False, False

    def _run(self, code: str) -> str:
        if len(code) > MAX_CODE:
            return f"The code is too long: at most {MAX_CODE} characters."
        if self._session is None:
            self._session = self._place.sandbox.session()
        result = self._session.run(code)
        return told(result, self._max_output, "; variables are lost") or "[it printed nothing]"

    def _answer(self, text: str) -> tuple[str, float, bool, bool]:
        number = read_number(text)
        if number is None:
            return "That is not a number. Say answer and a number or a fraction.", 0.0, False, False
        if number != self._chain[self._part][2]:
            return "That is wrong. The episode is over.", 0.0, True, False
        return self._solved("That is right.")

    def expert_plan(self) -> list[str] | None:
        plan: list[str] = []
        for problem, arguments, answer in self._chain:
            plan += [f"python\n{problem.program(arguments)}", f"answer {answer}"]
        return plan

    def corpus(self) -> list[str]:
        """Return the texts of every kind of problem; runs nothing."""
        chance = random.Random(0)
        texts = [self.instructions, HELP, "That is right. That is wrong. The episode is over."]
        for problem in PROBLEMS.values():
            for _ in range(8):
                arguments = problem.draw(chance)
                answer = problem.solve(*arguments)
                texts += [problem.ask(arguments), problem.program(arguments), f"answer {answer}"]
        return [*texts, "Part 1 of 2: All done."]

    def close(self) -> None:
        """End the interpreter of the episode."""
        if self._session:
            self._session.close()
            self._session = None


def split_action(action: str) -> tuple[str, str]:
    """Return the first word, in lower case, and all that follows it, with its indentation."""
    match = re.match(r"\s*([A-Za-z_]+)[ \t:]*\n?", action[: MAX_CODE + 100])
    return (match[1].lower(), action[match.end() : MAX_CODE + 200]) if match else ("", "")


def read_number(text: str) -> Fraction | None:
    """Read `42`, `-3/7`, `0.5`, `1,000`; None for anything else. Takes bounded time."""
    plain = text[:1000].replace(",", "").replace("$", "").strip().rstrip(".")
    if not _NUMBER.fullmatch(plain):
        return None
    try:
        return Fraction(plain.replace(" ", ""))
    except ZeroDivisionError:
        return None
