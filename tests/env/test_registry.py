"""The registry: names, parameters, gymnasium."""

import subprocess
import sys
import warnings

import gymnasium
import pytest

from scalinginter.env import registry
from scalinginter.env.base import TextEnv
from scalinginter.errors import UserError


def test_an_unknown_environment_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match=r"unknown environment 'textcrft'.*'textcraft'"):
        registry.check_id("textcrft")


def test_an_unknown_parameter_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match=r"no parameter 'max_dept'.*did you mean 'max_depth'"):
        registry.make("textcraft", max_dept=3)


@pytest.mark.parametrize("env_id", ["python_math", "shell"])
def test_parameters_of_the_class_above_are_known_and_others_refused(env_id: str):
    assert len(registry.make(env_id, parts=[1], num_test=3).tasks("test")) == 3
    with pytest.raises(UserError, match=r"did you mean .num_test.*; it has: kinds, "):
        registry.make(env_id, num_tst=3)


@pytest.mark.parametrize("wall_s", ["abc", 0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_no_number_of_seconds_is_named(wall_s: object):
    with pytest.raises(UserError, match=r"^wall_s must be above 0"):
        registry.make("shell", wall_s=wall_s)


def test_make_passes_the_parameters():
    assert len(registry.make("toy_forced", num_tasks=3).tasks("train")) == 3


def test_every_builtin_id_is_listed():
    assert set(registry.BUILTIN) <= set(registry.environment_ids())


@pytest.mark.parametrize("env_id", sorted(registry.BUILTIN))
def test_every_builtin_class_is_a_text_environment(env_id: str):
    assert issubclass(registry.load_class(env_id), TextEnv)


def test_a_location_that_cannot_be_imported_is_an_error_of_the_user():
    with pytest.raises(UserError, match="cannot be imported"):
        registry.load_location("no_such_package.env:Env", "environment 'x'")


def test_a_location_that_is_no_environment_is_an_error_of_the_user():
    with pytest.raises(UserError, match="subclass of"):
        registry.load_location("json:JSONDecoder", "environment 'x'")


def test_names_are_checked_without_importing_gymnasium_or_torch():
    code = (
        "import sys; from scalinginter.env import registry; registry.check_id('textcraft');"
        "print([m for m in ('gymnasium', 'torch', 'numpy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_an_entry_point_of_another_package_is_found(tmp_path, monkeypatch):
    info = tmp_path / "other_game-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-game\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[scalinginter.environments]\n"
        "other = other_game_env:OtherGame\n"
        "textcraft = other_game_env:OtherGame\n"
    )
    (tmp_path / "other_game_env.py").write_text(
        "from scalinginter.env.toy import ToyCorridor\nclass OtherGame(ToyCorridor): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = registry.load_class("other").__name__, registry.load_class("textcraft").__name__
    assert found == ("OtherGame", "TextCraft")


@pytest.mark.parametrize("env_id", ["textcraft", "toy_corridor", "toy_forced", "toy_faulty"])
def test_gymnasium_makes_it_without_a_warning(env_id: str):
    registry.register_gymnasium()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(f"scalinginter/{env_id}-v0")
        env.reset(seed=0)
        answer = env.step("inventory")
    assert len(answer) == 5


def test_gymnasium_passes_parameters():
    registry.register_gymnasium()
    env = gymnasium.make("scalinginter/textcraft-v0", brief=True, bag=3)
    assert "room 3" in env.unwrapped.instructions
