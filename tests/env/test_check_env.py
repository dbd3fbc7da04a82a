"""`check_env` finds what is wrong with an environment: each class below has one bug."""

import contextlib
import random

import pytest

from scalinginter.env.check import _CHECKS, check_env, make_subject
from scalinginter.env.check_split import check_split
from scalinginter.env.toy import ToyCorridor
from scalinginter.errors import UserError
from scalinginter.types import Task


def _failures(cls: type[ToyCorridor], **params: object) -> list[str]:
    return check_env(cls, params, num_tasks=4).failures


def _with_data(task: Task, **data: object) -> Task:
    return Task(task.id, task.environment, {**task.data, **data}, task.required_turns)


@pytest.mark.parametrize(
    ("env_id", "params"),
    [
        ("textcraft", {}),
        ("textcraft", {"brief": True, "bag": 3, "max_depth": 5, "distractors": 2}),
        ("toy_corridor", {}),
        ("toy_faulty", {}),
        ("toy_forced", {"length": 3}),
        ("toy_forced", {}),
    ],
)
def test_a_sound_environment_passes(env_id: str, params: dict):
    report = check_env(env_id, params, num_tasks=4)
    assert report.ok, str(report)


class Sound(ToyCorridor):
    """A class of somebody else, in a module that cannot be imported by name."""


def test_a_class_outside_the_registry_is_checked():
    assert check_env(Sound, num_tasks=3).ok


def test_a_report_has_a_line_per_check():
    lines = str(check_env(Sound, num_tasks=2)).splitlines()
    marks = [line[:5] for line in lines]
    assert marks == ["ok   "] * len(_CHECKS)


def test_refused_parameters_are_an_error_of_the_user_and_not_a_finding():
    with pytest.raises(UserError, match="no parameter 'max_lenght'"):
        check_env("toy_corridor", {"max_lenght": 2})


class Unsolvable(ToyCorridor):
    """The plan of the longest tasks is too short, that of the shortest raises."""

    def expert_plan(self):
        plan = super().expert_plan()
        if len(plan) == 1:
            raise OSError("no plan file")
        return plan[:2]


def test_a_whole_split_is_played_and_every_faulty_task_is_named():
    report = check_split(make_subject(Unsolvable, {}), "test")
    assert not report.ok
    assert "11 of 16 tasks: " in str(report)
    assert "test/l1/000000: raised OSError: no plan file" in str(report)
    assert "test/l3/000002: not solved after 2 turns of the plan" in str(report)


def test_a_whole_split_of_a_sound_environment_passes():
    report = check_split(make_subject("toy_corridor", {}), "validation")
    assert str(report) == (
        "ok   expert solves every task of validation: 16 of 16 tasks in 1 to 3 turns"
    )


class HashSeeded(ToyCorridor):
    """The task list follows the order of a set of strings."""

    def tasks(self, split):
        return sorted(super().tasks(split), key=lambda t: hash(t.id))


def test_pitfall_25_a_task_list_that_depends_on_the_hash_seed_is_found():
    assert _failures(HashSeeded) == ["same in two processes"]


class Unseeded(ToyCorridor):
    """Observations hold chance that no seed governs."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        return f"{observation} {random.Random().random()}", info


def test_pitfall_25_observations_that_the_seed_does_not_govern_are_found():
    assert {"same in two processes", "reset leaks nothing"} <= set(_failures(Unseeded))


class SharedRandom(ToyCorridor):
    """Seeds the random state of the whole process."""

    def reset(self, *, seed=None, options=None):
        random.seed(seed)
        return super().reset(seed=seed, options=options)


def test_pitfall_25_seeding_the_shared_random_state_is_found():
    assert _failures(SharedRandom) == ["global random state is left alone"]


class DoubleIds(ToyCorridor):
    """Two tasks have one id."""

    def tasks(self, split):
        tasks = super().tasks(split)
        return [*tasks, _with_data(tasks[0], name="another")]


def test_pitfall_25_an_id_that_stands_for_two_tasks_is_found():
    assert "task ids are unique and stable" in _failures(DoubleIds)


class Overlapping(ToyCorridor):
    """The test tasks are training tasks under other names."""

    def tasks(self, split):
        source = super().tasks("train" if split == "test" else split)
        return [
            Task(f"{split}/{i}", t.environment, t.data, t.required_turns)
            for i, t in enumerate(source)
        ]


def test_splits_that_share_a_task_are_found():
    assert _failures(Overlapping) == ["splits are disjoint"]


class NotJson(ToyCorridor):
    """The data hold a tuple, which JSON turns into a list."""

    def tasks(self, split):
        return [_with_data(task, pair=(1, 2)) for task in super().tasks(split)]


def test_task_data_that_do_not_survive_json_are_found():
    assert "tasks are sound" in _failures(NotJson)


class Farmed(ToyCorridor):
    """The goal can be reached again and again."""

    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        self._left = self._left or self._length
        return observation, reward, False, truncated, info


def test_pitfall_26_a_reward_that_can_be_farmed_is_found():
    assert {"success terminates", "random reward is in [0, 1]"} <= set(_failures(Farmed))


class Percent(ToyCorridor):
    """Success is worth 100."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, 100 * reward, *rest


def test_pitfall_26_a_reward_above_one_is_found():
    assert "expert reward is in [0, 1]" in _failures(Percent)


class Endless(ToyCorridor):
    """After the end it pays once more."""

    def step(self, action):
        if not self._left:
            return "again", 1.0, True, False, {"success": True}
        return super().step(action)


def test_pitfall_26_pay_after_the_end_is_found():
    assert _failures(Endless) == ["steps after the end are refused"]


class Unsaid(ToyCorridor):
    """The prompt says `go right`, the parser wants `right`."""

    instructions = "say goright or goleft"


def test_pitfall_28_an_action_that_the_prompt_does_not_name_is_found():
    assert _failures(Unsaid) == ["prompt names the actions"]


class Boasting(ToyCorridor):
    """Lists an action that it does not understand."""

    instructions = "left or right or jump ."

    def admissible_actions(self):
        return ["left", "right", "jump"]


def test_pitfall_28_an_admissible_action_that_is_not_understood_is_found():
    assert _failures(Boasting) == ["admissible actions are accepted"]


class Evaluating(ToyCorridor):
    """Runs the text of the model."""

    def step(self, action):
        with contextlib.suppress(Exception):
            eval(action)  # noqa: S307 - the bug
        return super().step(action)


def test_pitfall_30_an_environment_that_evaluates_text_is_found():
    assert _failures(Evaluating) == ["hostile text is harmless"]


class Fragile(ToyCorridor):
    """Splits an action that may be empty."""

    def step(self, action):
        return super().step(action.split()[0])


def test_pitfall_30_text_that_makes_it_raise_is_found():
    assert _failures(Fragile) == ["hostile text is harmless"]


class Leaking(ToyCorridor):
    """Counts the turns of all episodes."""

    steps = 0

    def step(self, action):
        self.steps += 1
        observation, *rest = super().step(action)
        return f"{observation} . turn {self.steps}", *rest


def test_pitfall_31_state_that_survives_a_reset_is_found():
    assert "reset leaks nothing" in _failures(Leaking)


class Truncating(ToyCorridor):
    """Ends its episodes by itself after two turns."""

    def step(self, action):
        self._turns = getattr(self, "_turns", 0) + 1
        observation, reward, done, _, info = super().step(action)
        return observation, reward, done, self._turns % 2 == 0 and not done, info


def test_an_environment_that_truncates_by_itself_is_found():
    assert "random reward is in [0, 1]" in _failures(Truncating)


class Wrong(ToyCorridor):
    """Its expert goes the wrong way."""

    def expert_plan(self):
        return ["left"] * self._length


def test_an_expert_that_does_not_solve_is_found():
    assert _failures(Wrong) == ["expert solves within the limit"]


class Underestimated(ToyCorridor):
    """Says that a task takes fewer turns than it does."""

    def _task(self, split, index, name):
        task = super()._task(split, index, name)
        return Task(task.id, task.environment, {**task.data, "length": task.data["length"] + 1}, 1)


def test_a_required_length_that_the_expert_cannot_keep_is_found():
    assert _failures(Underestimated) == ["expert solves within the limit"]


class Spaceless(ToyCorridor):
    """Has no spaces, which gymnasium.make wants."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = self.action_space = None


def test_an_environment_that_gymnasium_cannot_make_is_found():
    assert _failures(Spaceless) == ["gymnasium API"]
