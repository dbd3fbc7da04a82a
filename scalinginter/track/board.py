"""What a person sees while a comparison goes on: a live table on a terminal, lines elsewhere.

    arm          seed  step  horizon     success        budget    left
    fixed_short     0    86        5  0.12 -> 0.41  ━━━━━━━  100%  finished
    scaled          0    41       10  0.12 -> 0.38  ━━━━      55%     12:31
    6 runs: 1 finished, 1 running, 4 waiting. About 1:05:12 left.

Success is that of the evaluations, first and latest. All figures come from the journals, which are
read a piece at a time as they grow; the caller says which runs are started and how they ended.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from scalinginter.track.figures import Rate, clock, figure, fraction_done
from scalinginter.track.follow import Cursor, read_new
from scalinginter.track.journal import METRICS, MetricsLine, parse_metrics
from scalinginter.track.run_folder import read_config

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table

State = Literal["waiting", "running", "finished", "stopped", "failed"]
PLAIN_INTERVAL_S = 15.0  # between two plain lines of a run
_STATES: tuple[State, ...] = ("finished", "running", "waiting", "stopped", "failed")
_URGENCY: tuple[State, ...] = ("running", "failed", "stopped", "finished", "waiting")
_OTHER_LINES = 4  # of the screen: header, summary, the cursor's line, one note


@dataclass(frozen=True, slots=True)
class Entry:
    """One run that a board shows."""

    arm: str
    seed: int
    run_dir: Path

    @property
    def name(self) -> str:
        return f"{self.arm}/seed{self.seed}"


class RunRow:
    """The newest figures of one run, read from its journal as it grows."""

    def __init__(self, entry: Entry, opened: float) -> None:
        self.entry = entry
        self.state: State = "waiting"
        self.step: int | None = None
        self.horizon: float | None = None
        self.fraction: float | None = None
        self.success: list[float] = []  # first and latest evaluation
        self.rate = Rate()
        self._opened = opened  # unix seconds: an earlier session says nothing about this speed
        self._cursor = Cursor()
        self._config: dict[str, Any] = {}

    def read(self) -> None:
        """Take what the journal has got since the last call."""
        read = read_new(self.entry.run_dir / METRICS, self._cursor)
        if read.rewound:
            self.success = []
            self.rate.clear()
        self._cursor = read.cursor
        if read.lines and not self._config:
            self._config = read_config(self.entry.run_dir)
        for line in map(parse_metrics, read.lines):
            self._take(line)

    def start(self) -> None:
        """The run goes on: its recipe may have another budget than before."""
        self.state, self._config = "running", {}

    def seconds_left(self, now: float) -> float | None:
        """Return the time to the end of the budget, at unix time `now`; None when unknown."""
        left, last = self.rate.seconds_left, self.rate.last
        return None if left is None or last is None else max(0.0, left - (now - last))

    def success_text(self) -> str:
        """Return success at the first evaluation and at the latest one."""
        return " -> ".join(f"{value:.2f}" for value in self.success)

    def plain(self, now: float) -> str:
        """Return the figures as one line."""
        if self.step is None:
            return f"  {self.entry.name}: starting"
        parts = [f"step {self.step}"]
        if self.horizon is not None:
            parts.append(f"horizon {figure(self.horizon)}")
        if self.success:
            parts.append(f"success {self.success_text()}")
        if self.fraction is not None:
            parts.append(f"{self.fraction:.0%} of the budget")
        left = self.seconds_left(now)
        if left is not None:
            parts.append(f"{clock(left)} left")
        return f"  {self.entry.name}: {', '.join(parts)}"

    def _take(self, line: MetricsLine) -> None:
        success = line.metrics.get("eval/success")
        if success is not None:
            self.success = [*self.success[:1], success]
        if line.stage != "train":
            return
        if self.step is not None and line.step <= self.step:
            self.rate.clear()  # resumed from an earlier checkpoint
        self.step = line.step
        self.horizon = line.metrics.get("horizon/max_turns")
        self.fraction = fraction_done(self._config, line.step, line.metrics)
        if line.time >= self._opened:
            self.rate.update(line.time, 0.0, self.fraction)


class ComparisonProgress:
    """The display of several runs, `parallel` at a time."""

    def __init__(self, entries: Sequence[Entry], parallel: int) -> None:
        self._opened = time.time()
        self._rows = {entry.name: RunRow(entry, self._opened) for entry in entries}
        self._parallel = parallel
        self._live: Live | None = None
        self._next_plain = time.monotonic() + PLAIN_INTERVAL_S

    def __enter__(self) -> Self:
        for row in self._rows.values():
            row.read()
        if sys.stdout.isatty():
            from rich.live import Live

            # No refresh of its own: a thread that draws would meet the notes of this one.
            self._live = Live(self._screen(), auto_refresh=False, vertical_overflow="crop")
            self._live.start(refresh=True)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.update(self._screen(), refresh=True)
            self._live.stop()
            self._live = None

    def started(self, name: str) -> None:
        """A run goes on from now."""
        self._rows[name].start()

    def ended(self, name: str, state: State) -> RunRow:
        """A run is at rest; return its last figures."""
        row = self._rows[name]
        row.read()
        row.state = state
        return row

    def refresh(self) -> None:
        """Read what running runs have written and show it."""
        running = [row for row in self._rows.values() if row.state == "running"]
        for row in running:
            row.read()
        if self._live is not None:
            self._live.update(self._screen(), refresh=True)
        elif running and time.monotonic() >= self._next_plain:
            self._next_plain = time.monotonic() + PLAIN_INTERVAL_S
            for row in running:
                print(row.plain(time.time()), flush=True)

    def note(self, text: str) -> None:
        """Print a sentence that stays, above the live table."""
        if self._live is not None:
            self._live.console.print(text, highlight=False, markup=False, soft_wrap=True)
        else:
            print(text, flush=True)

    def summary(self, now: float) -> str:
        """Return how many runs are where, and about how long all of them will take."""
        rows = list(self._rows.values())
        counts = Counter(row.state for row in rows)
        parts = [f"{counts[state]} {state}" for state in _STATES if counts[state]]
        left = time_left(rows, self._parallel, now)
        about = f" About {clock(left)} left." if left and counts["running"] else ""
        return f"{len(rows)} runs: {', '.join(parts)}.{about}"

    def _screen(self) -> "Group":
        from rich.console import Console, Group
        from rich.text import Text

        now = time.time()
        room = (self._live.console if self._live else Console()).height - _OTHER_LINES
        shown = most_urgent(list(self._rows.values()), max(3, room))
        hidden = len(self._rows) - len(shown)
        more = f" {hidden} not shown." if hidden else ""
        return Group(render_rows(shown, now), Text(self.summary(now) + more, style="dim"))


def time_left(rows: Sequence[RunRow], parallel: int, now: float) -> float | None:
    """Return about how many seconds all runs will take, `parallel` at a time; None when unknown.

    A run that waits is taken to be as long as those of its arm, else as all known ones.
    """
    known = {row.entry.name: row.rate.full_s for row in rows}
    by_arm: dict[str, list[float]] = {}
    for row in rows:
        full_s = known[row.entry.name]
        if full_s is not None:
            by_arm.setdefault(row.entry.arm, []).append(full_s)
    if not by_arm:
        return None
    every = [full_s for values in by_arm.values() for full_s in values]
    left = [0.0]
    for row in rows:
        if row.state not in ("running", "waiting"):
            continue
        own = row.seconds_left(now) if row.state == "running" else None
        alike = by_arm.get(row.entry.arm, every)
        guess = sum(alike) / len(alike) * (1.0 - (row.fraction or 0.0))
        left.append(guess if own is None else own)
    return max(*left, sum(left) / parallel)


def most_urgent(rows: Sequence[RunRow], room: int) -> list[RunRow]:
    """Return at most `room` rows in their order: running ones first of all, waiting ones last."""
    ranked = sorted(range(len(rows)), key=lambda i: (_URGENCY.index(rows[i].state), i))
    return [rows[i] for i in sorted(ranked[:room])]


def render_rows(rows: Sequence[RunRow], now: float) -> "Table":
    """Return one row per run; it fits 80 columns, and a long name is cut."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("arm", no_wrap=True, overflow="ellipsis", min_width=8)
    for header, width in (("seed", 4), ("step", 4), ("horizon", 7), ("success", 12)):
        table.add_column(header, justify="right", no_wrap=True, min_width=width)
    table.add_column("budget", width=10)
    table.add_column("", justify="right", no_wrap=True, width=4)
    table.add_column("left", justify="right", no_wrap=True, min_width=8)
    for row in rows:
        known = row.fraction is not None
        table.add_row(
            row.entry.arm,
            str(row.entry.seed),
            "" if row.step is None else str(row.step),
            figure(row.horizon),
            row.success_text(),
            ProgressBar(total=1.0, completed=row.fraction or 0.0, width=10) if known else "",
            f"{row.fraction:.0%}" if row.fraction is not None else "",
            _left(row, now),
            style="red" if row.state == "failed" else "dim" if row.state == "waiting" else "",
        )
    return table


def _left(row: RunRow, now: float) -> str:
    if row.state != "running":
        return row.state
    return clock(row.seconds_left(now)) or ("starting" if row.step is None else "...")
