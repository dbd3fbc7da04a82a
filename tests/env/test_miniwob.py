"""miniwob: MiniWoB++'s pages in Chromium, seeded, without time, with their own raw reward."""

import pytest

pytest.importorskip("playwright", reason="the extra `web` is not installed")
pytest.importorskip("miniwob", reason="the extra `web` is not installed")

import gymnasium

from environments.web.chromium import launch
from environments.web.miniwob.env import MiniWob
from environments.web.miniwob.experts import EXPERTS
from environments.web.miniwob.pages import all_pages, table, used_pages
from scalinginter.errors import UserError
from scalinginter.types import Task

try:
    launch.executable()
except UserError as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.fixture(scope="module", name="env")
def _env():
    env = MiniWob()
    yield env
    env.close()
    launch.shutdown()


def _task(page: str, seed: int = 5) -> Task:
    return Task("x", "miniwob", {"page": page, "seed": seed})


def _start(env: MiniWob, page: str, seed: int = 5) -> str:
    return env.reset(options={"task": _task(page, seed)})[0]


@pytest.mark.parametrize("page", sorted(EXPERTS)[::4])
def test_an_expert_solves_its_page(env: MiniWob, page: str):
    _start(env, page)
    for action in env.expert_plan() or []:
        assert action in (env.admissible_actions() or []) or action.startswith("type")
        _, reward, terminated, _, info = env.step(action)
    assert (reward, terminated, info["success"]) == (1.0, True, True)


@pytest.mark.parametrize("page", ["email-inbox", "terminal", "choose-date", "tic-tac-toe"])
def test_pitfall_25_the_same_seed_and_clicks_give_the_same_pages(env: MiniWob, page: str):
    seen = []
    for _ in range(2):
        seen.append([_start(env, page)])
        seen[-1] += [env.step(f"click [{n}]")[0] for n in (3, 4)]
    assert seen[0] == seen[1] != [_start(env, page, 6)]


def test_a_page_has_no_time_out_and_its_clock_moves_with_the_turns(env: MiniWob):
    _start(env, "button-delay", 3)
    for action in ("click [2]", "hover [1]", "hover [1]", "click [3]"):
        _, reward, terminated, _, _ = env.step(action)
    assert (reward, terminated) == (1.0, True)
    _start(env, "button-delay", 3)
    env.step("click [2]")
    assert env.step("click [3]")[1:3] == (0.0, True)


def test_pitfall_26_a_negative_reward_is_none_and_the_end_is_the_end(env: MiniWob):
    _start(env, "click-test-2")
    (other,) = [n.id for n in env._view().nodes if n.name == "TWO"]
    assert env.step(f"click [{other}]")[1:3] == (0.0, True)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("click [2]")


@pytest.mark.parametrize("action", ["stop [x]", "goto [http://example.org]", "new_tab", "clik", ""])
def test_what_the_page_has_no_use_for_costs_a_turn_and_gets_a_hint(env: MiniWob, action: str):
    _start(env, "click-test")
    observation, reward, terminated, _, _ = env.step(action)
    assert "click" in observation.split("\n")[1]
    assert (reward, terminated) == (0.0, False)


def test_every_page_of_the_package_is_used_or_left_out_for_a_reason():
    assert sorted(table()) == all_pages()
    assert all(about["left_out"] for about in table().values() if "turns" not in about)


def test_seeds_of_the_splits_are_apart_and_pages_take_turns():
    env = MiniWob(pages=["click-test", "login-user"], num_train=6, num_test=2)
    tasks = env.tasks("train")
    assert [t.data["page"] for t in tasks[:3]] == ["click-test", "login-user", "click-test"]
    assert [t.required_turns for t in tasks[:2]] == [1, 3]
    assert not {t.data["seed"] for t in tasks} & {t.data["seed"] for t in env.tasks("test")}


@pytest.mark.parametrize("brief", [False, True])
def test_the_corpus_covers_an_episode_and_opens_no_page(brief: bool):
    env = MiniWob(pages=["login-user"], brief=brief, num_train=2)
    words = {word for text in env.corpus() for word in text.split()}
    assert env._browser is None
    seen = env.reset(options={"task": env.tasks("train")[1]})[0]
    env.close()
    assert set(seen.split()) <= words


def test_experts_only_leaves_pages_without_an_expert_out():
    tasks = MiniWob(experts_only=True).tasks("train")
    assert {t.data["page"] for t in tasks} == EXPERTS.keys() & set(used_pages())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"pages": ["click-tset"]}, "did you mean 'click-test"),
        ({"pages": ["drag-box"]}, "needs dragging"),
        ({"num_train": 0}, "num_train must be a whole number"),
        ({"pages": ["terminal"], "experts_only": True}, "has an expert"),
    ],
)
def test_wrong_parameters_are_named(params: dict, message: str):
    with pytest.raises(UserError, match=message):
        MiniWob(**params)
