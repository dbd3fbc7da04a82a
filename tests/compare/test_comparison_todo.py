"""What a comparison goes on with, from folders as runs leave them."""

from pathlib import Path
from typing import Any

import pytest

from scalinginter.compare.runs import Plan
from scalinginter.compare.todo import to_do
from scalinginter.config.load import recipe_dict, validate
from scalinginter.errors import UserError

RISING = {"kind": "linear", "start": 2, "end": 9, "over_fraction": 0.5}


def config(**changes: Any) -> dict[str, Any]:
    data = {
        "environment": {"id": "toy_corridor"},
        "horizon": {"kind": "fixed", "turns": 5},
        "train": {"budget": {"turns": 1000}},
        "eval": {"horizon": 20},
    }
    return recipe_dict(validate(data | changes, "test"))


@pytest.fixture
def left(write_run, tmp_path: Path):
    """Return a function: the runs to do, after a run with one recipe is asked for with another."""

    def run(before: dict[str, Any], after: dict[str, Any], status: str = "finished", step: int = 9):
        folder = write_run("a", 0, lambda f: f, config=before, status=status)
        if step:
            (folder / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)
        jobs, _ = to_do(Plan({"a": after}, (0,), ()), tmp_path / "cmp")
        return [job.arguments["resume"] for job in jobs]

    return run


def test_a_finished_run_is_left_alone(left) -> None:
    assert left(config(), config()) == []


def test_a_finished_run_goes_on_with_a_larger_budget(left) -> None:
    assert left(config(), config(train={"budget": {"turns": 2000}})) == [True]


def test_a_finished_run_goes_on_when_its_limit_is_taken_away(left) -> None:
    assert left(config(), config(train={"budget": {"seconds": 60.0}})) == [True]


def test_settings_that_do_not_train_leave_a_finished_run_alone(left) -> None:
    assert left(config(), config(checkpoint={"keep": 7}, track={"mlflow": False})) == []


def test_a_stopped_run_takes_them_along(left) -> None:
    assert left(config(), config(checkpoint={"keep": 7}), status="stopped") == [True]


def test_a_run_without_a_checkpoint_starts_over_with_any_budget(left) -> None:
    before, after = (config(horizon=RISING, train={"num_steps": n}) for n in (5, 50))
    assert left(before, after, status="failed", step=0) == [False]


@pytest.mark.parametrize(
    ("horizon", "train", "reason"),
    [
        (
            RISING,
            {},
            "horizon.over_fraction places its horizons by the share of the budget",
        ),
        (
            {"kind": "staged", "stages": [2, 4], "at_fraction": [0.0, 0.5]},
            {},
            "horizon.at_fraction places its horizons by the share of the budget",
        ),
        (
            {"kind": "fixed", "turns": 5},
            {"decay": "linear"},
            "train.decay: linear places its learning rates by the number of steps",
        ),
    ],
)
def test_another_end_is_refused_where_the_first_steps_followed_it(
    left, horizon, train, reason
) -> None:
    before, after = (config(horizon=horizon, train=train | {"num_steps": n}) for n in (10, 20))
    with pytest.raises(UserError, match=f"train.num_steps is 10 there, 20 now.*{reason}"):
        left(before, after)


def test_a_budget_below_what_was_spent_is_refused(left) -> None:
    with pytest.raises(UserError, match="it has spent 1,000 turns already"):
        left(config(), config(train={"budget": {"turns": 900}}))


def test_another_learning_rate_is_refused(left) -> None:
    with pytest.raises(UserError, match=r"train.learning_rate is 1e-06 there, 1.0 now"):
        left(config(), config(train={"budget": {"turns": 1000}, "learning_rate": 1.0}))


def test_a_run_without_a_checkpoint_starts_over_with_any_recipe(left) -> None:
    after = config(train={"budget": {"turns": 1000}, "learning_rate": 1.0})
    assert left(config(), after, status="failed", step=0) == [False]


def test_a_folder_that_holds_a_single_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UserError, match="holds a single run"):
        to_do(Plan({"a": config()}, (0,), ()), tmp_path)


def test_the_end_is_refused_where_the_horizon_of_one_environment_follows_it(left) -> None:
    several = {
        "environment": None,
        "environments": [{"id": "toy_corridor"}, {"id": "toy_forced"}],
        "horizons": {"toy_forced": RISING},
    }
    before, after = (config(**several, train={"num_steps": n}) for n in (10, 20))
    with pytest.raises(UserError, match=r"horizons.toy_forced.over_fraction places"):
        left(before, after)


def test_a_setting_that_a_run_did_not_know_has_its_default(left) -> None:
    before = config()
    del before["horizons"]
    assert left(before, config(), status="stopped") == [True]


def test_a_run_that_died_before_it_wrote_its_recipe_starts_over(left) -> None:
    assert left({}, config(), status="running", step=0) == [False]
