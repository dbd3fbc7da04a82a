"""What a person sees while a run goes on: a live row on a terminal, plain lines elsewhere.

    run            step  horizon  success  reward  cut  tok/s  done  left
    scaled/seed0     86       10     0.41    0.44  22%  1.3k    43%  12:31

On anything that is not a terminal (a file, a pipe, CI) the same figures are single lines without
control characters, at most one every few seconds. Several runs at a time have `track/board.py`.
"""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from scalinginter.track.figures import Rate, clock, eval_line, figure, short_count

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

PLAIN_INTERVAL_S = 2.0  # between two plain lines
# metric, header of the column, words in a plain line, shown as a percentage
_FIGURES = (
    ("horizon/max_turns", "horizon", "horizon", False),
    ("rollout/success", "success", "success", False),
    ("reward/mean", "reward", "reward", False),
    ("rollout/truncated_share", "cut", "cut by a limit", True),
)


class JobView:
    """The figures of one run as they come in: what a row or a line shows."""

    def __init__(self, name: str, total: int | None = None, unit: str = "step") -> None:
        self.name, self.total, self.unit = name, total, unit
        self.step: int | None = None
        self.metrics: dict[str, float] = {}
        self.fraction: float | None = None
        self.rate = Rate()

    def update(
        self,
        step: int,
        metrics: Mapping[str, float],
        fraction: float | None,
        now: float,
    ) -> None:
        """Take the figures of a step; `fraction` is the share of the budget spent, in [0, 1]."""
        if fraction is None and self.total:
            fraction = step / self.total
        self.step, self.metrics, self.fraction = step, dict(metrics), fraction
        self.rate.update(now, metrics.get("cost/generated_tokens", 0.0), fraction)

    def cells(self) -> list[str]:
        """Return the row of the live table, without the name."""
        if self.step is None:
            return ["" for _ in range(7)] + ["starting"]
        figures = [figure(self.metrics.get(key), share) for key, _, _, share in _FIGURES]
        speed = short_count(self.rate.tokens_per_s) if self.rate.tokens_per_s else ""
        done = f"{self.fraction:.0%}" if self.fraction is not None else ""
        return [str(self.step), *figures, speed, done, clock(self.rate.seconds_left)]

    def line(self) -> str:
        """Return the same figures as one plain line."""
        parts = [f"{self.unit} {self.step}" + (f"/{self.total}" if self.total else "")]
        for key, _, words, share in _FIGURES:
            if key in self.metrics:
                parts.append(f"{words} {figure(self.metrics[key], share)}")
        if self.rate.tokens_per_s:
            parts.append(f"{short_count(self.rate.tokens_per_s)} tokens/s")
        if self.fraction is not None:
            parts.append(f"{self.fraction:.0%} done")
        if self.rate.seconds_left is not None:
            parts.append(f"{clock(self.rate.seconds_left)} left")
        return f"{self.name}  " + "  ".join(parts)


class Progress:
    """The display of one run, or of one long piece of work in it.

    `total` and `unit` are for work that is counted ("demonstrations", "episodes"); a run whose end
    is a budget gives `fraction_done` with each update instead.
    """

    def __init__(self, title: str, total: int | None = None, unit: str = "step") -> None:
        self._job = JobView(title, total, unit)
        self._screen = _Screen(self._job)

    def __enter__(self) -> Self:
        self._screen.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self._screen.close()

    def update(
        self,
        step: int,
        metrics: Mapping[str, float],
        fraction_done: float | None = None,
    ) -> None:
        """Show the figures of a training step."""
        self._job.update(step, metrics, fraction_done, time.monotonic())
        self._screen.show()

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print one evaluation as a line that stays, after the line of the step before it."""
        self.note(eval_line(step, metrics))

    def note(self, text: str) -> None:
        """Print a sentence that stays, above the live display."""
        self._screen.note(text)


class _Screen:
    """Where figures go: a rich live table on a terminal, throttled lines elsewhere."""

    def __init__(self, job: JobView) -> None:
        self._job = job
        self._live: Live | None = None
        self._printed = -PLAIN_INTERVAL_S  # when the last plain line was
        self._pending = False  # the newest figures have no line yet

    def open(self) -> None:
        if not sys.stdout.isatty():
            return
        from rich.live import Live

        self._live = Live(render_table(self._job), refresh_per_second=2, transient=False)
        self._live.start()

    def show(self) -> None:
        if self._live is not None:
            self._live.update(render_table(self._job))
            return
        self._pending = True
        if time.monotonic() - self._printed >= PLAIN_INTERVAL_S:
            self._flush()

    def note(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, highlight=False, markup=False)
        else:
            self._flush()
            print(text, flush=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.update(render_table(self._job), refresh=True)
            self._live.stop()
            self._live = None
        self._flush()

    def _flush(self) -> None:
        if self._pending:
            print(self._job.line(), flush=True)
            self._printed, self._pending = time.monotonic(), False


def render_table(job: JobView) -> "Table":
    """Return the row with its header; it fits 80 columns, and a long name is cut."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("run", no_wrap=True, overflow="ellipsis", min_width=8)
    for header in (
        "step",
        *(h for _, h, _, _ in _FIGURES),
        "tok/s",
        "done",
        "left",
    ):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_row(job.name, *job.cells())
    return table
