import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalinginter.errors import CheckpointError
from scalinginter.track.follow import Cursor, read_new
from scalinginter.track.journal import EPISODES, METRICS, Journal, read_episodes, read_metrics


def log_steps(run_dir: Path, steps: range) -> None:
    with Journal(run_dir) as journal:
        for step in steps:
            journal.log(step, "train", {"reward/mean": step / 10})
            journal.episodes(step, "train", [{"task": f"t{step}", "index": 0}])


def steps_of(run_dir: Path) -> list[int]:
    return [line.step for line in read_metrics(run_dir)]


def test_what_is_logged_is_read_back(tmp_path: Path) -> None:
    log_steps(tmp_path, range(1, 4))
    assert [line.metrics for line in read_metrics(tmp_path)] == [
        {"reward/mean": 0.1},
        {"reward/mean": 0.2},
        {"reward/mean": 0.3},
    ]


def test_a_stage_can_be_read_alone(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.log(1, "train", {"reward/mean": 1.0})
        journal.log(1, "eval", {"eval/success": 0.5})
    assert [line.metrics for line in read_metrics(tmp_path, "eval")] == [{"eval/success": 0.5}]


def test_nan_and_infinities_leave_valid_json_and_read_as_missing(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.log(1, "train", {"a": float("nan"), "b": float("inf"), "c": np.float32(2)})

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads((tmp_path / METRICS).read_text(), parse_constant=refuse)
    assert read_metrics(tmp_path)[0].metrics == {"c": 2.0}


def test_nan_inside_an_episode_is_null(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        turns = [{"logprobs": np.array([-1.0, -np.inf], np.float32), "reward": float("nan")}]
        journal.episodes(1, "train", [{"turns": turns}])
    (record,) = read_episodes(tmp_path)
    assert record["turns"] == [{"logprobs": [-1.0, None], "reward": None}]


def test_a_torn_last_line_is_cut_when_the_run_is_opened_again(tmp_path: Path) -> None:
    log_steps(tmp_path, range(1, 3))
    for name in (METRICS, EPISODES):
        with (tmp_path / name).open("a") as file:
            file.write('{"step": 3, "sta' + "x" * 200_000)
    log_steps(tmp_path, range(3, 4))
    assert (steps_of(tmp_path), len(list(read_episodes(tmp_path)))) == ([1, 2, 3], 3)


def test_a_file_that_is_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('{"step"')
    Journal(tmp_path).close()
    assert (tmp_path / METRICS).read_bytes() == b""


def test_a_reader_does_not_see_a_line_without_an_end(tmp_path: Path) -> None:
    log_steps(tmp_path, range(1, 2))
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"step": 2')
    assert steps_of(tmp_path) == [1]


def test_pitfall_36_a_resume_leaves_every_step_once(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        for step in range(1, 8):
            journal.log(step, "train", {})
            journal.episodes(step, "train", [{"task": step}])
            if step == 4:
                saved = journal.offsets()
    with Journal(tmp_path) as journal:
        journal.truncate(saved)
        for step in range(5, 10):
            journal.log(step, "train", {})
            journal.episodes(step, "train", [{"task": step}])
    tasks = [record["task"] for record in read_episodes(tmp_path)]
    assert (steps_of(tmp_path), tasks) == (list(range(1, 10)), list(range(1, 10)))


def test_a_journal_shorter_than_the_checkpoint_is_refused_and_left_alone(tmp_path: Path) -> None:
    log_steps(tmp_path, range(1, 4))
    with Journal(tmp_path) as journal, pytest.raises(CheckpointError, match="another run"):
        journal.truncate({METRICS: 10, EPISODES: 10**9})
    assert steps_of(tmp_path) == [1, 2, 3]


def test_pitfall_37_kill_9_while_writing_loses_no_whole_line(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom scalinginter.track.journal import Journal\n"
        "journal = Journal(sys.argv[1])\nstep = 0\n"
        "while True:\n"
        "    step += 1\n"
        "    journal.log(step, 'train', {str(i): 1.0 for i in range(500)})\n"
        "    print(step, flush=True)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    with writer.stdout as output:
        while int(output.readline()) < 50:
            pass
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        logged = [int(line) for line in output.read().splitlines()]
    Journal(tmp_path).close()
    steps = steps_of(tmp_path)
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= max([50, *logged])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lines=st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b" ")), max_size=12),
    cuts=st.lists(st.integers(1, 30), max_size=12),
)
def test_following_a_growing_file_gives_every_line_once(
    tmp_path: Path, lines: list[bytes], cuts: list[int]
) -> None:
    path, data = tmp_path / "grows", b"".join(line + b"\n" for line in lines)
    path.write_bytes(b"")
    cursor, seen = Cursor(), []
    for size in [*cuts, len(data)]:
        with path.open("ab") as file:
            file.write(data[:size])
        data = data[size:]
        read = read_new(path, cursor, max_bytes=7)
        cursor = read.cursor
        seen += read.lines
    while (read := read_new(path, cursor, max_bytes=7)).lines:
        cursor = read.cursor
        seen += read.lines
    assert seen == lines


def test_a_file_that_was_cut_and_grew_past_the_cursor_is_read_from_its_start(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\ntwo\n")
    cursor = read_new(path, Cursor()).cursor
    path.write_bytes(b"one\nTWO, and more\nthree\n")
    read = read_new(path, cursor)
    assert (read.rewound, read.lines) == (True, [b"one", b"TWO, and more", b"three"])
