"""The household: errands in a home whose things have to be found, in the style of ALFWorld.

ALFWorld is Shridhar et al., arXiv 2010.03768; the forms of action and the kinds of errand follow
its text games. Homes, texts and mechanics are our own.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import gymnasium

from environments.embodied.household.catalogue import CLASS_OF, LAMP, RECEPTACLES, ROOMS, a
from environments.embodied.household.errand import Errand, share
from environments.embodied.household.expert import solve
from environments.embodied.household.grammar import SHOWN, TOOLS, act, actions_now
from environments.embodied.household.homes import KINDS, build
from environments.embodied.household.instances import Design, make_tasks
from scalinginter.env.base import SPLITS, Split, TextEnv, check_whole, chosen_kinds
from scalinginter.errors import UserError, nearest
from scalinginter.types import Task, Tool

MOST_TASKS = 100_000  # of a split
MOST_ERRANDS = 8
MOST_CLUTTER = 30
REWARDS = ("success", "progress")
EXPERTS = ("direct", "search")
RULES = """\
You do errands in a home. You do not know where things are: go to receptacles, and open those that \
are closed. You act on the receptacle that you stand at, and carry one thing at a time. All of the \
errands have to be done at the end, in any order."""
GRAMMAR = "\nEvery turn you answer with one action, names with their numbers: {forms}."


class Household(TextEnv):
    """Errands in a home. Reward 1 when all are done at once, which ends the episode.

    Args:
        kinds: kinds of errand, of `place`, `examine`, `clean`, `heat`, `cool`, `two`; None: all.
        min_errands, max_errands: errands of a task, 1 to 8.
        rooms: rooms of a home at least, 1 to 4; it has more where the errands need them.
        copies: most receptacles of one kind in a room, 1 to 6.
        clutter: things in the home that no errand asks for, 0 to 30.
        reward: `success`: 1 at the end; `progress`: a share for every stage of an errand (in hand,
            treated, put away) that was not reached before.
        expert: `direct`: it knows where everything is; `search`: it looks into one receptacle after
            the other. Required turns are those of its plan.
        remind: every observation ends with what is carried and the task, for very small models.
        num_train, num_validation, num_test: tasks per split.
        task_seed: which tasks.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "inline"

    def __init__(
        self,
        *,
        kinds: Sequence[str] | None = None,
        min_errands: int = 1,
        max_errands: int = MOST_ERRANDS,
        rooms: int = 1,
        copies: int = 4,
        clutter: int = 10,
        reward: str = "success",
        expert: str = "direct",
        remind: bool = False,
        num_train: int = 1008,
        num_validation: int = 144,
        num_test: int = 144,
        task_seed: int = 0,
    ) -> None:
        check_whole("min_errands", min_errands, 1, MOST_ERRANDS)
        check_whole("max_errands", max_errands, min_errands, MOST_ERRANDS)
        check_whole("rooms", rooms, 1, 4)
        check_whole("copies", copies, 1, 6)
        check_whole("clutter", clutter, 0, MOST_CLUTTER)
        check_whole("task_seed", task_seed, 0)
        _check_one("reward", reward, REWARDS)
        _check_one("expert", expert, EXPERTS)
        self._sizes = (num_train, num_validation, num_test)
        for split, size in zip(SPLITS, self._sizes, strict=True):
            check_whole(f"num_{split}", size, 1, MOST_TASKS)
        numbers = range(min_errands, max_errands + 1)
        chosen = chosen_kinds(kinds, KINDS, "errand")
        search = expert == "search"
        self._design = Design(chosen, numbers, rooms, copies, clutter, task_seed, search)
        self._remind = remind
        self._by_progress = reward == "progress"
        self.instructions = RULES + GRAMMAR.format(forms=", ".join(SHOWN))
        self._over = True

    @property
    def rules(self) -> str:
        return RULES

    def tools(self) -> Sequence[Tool]:
        """Return a function for every form of action."""
        return TOOLS

    def tasks(self, split: Split) -> Sequence[Task]:
        if split not in SPLITS:
            raise UserError(f"unknown split {split!r}{nearest(split, SPLITS)}; one of {SPLITS}")
        return make_tasks(self._design, self._sizes)[split]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`. There is no chance in an episode: the seed changes nothing."""
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        self._data: dict[str, Any] = dict(task.data)
        self._world, self._errands = build(**self._data)
        self._best = 0.0
        self._over = False
        first = f"{self._world.overview()}\n{self._task()}"
        return first, {"task_id": task.id, "success": False}

    def _task(self) -> str:
        return f"Task: {'; '.join(errand.text for errand in self._errands)}."

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end of the episode."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        observation = act(self._world, action)
        done = share(self._errands, self._world)
        success = self._over = done == 1
        if success:
            observation += " All errands are done."
        elif self._remind:
            held = self._world.held
            observation += f"\nCarried: {held.described if held else 'nothing'}. {self._task()}"
        earned = max(0.0, done - self._best) if self._by_progress else float(success)
        self._best = max(self._best, done)
        return observation, earned, success, False, {"success": success}

    def admissible_actions(self) -> list[str] | None:
        """Return every action that is accepted now, by form, then in the order of the home."""
        return [] if self._over else actions_now(self._world)

    def expert_plan(self) -> list[str] | None:
        """Return the actions of the expert that `expert` names. Not proved shortest."""
        return solve(*build(**self._data), self._design.search)

    def corpus(self) -> list[str]:
        """Return texts that hold every word of the tasks of all splits."""
        nouns = [*CLASS_OF, *RECEPTACLES, *ROOMS, LAMP]
        errands = [Errand(kind, "mug", "drawer").text for kind in KINDS]
        return [
            *super().corpus(),
            " ".join([*map(a, nouns), *(noun.capitalize() for noun in nouns)]),
            " ".join([*errands, "on", *map(str, range(1, 25))]),
        ]


def _check_one(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UserError(
            f"{name} must be one of {', '.join(allowed)}, got {value!r}"
            f"{nearest(str(value), allowed)}"
        )
