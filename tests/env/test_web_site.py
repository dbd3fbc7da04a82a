"""web_site: the environment as an agent meets it."""

import gymnasium
import pytest

from environments.web.site import catalogue
from environments.web.site.env import SiteEnv
from environments.web.site.tasks import TEMPLATES, draft
from scalinginter.env.base import SPLITS
from scalinginter.env.check import check_env
from scalinginter.errors import UserError
from scalinginter.types import Task

ONE_WORLD = 7


def _task(kind: str, world: int = ONE_WORLD, variant: int = 0) -> Task:
    return Task("x", "web_site", {"world": world, "kind": kind, "variant": variant})


def _start(kind: str, **params: object) -> tuple[SiteEnv, str]:
    env = SiteEnv(**params)
    return env, env.reset(options={"task": _task(kind)})[0]


def _play(env: SiteEnv, actions: list[str]) -> tuple[float, bool]:
    reward, terminated = 0.0, False
    for action in actions:
        _, reward, terminated, _, _ = env.step(action)
    return reward, terminated


@pytest.mark.parametrize("params", [{}, {"brief": True, "viewport": 12, "kinds": ["wiki"]}])
def test_web_site_keeps_the_contract(params: dict):
    params = {**params, "num_train": 40, "num_validation": 20, "num_test": 20}
    report = check_env("web_site", params, num_tasks=5)
    assert report.ok, str(report)


@pytest.mark.parametrize("kind", list(TEMPLATES))
def test_the_expert_solves_every_kind_and_is_never_outside_the_list(kind: str):
    env = SiteEnv()
    for world in (3, 2_000_005):
        if draft(world, kind, 1) is None:
            continue
        env.reset(options={"task": _task(kind, world, 1)})
        plan = env.expert_plan() or []
        for action in plan:
            assert action in (env.admissible_actions() or [])
            _, reward, terminated, _, info = env.step(action)
        assert (reward, terminated, info["success"]) == (1.0, True, True)


@pytest.mark.parametrize("kind", list(TEMPLATES))
def test_stopping_at_once_solves_nothing(kind: str):
    env, _ = _start(kind)
    assert env.step("stop []")[1:4] == (0.0, True, False)


@pytest.mark.parametrize(
    "kind", [k for k in TEMPLATES if (d := draft(7, k, 0)) and d.wanted.changes]
)
def test_the_right_changes_and_one_more_are_a_failure(kind: str):
    env, _ = _start(kind)
    *plan, stop = env.expert_plan() or []
    _play(env, plan)
    assert env._site is not None
    env._site.db.execute("UPDATE reviews SET rating = 1 + rating % 5 WHERE id = 3")
    assert env.step(stop)[1] == 0.0


def test_the_right_changes_without_stop_earn_nothing():
    env, _ = _start("shop_cart")
    assert _play(env, (env.expert_plan() or [])[:-1]) == (0.0, False)


def test_pitfall_27_a_wrong_answer_ends_the_episode_without_a_hint():
    env, _ = _start("shop_price")
    observation, reward, terminated, _, info = env.step("stop [$1.00]")
    assert (observation, reward, terminated, info) == ("Stopped.", 0.0, True, {"success": False})


def test_pitfall_26_nothing_can_be_earned_after_the_end():
    env, _ = _start("shop_price")
    env.step("stop [1]")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("stop [1]")


def test_pitfall_31_what_an_episode_changed_is_gone_in_the_next():
    env, first = _start("forum_post")
    _play(env, env.expert_plan() or [])
    again = env.reset(options={"task": _task("forum_post")})[0]
    title = draft(ONE_WORLD, "forum_post", 0).wanted.changes[0].values["title"]
    number = env._site.db.execute("SELECT COUNT(*) FROM threads WHERE title = ?", (title,))
    assert (again, number.fetchone()[0]) == (first, 0)


def test_a_numeric_answer_may_lack_its_unit_and_the_dollar_sign():
    for kind in ("shop_price", "shop_detail"):
        env, _ = _start(kind)
        *plan, stop = env.expert_plan() or []
        _play(env, plan)
        bare = stop[6:-1].split()[0].lstrip("$")
        assert env.step(f"stop [ The {bare}. ]")[1] == 1.0


# --- the task list


def test_pitfall_25_the_table_of_lengths_is_what_the_expert_needs():
    tasks = [task for split in SPLITS for task in SiteEnv().tasks(split)][::97]
    played = [
        len(
            catalogue.expert_plan(
                draft(t.data["world"], t.data["kind"], t.data["variant"]), t.data["world"], 40
            )
        )
        for t in tasks
    ]
    assert played == [task.required_turns for task in tasks]


def test_the_default_tasks_need_2_to_more_than_40_turns():
    turns = [task.required_turns for task in SiteEnv().tasks("train")]
    assert (len(turns), min(turns), max(turns) > 40) == (1200, 2, True)


def test_no_world_is_in_two_splits():
    worlds = [{task.data["world"] for task in SiteEnv().tasks(split)} for split in SPLITS]
    assert len(set.union(*worlds)) == sum(map(len, worlds))


def test_no_goal_of_a_world_is_asked_twice():
    goals = [
        (t.data["world"], draft(t.data["world"], t.data["kind"], t.data["variant"]).goal)
        for t in SiteEnv(kinds=["code"], num_train=90).tasks("train")
    ]
    assert len(set(goals)) == len(goals)


def test_a_small_viewport_makes_tasks_longer():
    (small,) = SiteEnv(kinds=["forum_reply"], viewport=8, num_train=1).tasks("train")
    (large,) = SiteEnv(kinds=["forum_reply"], num_train=1).tasks("train")
    assert small.required_turns > large.required_turns


def test_max_turns_leaves_longer_tasks_out():
    tasks = SiteEnv(max_turns=4, num_train=60).tasks("train")
    assert max(task.required_turns for task in tasks) == 4


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kinds": ["shop_prise"]}, "did you mean 'shop_price'"),
        ({"kinds": []}, "kinds must be a list"),
        ({"kinds": "shop"}, "kinds must be a list"),
        ({"viewport": 2}, "viewport must be a whole number from 5"),
        ({"brief": 1}, "brief must be true or false"),
        ({"num_test": 0}, "num_test must be"),
        ({"max_turns": 1}, "max_turns must be"),
    ],
)
def test_a_wrong_parameter_is_refused_and_the_right_one_named(params: dict, message: str):
    with pytest.raises(UserError, match=message):
        SiteEnv(**params)


def test_kinds_that_are_all_too_long_are_refused():
    with pytest.raises(UserError, match="raise max_turns"):
        SiteEnv(kinds=["forum_best"], max_turns=5, num_train=1).tasks("train")


@pytest.mark.parametrize(
    "data", [{}, {"world": -1, "kind": "shop_price", "variant": 0}, {"world": 1, "kind": "x"}]
)
def test_a_task_of_another_environment_is_refused(data: dict):
    with pytest.raises(UserError, match="none of web_site"):
        SiteEnv().reset(options={"task": Task("y", "web_site", data)})
