"""The laboratory: measure, change, mix, grow, test and sort, in the style of ScienceWorld.

ScienceWorld is Wang et al., arXiv 2203.07540. The tasks, texts and mechanics here are our own.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import gymnasium

from environments.science.laboratory.goal import Progress
from environments.science.laboratory.grammar import FORMS, act, actions_now
from environments.science.laboratory.instances import KINDS, build, forms_of, make_tasks, plan
from environments.science.laboratory.setup import LEVELS
from environments.science.laboratory.world import World
from scalinginter.env.base import SPLITS, Split, TextEnv, check_split, check_whole, chosen_kinds
from scalinginter.errors import UserError, nearest
from scalinginter.types import Task

MOST_TASKS = 100_000  # of a split
RULES = """\
You work in a laboratory and do experiments. What is true of a thing has to be found out with the \
instruments. A wrong answer, a wrong focus, a thing in a wrong box, or any of them before the \
test ends the episode without success."""
GRAMMAR = """
Every turn you answer with one action: {forms}."""
NOTES = {
    "focus": " Focus only on what the task asks for.",
    "use": " Use only what you carry.",
    "put in": " Put only what you carry.",
    "pour": " Pour only what you carry.",
}
REWARDS = ("success", "progress")


class Laboratory(TextEnv):
    """Experiments in a few rooms. Reward 1 for success, which ends the episode.

    Args:
        kinds: kinds of task, of `measure`, `change`, `mix`, `grow`, `conductivity`, `classify`;
            None: all.
        min_level, max_level: sizes of the tasks, 1 (a room, tools in hand) to 10 (eight rooms).
        reward: `success`: 1 at the end; `progress`: an equal share for every milestone of the goal.
        num_train, num_validation, num_test: tasks per split.
        task_seed: which tasks.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "inline"

    def __init__(
        self,
        *,
        kinds: Sequence[str] | None = None,
        min_level: int = 1,
        max_level: int = len(LEVELS),
        reward: str = "success",
        num_train: int = 1020,
        num_validation: int = 120,
        num_test: int = 120,
        task_seed: int = 0,
    ) -> None:
        self._kinds = chosen_kinds(kinds, tuple(KINDS), "task")
        check_whole("min_level", min_level, 1, len(LEVELS))
        check_whole("max_level", max_level, min_level, len(LEVELS))
        check_whole("task_seed", task_seed, 0)
        if reward not in REWARDS:
            raise UserError(
                f"reward must be one of {', '.join(REWARDS)}, got {reward!r}"
                f"{nearest(str(reward), REWARDS)}"
            )
        self._sizes = (num_train, num_validation, num_test)
        for split, size in zip(SPLITS, self._sizes, strict=True):
            check_whole(f"num_{split}", size, 1, MOST_TASKS)
        self._levels = range(min_level, max_level + 1)
        self._by_progress = reward == "progress"
        self._task_seed = task_seed
        self._forms = forms_of(self._kinds)
        self.instructions = self.rules + GRAMMAR.format(
            forms=", ".join(FORMS[name].shown for name in self._forms)
        )
        self._over = True

    @property
    def rules(self) -> str:
        notes = (NOTES[name] for name in self._forms if name in NOTES)
        return RULES + "".join(notes)

    def tasks(self, split: Split) -> Sequence[Task]:
        check_split(split)
        return make_tasks(self._kinds, self._levels, self._sizes, self._task_seed)[split]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`. There is no chance in an episode: the seed changes nothing."""
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        self._data: dict[str, Any] = dict(task.data)
        experiment = build(**self._data)
        self._world: World = experiment.world
        self._progress = Progress(experiment.goal)
        self._earned = 0.0
        self._over = False
        text = f"Task: {experiment.goal.text}\n{self._world.look()}"
        held = self._world.held()
        if held:
            text += f" You carry {self._world.listed(held)}."
        return text, {"task_id": task.id, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end of the episode."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        observation = act(self._world, action, self._forms)
        for event in self._world.events:
            self._progress.take(event)
        success = self._progress.success
        self._over = success or self._progress.failed
        if self._over:
            observation += (
                " The task is done." if success else " That is wrong. The task has failed."
            )
        share = self._progress.share if self._by_progress else float(success)
        reward, self._earned = share - self._earned, share
        return observation, reward, self._over, False, {"success": success}

    def admissible_actions(self) -> list[str] | None:
        """Return every action that does something now, by form, then in the order of the world.

        All answers are listed where the task asks for one, and every substance in reach to focus
        on: the list does not tell which is right.
        """
        return [] if self._over else actions_now(self._world, self._forms)

    def expert_plan(self) -> list[str] | None:
        """Return the actions of an expert who knows where everything is and what the tests will
        show, and makes them all the same. Not proved shortest."""
        return plan(self._data["kind"], build(**self._data))

    def corpus(self) -> list[str]:
        """Return texts that hold every word of the tasks of all splits."""
        texts = super().corpus()
        for task in (task for split in SPLITS for task in self.tasks(split)):
            experiment = build(**task.data)
            world = experiment.world
            texts.append(experiment.goal.text)
            texts.append(" ".join([*world.rooms, *world.things, world.note, *world.answers]))
        return texts
