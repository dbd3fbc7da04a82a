from pathlib import Path

import pytest

from scalinginter.errors import UserError
from scalinginter.track.run_folder import (
    RunInfo,
    flatten,
    read_config,
    read_run_info,
    set_status,
    write_config,
    write_run_info,
)


def test_run_info_survives_the_file(tmp_path: Path) -> None:
    info = RunInfo(name="a", seed=3, comparison="c", arm="scaled", command=["train", "x"])
    write_run_info(tmp_path, info)
    assert read_run_info(tmp_path) == info


def test_the_end_of_a_run_has_a_time_and_its_start_is_kept(tmp_path: Path) -> None:
    write_run_info(tmp_path, RunInfo(name="a", started=5.0))
    ended = set_status(tmp_path, "stopped")
    assert (ended.status, ended.started, (ended.finished or 0) > 5.0) == ("stopped", 5.0, True)


def test_a_resumed_run_has_no_end(tmp_path: Path) -> None:
    write_run_info(tmp_path, RunInfo(name="a", status="stopped", finished=7.0))
    assert set_status(tmp_path, "running").finished is None


def test_a_folder_without_a_run_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run folder"):
        read_run_info(tmp_path)


def test_a_recipe_survives_the_file(tmp_path: Path) -> None:
    config = {"name": "no", "train": {"learning_rate": 1e-6}, "stages": [5, 10]}
    write_config(tmp_path, config)
    assert read_config(tmp_path) == config


def test_flatten_gives_the_leaves_by_path() -> None:
    tree = {"a": {"b": {"c": 1}, "d": [1, 2]}, "e": {}}
    assert flatten(tree) == {"a.b.c": 1, "a.d": [1, 2], "e": {}}
