"""The environment API: a gymnasium environment whose observations and actions are text."""

import string
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import gymnasium

from scalinginter.errors import UserError, nearest
from scalinginter.types import Task, Tool

Split = Literal["train", "validation", "test"]
Isolation = Literal["inline", "thread", "process"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def check_whole(name: str, value: Any, least: int, most: int = 2**31) -> None:
    """Raise `UserError` unless a parameter is a whole number from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{name} must be a whole number from {least} to {most}, got {value!r}")


def chosen_kinds(
    kinds: Sequence[str] | str | None, known: Sequence[str], what: str
) -> tuple[str, ...]:
    """Return the kinds that a parameter names, each once; None: all that are known.

    Raises `UserError` for an unknown one and for none at all.
    """
    if kinds is None:
        return tuple(known)
    given = [kinds] if isinstance(kinds, str) else list(kinds)
    for kind in given:
        if kind not in known:
            raise UserError(
                f"unknown kind of {what} {kind!r}{nearest(f'{kind}', known)}; "
                f"there are: {', '.join(known)}"
            )
    if not given:
        raise UserError(f"kinds is empty; name some of {', '.join(known)}, or leave it out")
    return tuple(dict.fromkeys(given))


def check_split(split: str) -> None:
    """Raise `UserError` unless this is the name of a split."""
    if split not in SPLITS:
        raise UserError(f"unknown split {split!r}{nearest(split, SPLITS)}; one of {SPLITS}")


ACT = Tool(
    "act",
    "Take one action.",
    {
        "type": "object",
        "properties": {"action": {"type": "string", "description": "the action, as text"}},
        "required": ["action"],
    },
    "{action}",
)
"""The tool of environments that have no functions of their own: it takes the action as text."""


class AnyText(gymnasium.spaces.Text):
    """The space of all texts. gymnasium's own have an alphabet and a longest text."""

    def __init__(self) -> None:
        super().__init__(max_length=1_000, min_length=0, charset=string.printable)  # of samples

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


class TextEnv(gymnasium.Env[str, str]):
    """A text environment: `reset` gives the first observation, `step` takes an action as text.

    The constructor takes keyword parameters only (they are `environment.params` of a recipe), does
    no heavy work, and raises `scalinginter.errors.UserError` for values that are not allowed.

    Contract, checked by `scalinginter check-env ID`:

    - `tasks(split)` is a pure function of the parameters: same list, same ids, in every process.
      The three splits share no task.
    - `reset(options={"task": task, "horizon": n})` starts that task. The same task, seed and
      actions give the same observations and rewards, to the byte. Nothing survives a reset.
    - `step` returns `(observation, reward, terminated, truncated, info)`. Rewards are floats whose
      sum over an episode lies in [0, 1]. Reaching the goal sets `terminated` and
      `info["success"] = True`. An action that is not understood costs a turn and gets an
      observation that helps; it never raises.
    - After the end of an episode `step` raises `gymnasium.error.ResetNeeded`, or ends again and
      earns nothing.
    - The environment never ends an episode for its length: the rollout enforces the horizon. It is
      told the horizon so that it may mention it.
    - Text of the model is data: it is parsed, never evaluated.
    """

    isolation: ClassVar[Isolation] = "process"
    """Where an episode's calls run.

    - `inline`: pure Python that cannot hang, in the event loop.
    - `thread`: blocking calls of a service that have a time limit of their own, in a thread per
      episode. A thread cannot be killed: a call that misses its deadline is abandoned with its
      instance, and a bounded number of abandoned threads is put up with.
    - `process`: may hang or crash; in worker processes, killed at a deadline and replaced.
    """

    observation_space: gymnasium.Space[str] = AnyText()
    action_space: gymnasium.Space[str] = AnyText()

    instructions: str
    """What the agent is told once, at the top: the rules and every accepted form of action."""

    @abstractmethod
    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, in a fixed order."""

    @abstractmethod
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode of `options["task"]` (default: the first training task)."""

    @abstractmethod
    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once."""

    def admissible_actions(self) -> list[str] | None:
        """Return the actions that are accepted now, in a fixed order, or None if unknown."""
        return None

    def tools(self) -> Sequence[Tool]:
        """Return the functions that stand for actions in the formats `tool_call`, `tags`, `code`.

        Fixed for an instance. Every action that matters can be reached through them: filling a
        tool's template with its arguments gives the text that `step` takes. Default: `act(action)`.
        """
        return (ACT,)

    @property
    def rules(self) -> str:
        """What the agent is told where the tools say how to act: the instructions without the
        grammar of actions. Default: the instructions, for `act` takes that grammar."""
        return self.instructions

    def expert_plan(self) -> list[str] | None:
        """Return actions that solve the task from its start, or None if there is no expert.

        Called after `reset`, before the first `step`.
        """
        return None

    def release(self) -> None:
        """Let go of what the episode holds elsewhere, such as a session of a server: it is over,
        whether or not it reached an end. Default: nothing."""

    def prepare(self, splits: Sequence[Split] = SPLITS, limit: int | None = None) -> int:
        """Make ahead what is slow to make for the first `limit` tasks of each split (games, sites).

        Returns how many were made; tasks that need nothing count as none.
        """
        return 0

    def corpus(self) -> list[str]:
        """Return texts that cover the environment's words, to build a small tokenizer from.

        Default: the instructions, and what the expert sees and does on the first training tasks.
        """
        texts = [self.instructions]
        for task in self.tasks("train")[:64]:
            observation, _ = self.reset(options={"task": task})
            texts.append(observation)
            for action in self.expert_plan() or []:
                texts.extend(self.admissible_actions() or [])
                observation, _, terminated, truncated, _ = self.step(action)
                texts += [action, observation]
                if terminated or truncated:
                    break
        return texts
