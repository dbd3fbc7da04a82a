"""TextWorld: games that are the same everywhere, one action a turn, no way around the work."""

import asyncio
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from environments.game.textworld.coin import CoinCollector
from environments.game.textworld.cooking import Cooking
from environments.game.textworld.games import GameSpec, cache_folder, ensure, game_file
from environments.game.textworld.play import TextWorldEnv
from environments.game.textworld.prepare import prepare
from scalinginter.env.base import SPLITS
from scalinginter.env.pool import EnvPool
from scalinginter.errors import UserError

COIN = {"min_level": 3, "max_level": 3}
COOKING = {"min_ingredients": 1, "max_ingredients": 1}


@pytest.fixture(scope="module")
def games(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A cache that the test runs of one checkout share: games are slow to make."""
    folder = Path(request.config.cache.mkdir("games"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCALINGINTER_CACHE", str(folder))
        prepare("textworld_coin", COIN, ["train"], 2)
        prepare("textworld_cooking", COOKING, ["train"], 2)
        yield folder


@pytest.fixture
def coin(games: Path) -> Iterator[CoinCollector]:
    env = CoinCollector(**COIN)
    yield env
    env.close()


@pytest.fixture
def cooking(games: Path) -> Iterator[Cooking]:
    env = Cooking(**COOKING)
    yield env
    env.close()


@pytest.fixture(params=["coin", "cooking"])
def env(request: pytest.FixtureRequest) -> TextWorldEnv:
    return request.getfixturevalue(request.param)


def start(env: TextWorldEnv, index: int = 0) -> str:
    return env.reset(options={"task": env.tasks("train")[index], "horizon": 50})[0]


def follow(env: TextWorldEnv, actions: list[str]) -> list[tuple[Any, ...]]:
    return [env.step(action) for action in actions]


def digests(spec: GameSpec) -> dict[str, str]:
    files = sorted(game_file(spec).parent.iterdir())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_expert_wins_and_earns_one_in_all(env: TextWorldEnv) -> None:
    start(env)
    answers = follow(env, env.expert_plan())
    assert sum(answer[1] for answer in answers) == pytest.approx(1, abs=1e-9)
    assert answers[-1][2:] == (True, False, {"success": True})
    assert [answer[2] for answer in answers[:-1]] == [False] * (len(answers) - 1)


def test_every_action_of_the_expert_is_in_the_list_at_its_turn(env: TextWorldEnv) -> None:
    start(env)
    for action in env.expert_plan():
        assert action in env.admissible_actions()
        env.step(action)


def test_a_coin_level_needs_as_many_turns_as_its_number(coin: CoinCollector) -> None:
    start(coin)
    assert len(coin.expert_plan()) == coin.tasks("train")[0].required_turns == 3


def test_known_lengths_of_cooking_are_those_of_the_expert(cooking: Cooking) -> None:
    start(cooking)
    assert cooking.tasks("train")[0].required_turns == len(cooking.expert_plan())


def test_listing_tasks_generates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALINGINTER_CACHE", str(tmp_path / "cache"))
    for split in SPLITS:
        CoinCollector().tasks(split)
        Cooking().tasks(split)
    assert not (tmp_path / "cache").exists()


def test_pitfall_25_a_task_id_names_one_game_whatever_the_number_of_tasks() -> None:
    few, many = Cooking(num_train=5).tasks("train"), Cooking(num_train=50).tasks("train")
    assert few == many[:5]


def test_pitfall_25_the_seed_of_a_task_is_the_same_on_every_machine() -> None:
    task = CoinCollector().tasks("train")[0]
    assert (task.id, task.data["seed"]) == ("train/level2-random1/000000", 13326065)


def test_pitfall_25_a_game_has_the_same_bytes_alone_and_in_a_batch_under_any_hash_seed(
    games: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = Cooking(**COOKING).game_spec(Cooking(**COOKING).tasks("train")[1])  # second of a batch
    shared = digests(spec)
    monkeypatch.setenv("SCALINGINTER_CACHE", str(tmp_path))
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    ensure([spec])
    assert digests(spec) == shared
    assert sorted(shared) == ["game.json", "game.z8", "plan.json"]


def test_two_who_ask_at_once_make_a_game_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALINGINTER_CACHE", str(tmp_path))
    env = CoinCollector(min_level=1, max_level=1)
    spec = env.game_spec(env.tasks("train")[0])
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(ensure, [[spec], [spec]]))
    assert sorted(made) == [0, 1]
    assert sorted(p.name for p in cache_folder().iterdir()) == [".locks", "coin"]


def test_a_game_that_cannot_be_made_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALINGINTER_CACHE", str(tmp_path))
    spec = GameSpec("coin", {"level": 2, "distractors": 9, "mode": "simple"}, 0)
    with pytest.raises(RuntimeError, match="Total number of rooms must be less than"):
        ensure([spec])
    assert not game_file(spec).exists()


def test_the_first_observation_is_the_goal_and_the_room(env: TextWorldEnv) -> None:
    text = start(env)
    assert text.startswith(("Find the coin and take it.\n-= ", "You are hungry!"))
    assert not [mark for mark in ("$$", "\n>", "\n\n", "RESTART") if mark in text]


def test_the_coins_prompt_does_not_tell_the_way(coin: CoinCollector) -> None:
    assert "go " not in start(coin).partition("-=")[0]


def test_no_observation_shows_the_status_line_or_the_questions_after_the_end(
    env: TextWorldEnv,
) -> None:
    start(env)
    texts = [answer[0] for answer in follow(env, env.expert_plan())]
    assert not [text for text in texts if ">" in text or "QUIT" in text or "***" in text]
    assert texts[-1].endswith("You have won.")


@pytest.mark.parametrize(
    "trick",
    [
        "{0}. {1}",
        "{0} then {1}",
        "{0}, {1}",
        "take all",
        "take coin and knife",
        "quit",
        "restart",
        "save",
        "undo",
        "again",
        "tw-trace-actions",
        "",
        "\x00",
        "go " + "north " * 100,
        "examine *** The End ***",
    ],
)
def test_a_turn_is_one_action_and_nothing_else_reaches_the_game(
    env: TextWorldEnv, trick: str
) -> None:
    start(env)
    plan = env.expert_plan()
    text, reward, terminated, _, info = env.step(trick.format(*plan))
    assert text.startswith("That is not understood. Start with one of: ")
    assert (reward, terminated, info) == (0.0, False, {"success": False})
    assert follow(env, plan)[-1][4] == {"success": True}


def test_two_lines_are_not_two_actions(coin: CoinCollector) -> None:
    start(coin)
    room = coin.step("look")[0]
    coin.step("\n".join(coin.expert_plan()[:2]))
    assert coin.step("look")[0] == room


def test_spelling_is_forgiven_where_the_meaning_is_plain(coin: CoinCollector) -> None:
    start(coin)
    plan = coin.expert_plan()
    answers = follow(coin, [f"  {action.upper().replace(' ', '   ')}. " for action in plan])
    assert answers[-1][4] == {"success": True}


def test_a_burnt_ingredient_loses_and_ends_the_episode(cooking: Cooking) -> None:
    start(cooking)
    plan = cooking.expert_plan()
    burning = next(action for action in plan if action.startswith("cook "))
    answers = follow(cooking, [*plan[: plan.index(burning) + 1], burning])
    assert answers[-1][0].endswith("You have lost.")
    assert answers[-1][2:] == (True, False, {"success": False})
    assert 0 < sum(answer[1] for answer in answers) < 1


def test_pitfall_26_nothing_can_be_earned_twice_or_after_the_end(coin: CoinCollector) -> None:
    start(coin)
    follow(coin, coin.expert_plan())
    assert coin.step("take coin")[1:] == (0.0, True, False, {"success": False})


def test_pitfall_31_a_used_instance_plays_like_a_new_one(env: TextWorldEnv) -> None:
    first = start(env, 1)
    plan = env.expert_plan()
    answers = follow(env, plan)
    start(env, 0)
    follow(env, env.expert_plan()[:1])
    assert start(env, 1) == first
    assert follow(env, plan) == answers


def test_a_worker_plays_textworld(games: Path) -> None:
    async def scenario() -> bool:
        pool = EnvPool(
            "textworld_coin",
            COIN,
            num_workers=1,
            turn_timeout_s=90,
            reset_timeout_s=180,
            want_admissible=True,
        )
        env = CoinCollector(**COIN)
        start(env)
        session = await pool.open(env.tasks("train")[0], seed=0, horizon=9)
        answers = [await session.step(action) for action in env.expert_plan()]
        env.close()
        await pool.aclose()
        return answers[-1].success

    assert asyncio.run(scenario())


def test_resets_leave_no_open_files_behind(coin: CoinCollector) -> None:
    start(coin)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        start(coin)
    assert len(os.listdir("/proc/self/fd")) <= before + 2


@pytest.mark.parametrize(
    ("cls", "params", "message"),
    [
        (CoinCollector, {"min_level": 0}, "levels go from min_level to max_level"),
        (CoinCollector, {"min_level": 9, "max_level": 3}, "got 9 to 3"),
        (CoinCollector, {"distractors": 4}, "distractors must be 0, 1, 2 or 3, got 4"),
        (CoinCollector, {"max_level": 60}, "makes 120 rooms; at most 100"),
        (CoinCollector, {"mode": "hard"}, "mode must be one of simple, random, got 'hard'"),
        (CoinCollector, {"num_test": 0}, "num_test must be at least 1, got 0"),
        (Cooking, {"rooms": 7}, "rooms must be one of 1, 6, 9, 12, got 7"),
        (Cooking, {"max_ingredients": 6}, "within 1 to 5, got 1 to 6"),
    ],
)
def test_wrong_parameters_are_refused(
    cls: type[TextWorldEnv], params: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        cls(**params)
