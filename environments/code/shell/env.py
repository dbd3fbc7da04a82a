"""Chores in a throw-away folder, done with a shell in the sandbox."""

import os
import random
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from environments.code.python_math.env import split_action
from environments.code.sandbox.local import Box, LocalSandbox
from environments.code.seeded import Drawn, PartsEnv, told
from environments.code.shell.chores import CHORES, Chore, is_done, make_chore
from scalinginter.env.base import chosen_kinds
from scalinginter.types import Task, Tool

RULES = """\
You work in a folder of files with a bash shell (grep, find, sed, awk, sort and the like). You get \
one job after the other: the next one is shown when the one before is done. Every command starts \
in the folder that holds all jobs; nothing but the files is kept from command to command. A wrong \
answer ends the episode."""
GRAMMAR = """
Every turn you answer with one action:
bash COMMAND - run a command and see what it prints. It may go on over several lines.
answer TEXT - answer the question of a job that asks one."""
HELP = "Not an action. Say bash and a command, or answer and a text."
MAX_COMMAND = 20_000  # characters


def _tool(name: str, description: str, argument: str, about: str) -> Tool:
    schema = {argument: {"type": "string", "description": about}}
    parameters = {"type": "object", "properties": schema, "required": [argument]}
    return Tool(name, description, parameters, f"{name} {{{argument}}}")


TOOLS = (
    _tool("bash", "Run a command and see what it prints.", "command", "the command"),
    _tool("answer", "Answer the question of a job that asks one.", "answer", "the answer"),
)


class Shell(PartsEnv):
    """Do chores with a shell; each earns 1 / parts, a wrong answer ends the episode.

    Args:
        kinds: which chores (see the card); None: all.
        shared: those of `environments.code.seeded.PartsEnv`.
    """

    env_id: ClassVar[str] = "shell"
    usual_parts: ClassVar[tuple[int, ...]] = (1, 1, 2, 3, 5, 8, 12, 16, 22)
    instructions = RULES + GRAMMAR

    def __init__(self, *, kinds: Sequence[str] | None = None, **shared: Any) -> None:
        super().__init__(**shared)
        self._kinds = chosen_kinds(kinds, tuple(CHORES), "chore")
        self._box: Box | None = None

    @property
    def rules(self) -> str:
        return RULES

    def tools(self) -> Sequence[Tool]:
        return TOOLS

    def _draw(self, chance: random.Random, index: int) -> Drawn:
        count = self._parts[index % len(self._parts)]
        drawn = [[chance.choice(self._kinds), chance.randrange(10**9)] for _ in range(count)]
        turns = sum(_turns(str(kind)) for kind, _ in drawn)
        return {"chores": drawn}, turns, f"p{count}"

    def _begin(self, task: Task) -> str:
        self.close()
        self._chores: list[Chore] = [make_chore(kind, seed) for kind, seed in task.data["chores"]]
        self._part = 0
        return self._show()

    def _open(self) -> Box:
        """Return the box, with the files of all chores: nothing is written into it later, when a
        command could have put a link in the way."""
        if self._box is None:
            self._box = LocalSandbox(self._limits, self._level).box()
            for place, chore in enumerate(self._chores):
                for path, content in chore.files.items():
                    self._box.folder.write(f"{_folder(place)}/{path}", content)
        return self._box

    @property
    def _count(self) -> int:
        return len(self._chores)

    def _show(self) -> str:
        text = self._chores[self._part].text.format(here=_folder(self._part))
        return f"{self._title()}{text}"

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        verb, rest = split_action(action)
        if verb == "bash" and rest.strip():
            return self._run(rest)
        if verb == "answer" and rest.strip():
            return self._answer(rest)
        return HELP, 0.0, False, False

    def _run(self, command: str) -> tuple[str, float, bool, bool]:
        if len(command) > MAX_COMMAND or "\0" in command:
            return (
                f"A command may have {MAX_COMMAND} characters, none of them NUL.",
                0.0,
                False,
                False,
            )
        box = self._open()
        text = told(box.run(command), self._max_output).replace(box.inside, "")
        chore = self._chores[self._part]
        if chore.answer is None and is_done(
            chore, os.path.join(box.folder.path, _folder(self._part))
        ):
            return self._solved(f"{text}\nThe job is done.".strip())
        return text or "[it printed nothing]", 0.0, False, False

    def _answer(self, text: str) -> tuple[str, float, bool, bool]:
        wanted = self._chores[self._part].answer
        if wanted is None:
            return "This job asks nothing: change the files.", 0.0, False, False
        given = re.sub(
            rf"^(\./)?({_folder(self._part)}/)?", "", text.strip().strip("'\"`").rstrip(".")
        )
        if given.lower() != wanted.lower():
            return "That is wrong. The episode is over.", 0.0, True, False
        return self._solved("That is right.")

    def expert_plan(self) -> list[str] | None:
        plan: list[str] = []
        for place, chore in enumerate(self._chores):
            plan += [f"bash {command.format(here=_folder(place))}" for command in chore.plan]
            if chore.answer is not None:
                plan.append(f"answer {chore.answer}")
        return plan

    def corpus(self) -> list[str]:
        """Return the texts of every kind of chore; runs nothing."""
        texts = [
            self.instructions,
            HELP,
            "The job is done. That is right. That is wrong. All done.",
        ]
        for kind in CHORES:
            for seed in range(8):
                chore = make_chore(kind, seed)
                texts += [chore.text, *chore.plan, *chore.files.values(), str(chore.answer)]
        return texts

    def close(self) -> None:
        """Remove the folder of the episode."""
        if self._box:
            self._box.close()
            self._box = None


def _folder(place: int) -> str:
    return f"job{place + 1:02d}"


def _turns(kind: str) -> int:
    """Return the turns of the expert for a kind: the same for every seed."""
    chore = make_chore(kind, 0)
    return len(chore.plan) + (chore.answer is not None)
