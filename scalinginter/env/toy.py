"""Toy environments that ship: something to learn in a few steps, to measure with, to break."""

import itertools
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium

from scalinginter.env.base import SPLITS, Split, TextEnv, check_split
from scalinginter.errors import UserError
from scalinginter.types import Task

Answer = tuple[str, float, bool, bool, dict[str, Any]]

_COLOURS = ("red", "blue", "green", "white", "black", "grey", "brown", "pink")
_METALS = ("iron", "brass", "gold", "tin", "lead", "zinc", "steel", "silver")
_SPLIT_OF = ("train", "train", "validation", "test")  # by position, in a cycle
_WORDS = ("wait", "tick", "noise", "rain", "wind", "step", "clock", "drop")


class ToyCorridor(TextEnv):
    """Walk to the end of a corridor: `right` goes on, `left` goes back. Learnt in a few steps.

    Args:
        max_length: corridors have 1 to this many cells, each length as often as the others; that
            many turns are needed.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "inline"
    instructions = "left or right ."
    env_id: ClassVar[str] = "toy_corridor"

    def __init__(self, *, max_length: int = 3) -> None:
        _check_whole("max_length", max_length, 1)
        self._max_length = max_length
        self._left = 0  # cells to go; 0: no episode

    def tasks(self, split: Split) -> Sequence[Task]:
        check_split(split)
        names = [" ".join(pair) for pair in itertools.product(_COLOURS, _METALS)]
        mine = [n for n, s in zip(names, itertools.cycle(_SPLIT_OF), strict=False) if s == split]
        return [self._task(split, index, name) for index, name in enumerate(mine)]

    def _task(self, split: Split, index: int, name: str) -> Task:
        length = 1 + index % self._max_length
        data = {"name": name, "length": length}
        return Task(f"{split}/l{length}/{index:06d}", self.env_id, data, length)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        self._name: str = task.data["name"]
        self._left = self._length = int(task.data["length"])
        return self._look(), {"task_id": task.id, "success": False}

    def _look(self) -> str:
        return f"{self._name} corridor . {self._left} to go"

    def step(self, action: str) -> Answer:
        if not self._left:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        word = action[:100].strip().lower()
        if word == "right":
            self._left -= 1
        elif word == "left":
            self._left = min(self._left + 1, self._length)
        else:
            return self.instructions, 0.0, False, False, {"success": False}
        done = self._left == 0
        return self._look(), float(done), done, False, {"success": done}

    def admissible_actions(self) -> list[str] | None:
        return ["left", "right"]

    def expert_plan(self) -> list[str] | None:
        return ["right"] * self._length


class ToyForced(TextEnv):
    """Takes any text and goes on: every episode runs to the horizon. For measuring throughput.

    Args:
        length: the turn on which it ends with reward 1; None: never.
        prompt_words, observation_words: how long the first and the other observations are.
        num_tasks: tasks of the training split; the others have a quarter, at least one.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "inline"
    instructions = "say anything ."

    def __init__(
        self,
        *,
        length: int | None = None,
        prompt_words: int = 16,
        observation_words: int = 4,
        num_tasks: int = 64,
    ) -> None:
        if length is not None:
            _check_whole("length", length, 1)
        _check_whole("prompt_words", prompt_words, 1)
        _check_whole("observation_words", observation_words, 1)
        _check_whole("num_tasks", num_tasks, 1)
        self._length = length
        self._prompt_words = prompt_words
        self._observation_words = observation_words
        self._sizes = {split: max(1, num_tasks // 4) for split in SPLITS} | {"train": num_tasks}
        self._over = True

    def tasks(self, split: Split) -> Sequence[Task]:
        check_split(split)
        first = sum(self._sizes[s] for s in SPLITS[: SPLITS.index(split)])
        return [
            Task(f"{split}/{index:06d}", "toy_forced", {"number": first + index}, self._length)
            for index in range(self._sizes[split])
        ]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        self._number: int = task.data["number"]
        self._turns = 0
        self._over = False
        return self._say(self._prompt_words), {"task_id": task.id, "success": False}

    def _say(self, num_words: int) -> str:
        """Return words that spell the task's number and the turn in base 8, then repeat."""
        digits = f"{self._number:o}{self._turns:o}"
        return " ".join(_WORDS[int(digits[i % len(digits)])] for i in range(num_words))

    def step(self, action: str) -> Answer:
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        self._turns += 1
        self._over = done = self._turns == self._length
        return self._say(self._observation_words), float(done), done, False, {"success": done}

    def expert_plan(self) -> list[str] | None:
        return None if self._length is None else ["wait"] * self._length

    def corpus(self) -> list[str]:
        return [self.instructions, " ".join(_WORDS)]


class ToyFaulty(ToyCorridor):
    """A corridor that breaks on chosen tasks. For tests of what runs environments.

    Args:
        hang_on, crash_on, raise_on, bad_reward_on: ids of tasks on which it never answers, kills
            its process, raises, or gives a reward that is not a number.
        at_turn: the turn on which it breaks; 0: in reset (a bad reward: on turn 1).
        once_in: a folder; each task then breaks on its first attempt only, over all processes
            that name this folder. None: on every attempt.
        delay_s: seconds that every reset and step takes.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "process"
    env_id: ClassVar[str] = "toy_faulty"

    def __init__(
        self,
        *,
        hang_on: Sequence[str] = (),
        crash_on: Sequence[str] = (),
        raise_on: Sequence[str] = (),
        bad_reward_on: Sequence[str] = (),
        at_turn: int = 1,
        once_in: str | None = None,
        delay_s: float = 0.0,
        max_length: int = 3,
    ) -> None:
        super().__init__(max_length=max_length)
        _check_whole("at_turn", at_turn, 0)
        self._faults = {"hang": hang_on, "crash": crash_on, "raise": raise_on, "nan": bad_reward_on}
        self._at_turn = at_turn
        self._once_in = once_in
        self._delay_s = delay_s

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        fault = next((f for f, ids in self._faults.items() if info["task_id"] in ids), None)
        self._fault = fault if fault and self._is_due(info["task_id"]) else None
        self._turn = 0
        self._break()
        return observation, info

    def _is_due(self, task_id: str) -> bool:
        if self._once_in is None:
            return True
        mark = Path(self._once_in) / task_id.replace("/", "_")
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _break(self) -> None:
        if self._delay_s:
            time.sleep(self._delay_s)
        if self._turn != self._at_turn:
            return
        if self._fault == "raise":
            raise RuntimeError("toy_faulty was asked to raise")
        if self._fault == "crash":
            os._exit(41)
        while self._fault == "hang":
            time.sleep(60)

    def step(self, action: str) -> Answer:
        self._turn += 1
        self._break()
        observation, reward, terminated, truncated, info = super().step(action)
        if self._fault == "nan" and self._turn >= self._at_turn:
            reward = math.nan
        return observation, reward, terminated, truncated, info


def _check_whole(name: str, value: object, least: int) -> None:
    if type(value) is not int or value < least:
        raise UserError(f"{name} must be a whole number from {least}, got {value!r}")
