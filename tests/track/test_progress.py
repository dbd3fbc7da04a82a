import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from scalinginter.track.figures import Rate, eval_line, fraction_done
from scalinginter.track.progress import JobView, Progress, render_table

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


def test_the_line_of_a_step_comes_before_its_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("run") as progress:
        for step in range(1, 4):
            progress.update(step, FIGURES)
        progress.evaluation(3, {"eval/success": 0.5})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0:2] for line in lines] == [
        ["run", "step 1"],
        ["run", "step 3"],
        ["eval at step 3:", "success 0.50"],
    ]


def test_speed_and_time_left_come_from_the_last_updates() -> None:
    rate = Rate()
    for second in range(41):
        rate.update(100.0 + second, 500.0 * second, second / 160)
    assert (rate.tokens_per_s, rate.seconds_left) == (500.0, pytest.approx(120.0))


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
    Console(file=screen, width=80).print(render_table(job))
    lines = screen.getvalue().splitlines()
    assert (len(lines), max(map(len, lines)) <= 80) == (2, True)
