"""Programming tasks: write a function, try it in the sandbox, submit it to hidden tests."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from environments.code.python_math.env import MAX_CODE, PYTHON, split_action
from environments.code.python_programs.functions import (
    Step,
    describe,
    draw_inputs,
    draw_steps,
    reference,
    solution,
    takes_list,
)
from environments.code.python_programs.judge import judge
from environments.code.sandbox import Session
from environments.code.seeded import Drawn, PartsEnv, SandboxParams, check_int, told
from scalinginter.types import Task, Tool

SUBMIT = Tool(
    "submit",
    "Submit the code of the function to the hidden tests.",
    {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "the function, and what it uses"}},
        "required": ["code"],
    },
    "submit\n{code}",
)
RULES = """\
Write a Python function. You can run code to try it; hidden tests judge what you submit: all of \
them have to pass. A task may have several functions: the next one is shown when the one before \
is solved. You have {attempts} for each; then the episode is over."""
GRAMMAR = """
Every turn you answer with one action:
python CODE - run Python code and see what it prints. The code may go on over several lines after \
the word python. Variables are kept. The value of a last expression is printed.
submit CODE - submit the whole code of the function, on several lines after the word submit."""
HELP = "Not an action. Say python and code to try it, or submit and the code of the function."
JUDGE_OUTPUT_BYTES = 200_000


class PythonPrograms(PartsEnv):
    """Write functions; each accepted one earns 1 / parts, the last wrong attempt ends the episode.

    Args:
        min_steps, max_steps: operations that a function is made of.
        attempts: submissions that each function may take.
        sandbox_url: a SandboxFusion server that runs the code instead; None: this machine.
        shared: those of `environments.code.seeded.PartsEnv`.
    """

    env_id: ClassVar[str] = "python_programs"

    def __init__(
        self,
        *,
        min_steps: int = 2,
        max_steps: int = 4,
        attempts: int = 2,
        sandbox_url: str | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        check_int("min_steps", min_steps, 1, 8)
        check_int("max_steps", max_steps, min_steps, 8)
        check_int("attempts", attempts, 1, 100)
        self._steps = (min_steps, max_steps)
        self._attempts = attempts
        limits = replace(self._limits, cpu_s=max(1, int(self._limits.wall_s) * 4))
        self._place = SandboxParams(self._level, sandbox_url, limits)
        judged = replace(self._limits, output_bytes=JUDGE_OUTPUT_BYTES)
        self._judges_place = SandboxParams(self._level, sandbox_url, judged)
        self._session: Session | None = None
        self.instructions = self.rules + GRAMMAR

    @property
    def rules(self) -> str:
        count = f"{self._attempts} attempts" if self._attempts > 1 else "one attempt"
        return RULES.format(attempts=count)

    def tools(self) -> Sequence[Tool]:
        return (PYTHON, SUBMIT)

    def _draw(self, chance: random.Random, index: int) -> Drawn:
        count = self._parts[index % len(self._parts)]
        functions = [draw_steps(chance, chance.randint(*self._steps)) for _ in range(count)]
        data: dict[str, Any] = {
            "functions": [[[number, given] for number, given in steps] for steps in functions],
            "tests": chance.randrange(2**32),
        }
        return data, count * self.turns_per_part, f"p{count}"

    def _begin(self, task: Task) -> str:
        self.close()
        self._functions: list[list[Step]] = [
            [(number, given) for number, given in steps] for steps in task.data["functions"]
        ]
        self._tests_seed: int = task.data["tests"]
        self._part = 0
        self._left = self._attempts
        return self._show()

    @property
    def _count(self) -> int:
        return len(self._functions)

    @property
    def _name(self) -> str:
        return f"f{self._part + 1}"

    def _tests(self) -> tuple[list[Any], list[Any]]:
        """Return the hidden tests of the part that is due: inputs and expected results."""
        steps = self._functions[self._part]
        inputs = draw_inputs(random.Random(f"{self._tests_seed}/{self._part}"), steps)
        solve = reference(self._name, steps)
        return inputs, [solve(given) for given in inputs]

    def _show(self) -> str:
        steps = self._functions[self._part]
        example = [4, -3, 7, 7, 12, -8, 5] if takes_list(steps) else "The old Tree and a sea"
        result = reference(self._name, steps)(example)
        task = describe(self._name, steps)
        return f"{self._title()}{task}\nFor example, {self._name}({example!r}) is {result!r}."

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        verb, rest = split_action(action)
        if len(rest) > MAX_CODE:
            return f"The code is too long: at most {MAX_CODE} characters.", 0.0, False, False
        if verb == "python" and rest.strip():
            return self._run(rest), 0.0, False, False
        if verb == "submit" and rest.strip():
            return self._submit(rest)
        return HELP, 0.0, False, False

    def _run(self, code: str) -> str:
        if self._session is None:
            self._session = self._place.sandbox.session()
        result = self._session.run(code)
        return told(result, self._max_output, "; variables are lost") or "[it printed nothing]"

    def _submit(self, code: str) -> tuple[str, float, bool, bool]:
        inputs, expected = self._tests()
        passed, note = judge(self._judges_place.sandbox, code, self._name, inputs, expected)
        if passed == len(inputs):
            self._left = self._attempts
            return self._solved("Accepted.")
        self._left -= 1
        why = f"Not accepted: {passed} of {len(inputs)} tests pass" + (
            f"; {note}." if note else "."
        )
        if self._left == 0:
            return f"{why} The episode is over.", 0.0, True, False
        plural = "attempts" if self._left > 1 else "attempt"
        return f"{why} {self._left} {plural} left.", 0.0, False, False

    def expert_plan(self) -> list[str] | None:
        plan: list[str] = []
        for place, steps in enumerate(self._functions, 1):
            code = solution(f"f{place}", steps)
            example = "[3, 1, 2]" if takes_list(steps) else "'a text'"
            plan += [f"python\n{code}\nf{place}({example})", f"submit\n{code}"]
        return plan

    def corpus(self) -> list[str]:
        """Return the texts of every operation; runs nothing of the agent."""
        chance = random.Random(0)
        texts = [self.instructions, HELP, "Part 1 of 2: Accepted. All done. For example, is"]
        for place in range(256):
            steps = draw_steps(chance, 1 + place % 4)
            texts += [describe("f1", steps), f"submit\n{solution('f1', steps)}"]
        return [*texts, "Not accepted: 1 of 12 tests pass. 1 attempt left. The episode is over."]

    def close(self) -> None:
        """End the interpreter of the episode."""
        if self._session:
            self._session.close()
            self._session = None
