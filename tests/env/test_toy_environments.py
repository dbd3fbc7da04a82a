"""The toy environments that ship."""

import math
import subprocess
import sys
import time

import gymnasium
import pytest

from scalinginter.env.registry import make
from scalinginter.errors import UserError


def _start(env, index: int = 0):
    task = env.tasks("train")[index]
    env.reset(options={"task": task})
    return task


def test_the_corridor_takes_as_many_turns_as_it_is_long():
    env = make("toy_corridor", max_length=4)
    task = _start(env, 3)
    rewards = [env.step("right")[1] for _ in range(4)]
    assert (task.required_turns, rewards) == (4, [0, 0, 0, 1])


def test_going_left_undoes_a_step():
    env = make("toy_corridor", max_length=4)
    _start(env, 3)
    ended = [env.step(a)[2] for a in ("right", "left", "right", "right", "right", "right")]
    assert ended == [False] * 5 + [True]


def test_anything_else_in_the_corridor_costs_a_turn_and_helps():
    env = make("toy_corridor")
    _start(env)
    assert env.step("fly")[0] == env.instructions


def test_forced_goes_on_forever_without_a_length():
    env = make("toy_forced")
    _start(env)
    assert not any(env.step("")[2] for _ in range(500))


def test_forced_ends_with_success_at_its_length():
    env = make("toy_forced", length=3)
    _start(env)
    answers = [env.step("x")[1:3] for _ in range(3)]
    assert answers == [(0, False), (0, False), (1, True)]


def test_forced_observations_have_the_length_that_was_asked_for():
    env = make("toy_forced", prompt_words=30, observation_words=7)
    observation, _ = env.reset()
    assert [len(observation.split()), len(env.step("x")[0].split())] == [30, 7]


def test_forced_prompts_of_different_tasks_differ():
    env = make("toy_forced", prompt_words=6)
    prompts = {env.reset(options={"task": task})[0] for task in env.tasks("train")}
    assert len(prompts) == 64


def test_faulty_is_sound_on_tasks_that_were_not_chosen():
    env = make("toy_faulty", raise_on=["train/l1/000000"])
    _start(env, 1)
    assert env.step("right")[1:3] == (0, False)


def test_faulty_raises_on_a_chosen_task():
    env = make("toy_faulty", raise_on=["train/l1/000000"])
    _start(env)
    with pytest.raises(RuntimeError):
        env.step("left")


def test_faulty_raises_in_reset_where_asked():
    env = make("toy_faulty", raise_on=["train/l1/000000"], at_turn=0)
    with pytest.raises(RuntimeError):
        _start(env)


def test_faulty_gives_a_reward_that_is_not_a_number():
    env = make("toy_faulty", bad_reward_on=["train/l1/000000"])
    _start(env)
    assert math.isnan(env.step("left")[1])


def test_faulty_breaks_once_per_task_over_all_instances(tmp_path):
    params = {"raise_on": ["train/l1/000000"], "at_turn": 0, "once_in": str(tmp_path)}
    with pytest.raises(RuntimeError):
        _start(make("toy_faulty", **params))
    assert _start(make("toy_faulty", **params)).id == "train/l1/000000"


def test_faulty_kills_its_process():
    code = (
        "from scalinginter.env.registry import make\n"
        "env = make('toy_faulty', crash_on=['train/l1/000000'])\n"
        "env.reset(); env.step('left')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 41


def test_faulty_hangs():
    code = (
        "from scalinginter.env.registry import make\n"
        "env = make('toy_faulty', hang_on=['train/l1/000000'])\n"
        "env.reset(); print('started', flush=True); env.step('left')"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.5)
        still_there = child.poll() is None
        child.kill()
    assert still_there


@pytest.mark.parametrize("env_id", ["toy_corridor", "toy_forced"])
def test_stepping_before_a_reset_is_refused(env_id: str):
    with pytest.raises(gymnasium.error.ResetNeeded):
        make(env_id).step("right")


@pytest.mark.parametrize(
    ("env_id", "params"),
    [
        ("toy_corridor", {"max_length": 0}),
        ("toy_forced", {"length": True}),
        ("toy_faulty", {"at_turn": "1"}),
    ],
)
def test_a_wrong_number_is_an_error_of_the_user(env_id: str, params: dict):
    with pytest.raises(UserError, match="whole number"):
        make(env_id, **params)


def test_an_unknown_split_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'train'"):
        make("toy_corridor").tasks("trian")
