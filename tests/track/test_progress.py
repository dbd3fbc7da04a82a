import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from scalinginter.track.journal import Journal
from scalinginter.track.progress import (
    ComparisonProgress,
    JobView,
    Progress,
    eval_line,
    fraction_done,
    render_table,
)
from scalinginter.track.run_folder import RunInfo, set_status, write_config, write_run_info

FIGURES = {
    "horizon/max_turns": 10.0,
    "rollout/success": 0.412,
    "reward/mean": 0.437,
    "rollout/truncated_share": 0.22,
}


def test_a_step_is_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("coin scaled") as progress:
        progress.update(3, FIGURES, 0.25)
    assert capsys.readouterr().out == (
        "coin scaled  step 3  horizon 10  success 0.41  reward 0.44  cut by a limit 22%  25% done\n"
    )


def test_plain_output_shows_the_first_and_the_last_step_and_not_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress("run") as progress:
        for step in range(1, 501):
            progress.update(step, FIGURES, step / 500)
    steps = re.findall(r"step (\d+)", capsys.readouterr().out)
    assert (steps[0], steps[-1], len(steps) < 10) == ("1", "500", True)


def test_every_evaluation_and_every_note_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("run") as progress:
        for step in range(3):
            progress.evaluation(step, {"eval/success": 0.5})
            progress.note(f"[note] {step}")
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_plain_output_holds_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("run", total=20, unit="demonstration") as progress:
        progress.update(4, FIGURES)
        progress.note("done")
    assert capsys.readouterr().out.replace("\n", "").isprintable()


def test_counted_work_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("cold start", total=20, unit="batch") as progress:
        progress.update(4, {})
    assert capsys.readouterr().out == "cold start  batch 4/20  20% done\n"


def test_an_evaluation_says_success_with_its_interval() -> None:
    metrics = {"eval/success": 0.5, "eval/success_low": 0.41, "eval/success_high": 0.59}
    assert eval_line(40, metrics | {"eval/turns_mean": 6.24}) == (
        "eval at step 40:  success 0.50 [0.41, 0.59]  turns 6.2"
    )


def test_speed_and_time_left_come_from_the_last_updates() -> None:
    job = JobView("run")
    for second in range(11):
        tokens = {"cost/generated_tokens": 500.0 * second}
        job.update(second, tokens, second / 40, now=100.0 + second)
    assert (job.tokens_per_s, job.seconds_left) == (500.0, pytest.approx(30.0))


@given(st.floats(0, 1), st.floats(0, 2))
def test_the_nearest_limit_of_a_budget_decides(turns: float, steps: float) -> None:
    config = {"train": {"num_steps": 100, "budget": {"turns": 1000, "seconds": None}}}
    done = fraction_done(config, round(steps * 100), {"cost/turns": turns * 1000})
    assert done == pytest.approx(min(1.0, max(turns, round(steps * 100) / 100)))


def test_a_row_fits_an_80_column_terminal() -> None:
    job = JobView("textcraft_with_a_long_name/seed0")
    for second in range(3):
        job.update(98765, FIGURES | {"cost/generated_tokens": 99e6 * second}, 0.5 + second / 1e4, 1)
        job.update(98765, FIGURES, 0.5, now=3600.0 * second)
    screen = io.StringIO()
    Console(file=screen, width=80).print(render_table([job]))
    lines = screen.getvalue().splitlines()
    assert (len(lines), max(map(len, lines)) <= 80) == (2, True)


@pytest.fixture
def followed(tmp_path: Path) -> Path:
    run_dir = tmp_path / "scaled" / "seed0"
    write_run_info(run_dir, RunInfo(name="r"))
    write_config(run_dir, {"train": {"num_steps": 10, "budget": {}}})
    with Journal(run_dir) as journal:
        journal.log(4, "train", FIGURES)
        journal.log(4, "eval", {"eval/success": 0.5})
    return run_dir


def test_a_comparison_shows_what_the_journals_say(
    followed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ComparisonProgress([followed, followed.parent / "seed1"]) as progress:
        progress.refresh()
    assert capsys.readouterr().out.splitlines() == [
        "scaled/seed0  eval at step 4:  success 0.50",
        "scaled/seed0  step 4  horizon 10  success 0.41  reward 0.44  cut by a limit 22%  40% done",
    ]


def test_a_resumed_run_is_not_told_twice(
    followed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ComparisonProgress([followed]) as progress:
        progress.refresh()
        with Journal(followed) as journal:
            first_line = (followed / "metrics.jsonl").read_bytes().index(b"\n") + 1
            journal.truncate({"metrics.jsonl": first_line})
        progress.refresh()
    assert capsys.readouterr().out.count("step 4  horizon") == 1


def test_a_table_says_which_run_waits_and_which_has_ended(followed: Path) -> None:
    set_status(followed, "finished")
    progress = ComparisonProgress([followed, followed.parent / "seed1"])
    progress.refresh()
    screen = io.StringIO()
    Console(file=screen, width=80).print(progress.table())
    rows = screen.getvalue().splitlines()
    assert [row.split()[-1] for row in rows] == ["left", "finished", "waiting"]
