"""shell: chores are judged by the folder, and a folder full of tricks fools nobody."""

import os
import random
from pathlib import Path

import pytest

from environments.code.shell.chores import CHORES, Chore, is_done, make_chore
from environments.code.shell.env import Shell
from scalinginter.env.check import check_env
from scalinginter.types import Task

SMALL = {"num_train": 16, "num_validation": 8, "num_test": 8, "parts": [1, 2]}


@pytest.fixture
def shell():
    """A shell environment that is closed afterwards."""
    env = Shell(**SMALL)
    yield env
    env.close()


def _start(env: Shell, *kinds: str) -> None:
    chores = [[kind, 7] for kind in kinds]
    env.reset(options={"task": Task("x", "shell", {"chores": chores})})


def test_it_passes_the_conformance_check():
    report = check_env("shell", SMALL, num_tasks=2)
    assert report.ok, str(report)


def test_expert_plans_span_one_to_forty_turns():
    lengths = [task.required_turns for task in Shell().tasks("train")]
    assert min(lengths) <= 2
    assert max(lengths) >= 36


@pytest.mark.parametrize("kind", CHORES)
def test_the_expert_does_every_kind_of_chore(shell, kind: str):
    _start(shell, kind)
    answers = [shell.step(action) for action in shell.expert_plan()]
    assert (answers[-1][2], answers[-1][4]["success"]) == (True, True)


@pytest.mark.parametrize("kind", CHORES)
def test_no_chore_is_done_before_anything_is_done(shell, kind: str):
    _start(shell, kind)
    assert shell.step("bash true")[1:3] == (0.0, False)


def test_a_chore_that_removes_too_much_is_not_done(shell):
    _start(shell, "clean")
    assert shell.step("bash rm -rf job01/*")[1:3] == (0.0, False)


def test_chores_follow_each_other_and_share_the_reward(shell):
    _start(shell, "unique", "permissions")
    plan = shell.expert_plan()
    rewards = [shell.step(action)[1] for action in plan]
    assert rewards == [0.5, 0.5]


def test_pitfall_27_a_wrong_shell_answer_ends_the_episode(shell):
    _start(shell, "largest")
    assert shell.step("answer nothing.bin")[1:3] == (0.0, True)


def test_pitfall_31_files_of_one_episode_are_not_seen_in_the_next(shell):
    _start(shell, "unique")
    shell.step("bash touch left-over; ls")
    _start(shell, "unique")
    assert "left-over" not in shell.step("bash ls -a")[0]


def test_a_command_that_kills_all_it_can_ends_only_itself(shell):
    _start(shell, "unique")
    shell.step("bash kill -9 -1; kill -9 $$")
    assert shell.step(shell.expert_plan()[0])[1] == 1.0


TRICKS = {
    "the folder is a link to elsewhere": lambda job, away: (
        job.rename(away / "old"),
        job.symlink_to(away),
    ),
    "the file is a link to a file elsewhere": lambda job, away: (job / "f").symlink_to(away / "f"),
    "the file is a pipe that nobody writes to": lambda job, away: os.mkfifo(job / "f"),
    "the file is a folder": lambda job, away: (job / "f").mkdir(),
    "the file is a device": lambda job, away: (job / "f").symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)
def test_the_judge_is_not_fooled_when(tmp_path: Path, trick):
    job, away = tmp_path / "job01", tmp_path / "away"
    job.mkdir()
    away.mkdir()
    (away / "f").write_text("right")
    trick(job, away)
    assert not is_done(Chore({}, "", (), wanted={"f": "right"}), str(job))


def test_a_file_below_a_linked_folder_does_not_count(tmp_path: Path):
    (tmp_path / "job01").mkdir()
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "f").write_text("right")
    (tmp_path / "job01" / "d").symlink_to(tmp_path / "away")
    assert not is_done(Chore({}, "", (), wanted={"d/f": "right"}), str(tmp_path / "job01"))


def test_a_chore_is_a_function_of_its_seed():
    state = random.getstate()
    assert make_chore("clean", 3) == make_chore("clean", 3)
    assert random.getstate() == state
