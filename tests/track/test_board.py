"""The display of a comparison: figures from growing journals, as a table and as lines."""

import contextlib
import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from scalinginter.track.board import (
    ComparisonProgress,
    Entry,
    RunRow,
    most_urgent,
    render_rows,
    time_left,
)
from scalinginter.track.journal import Journal
from scalinginter.track.run_folder import write_config


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    return Entry("scaled", 0, tmp_path / "scaled" / "seed0")


@pytest.fixture
def journal(entry: Entry):
    write_config(entry.run_dir, {"train": {"budget": {"turns": 1000}}})
    with Journal(entry.run_dir) as journal:
        yield journal


def write(journal: Journal, step: int, success: float | None = None) -> None:
    costs = {"cost/turns": 100.0 * step}
    journal.log(step, "train", {"horizon/max_turns": 10.0, "rollout/success": 0.99} | costs)
    if success is not None:
        journal.log(step, "eval", {"eval/success": success} | costs)


def screen(rows: list[RunRow], now: float = 0.0) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=80).print(render_rows(rows, now))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def row(arm: str = "a", seed: int = 0, state: str = "running", **figures: object) -> RunRow:
    made = RunRow(Entry(arm, seed, Path("nowhere")), 0.0)
    made.state = state  # type: ignore[assignment]
    for name, value in figures.items():
        setattr(made, name, value)
    return made


def at_speed(made: RunRow, full_s: float, fraction: float) -> RunRow:
    """Give a row the speed of a run of `full_s` seconds that stands at `fraction` at 100 s."""
    made.rate.update(100.0 - full_s * fraction, 0.0, 0.0)
    made.rate.update(100.0, 0.0, fraction)
    made.fraction = fraction
    return made


def test_a_row_says_what_the_journal_says(entry: Entry, journal: Journal) -> None:
    write(journal, 4, success=0.1)
    write(journal, 5, success=0.5)
    read = RunRow(entry, 0.0)
    read.read()
    assert read.plain(0.0).startswith(
        "  scaled/seed0: step 5, horizon 10, success 0.10 -> 0.50, 50% of the budget"
    )


def test_a_journal_is_read_on_where_it_has_grown(entry: Entry, journal: Journal) -> None:
    read = RunRow(entry, 0.0)
    for step in range(1, 4):
        write(journal, step)
        read.read()
    assert (read.step, read.fraction) == (3, pytest.approx(0.3))


def test_a_resumed_run_goes_back_with_its_journal(entry: Entry, journal: Journal) -> None:
    write(journal, 1, success=0.1)
    offsets = journal.offsets()
    write(journal, 2, success=0.9)
    read = RunRow(entry, 0.0)
    read.read()
    journal.truncate(offsets)
    write(journal, 2, success=0.3)
    read.read()
    assert (read.step, read.success) == (2, [0.1, 0.3])


def test_an_earlier_session_says_nothing_about_the_speed(entry: Entry, journal: Journal) -> None:
    write(journal, 1)
    write(journal, 2)
    read = RunRow(entry, opened=4e9)
    read.read()
    assert (read.step, read.rate.seconds_left) == (2, None)


def test_a_larger_budget_is_read_when_a_run_goes_on(entry: Entry, journal: Journal) -> None:
    write(journal, 10)
    read = RunRow(entry, 0.0)
    read.read()
    write_config(entry.run_dir, {"train": {"budget": {"turns": 2000}}})
    read.start()
    write(journal, 11)
    read.read()
    assert read.fraction == pytest.approx(0.55)


def test_the_table_fits_80_columns() -> None:
    longest = row(
        "textcraft_with_a_very_long_name", 1234, "finished", step=98765, horizon=100.0,
        success=[0.123, 0.987], fraction=1.0,
    )  # fmt: skip
    assert max(map(len, screen([longest, row(state="waiting")]))) <= 80


def test_the_table_says_how_each_run_stands() -> None:
    running = at_speed(row(state="running", step=5), full_s=100.0, fraction=0.4)
    rows = [running, row(), *(row(state=s) for s in ("waiting", "finished", "stopped", "failed"))]
    assert [line.split()[-1] for line in screen(rows, now=110.0)[1:]] == [
        "0:50",
        "starting",
        "waiting",
        "finished",
        "stopped",
        "failed",
    ]


def test_runs_that_wait_are_taken_to_be_as_long_as_those_of_their_arm() -> None:
    rows = [
        at_speed(row("a", 0), full_s=100.0, fraction=0.5),
        at_speed(row("b", 0), full_s=300.0, fraction=0.9),
        row("a", 1, "waiting"),
        row("b", 1, "waiting"),
    ]
    assert time_left(rows, 1, now=100.0) == pytest.approx(50 + 30 + 100 + 300)


def test_the_longest_run_is_the_least_that_is_left() -> None:
    rows = [
        at_speed(row("a", seed), full_s=100.0, fraction=fraction)
        for seed, fraction in enumerate((0.1, 0.9))
    ]
    assert time_left(rows, 8, now=100.0) == pytest.approx(90.0)


def test_nothing_is_guessed_before_the_first_steps() -> None:
    assert time_left([row(), row(state="waiting")], 1, now=0.0) is None


states = st.lists(
    st.sampled_from(["waiting", "running", "finished", "stopped", "failed"]), max_size=30
)


@given(states, st.integers(1, 40))
def test_a_small_screen_shows_running_runs_first_in_the_order_given(
    names: list[str], room: int
) -> None:
    rows = [row(seed=seed, state=state) for seed, state in enumerate(names)]
    shown = most_urgent(rows, room)
    seeds = [r.entry.seed for r in shown]
    running = sum(r.state == "running" for r in shown)
    assert seeds == sorted(seeds)
    assert (len(shown), running) == (min(room, len(rows)), min(room, names.count("running")))


def test_without_a_terminal_there_are_plain_lines(
    entry: Entry, journal: Journal, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setattr("scalinginter.track.board.PLAIN_INTERVAL_S", 0.0)
    other = Entry("scaled", 1, entry.run_dir.parent / "seed1")
    with ComparisonProgress([entry, other], parallel=1) as board:
        board.started("scaled/seed0")
        board.note("scaled/seed0: starts")
        write(journal, 4)
        board.refresh()
    assert capsys.readouterr().out.splitlines() == [
        "scaled/seed0: starts",
        "  scaled/seed0: step 4, horizon 10, 40% of the budget",
    ]


def test_the_summary_counts_the_runs(entry: Entry) -> None:
    board = ComparisonProgress([entry, Entry("b", 0, Path("nowhere"))], parallel=1)
    board.started("b/seed0")
    assert board.summary(0.0) == "2 runs: 1 running, 1 waiting."


ON_A_TERMINAL = """
import sys
from pathlib import Path
from scalinginter.track.board import ComparisonProgress, Entry

entries = [Entry("scaled", seed, Path(sys.argv[1]) / f"seed{seed}") for seed in range(100)]
with ComparisonProgress(entries, parallel=1) as board:
    board.started("scaled/seed0")
    board.note("scaled/seed0: starts")
    board.refresh()
    board.ended("scaled/seed0", "finished")
    board.refresh()
"""


def test_on_a_terminal_the_table_is_drawn_over_itself_and_fits(
    entry: Entry, journal: Journal
) -> None:
    write(journal, 10, success=0.5)
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    arguments = [sys.executable, "-c", ON_A_TERMINAL, str(entry.run_dir.parent)]
    with subprocess.Popen(arguments, stdout=terminal, env=os.environ | {"TERM": "xterm"}) as done:
        os.close(terminal)
        output = read_all(controller).decode()
    assert done.returncode == 0
    frames = output.split("arm ")[1:]  # one for each time the table was drawn
    assert max(frame.count("\n") for frame in frames) < 24
    assert "\x1b[1A" in output  # the cursor goes up
    assert "scaled/seed0: starts" in output
    assert "80 not shown" in frames[-1]
    assert "finished" in frames[-1]


def read_all(descriptor: int) -> bytes:
    data = b""
    with contextlib.suppress(OSError):  # how a terminal says that the other end is closed
        while piece := os.read(descriptor, 65536):
            data += piece
    os.close(descriptor)
    return data
