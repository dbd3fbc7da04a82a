"""What a person sees while runs go on: a live table on a terminal, plain lines elsewhere.

    run            step  horizon  success  reward  cut  tok/s  done  left
    scaled/seed0     86       10     0.41    0.44  22%  1.3k    43%  12:31

A run is one row. On anything that is not a terminal (a file, a pipe, CI) the same figures are
single lines without control characters, at most one every few seconds.
"""

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from scalinginter.track.follow import Cursor, read_new
from scalinginter.track.journal import METRICS, MetricsLine, parse_metrics
from scalinginter.track.run_folder import RUN_INFO, read_config, read_run_info

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

PLAIN_INTERVAL_S = 2.0  # between two plain lines of one run
_RATE_WINDOW = 20  # updates that speed and time left are read from
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
        self.state = "waiting"
        self._history: deque[tuple[float, float, float]] = deque(maxlen=_RATE_WINDOW)

    def update(
        self,
        step: int,
        metrics: Mapping[str, float],
        fraction: float | None,
        now: float,
    ) -> None:
        """Take the figures of a step; `fraction` is the share of the budget spent, in [0, 1]."""
        if self.step is not None and step < self.step:
            self._history.clear()  # resumed from an earlier checkpoint
        if fraction is None and self.total:
            fraction = step / self.total
        self.step, self.metrics, self.fraction = step, dict(metrics), fraction
        self.state = "running"
        tokens = metrics.get("cost/generated_tokens", 0.0)
        self._history.append((now, tokens, fraction or 0.0))

    @property
    def tokens_per_s(self) -> float | None:
        """Generated tokens per second of wall clock; None when unknown."""
        seconds, tokens, _ = self._gained()
        return tokens / seconds if seconds > 0 and tokens > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Time until the budget is spent at the present speed; None when unknown."""
        seconds, _, gained = self._gained()
        if self.fraction is None or gained <= 0:
            return None
        return max(0.0, 1.0 - self.fraction) * seconds / gained

    def _gained(self) -> tuple[float, float, float]:
        if not self._history:
            return 0.0, 0.0, 0.0
        first, last = self._history[0], self._history[-1]
        return last[0] - first[0], last[1] - first[1], last[2] - first[2]

    def cells(self) -> list[str]:
        """Return the row of the live table, without the name."""
        if self.step is None:
            return ["" for _ in range(7)] + [self.state]
        figures = [_figure(self.metrics.get(key), share) for key, _, _, share in _FIGURES]
        speed = _count(self.tokens_per_s) if self.tokens_per_s else ""
        done = f"{self.fraction:.0%}" if self.fraction is not None else ""
        left = _clock(self.seconds_left) if self.state == "running" else self.state
        return [str(self.step), *figures, speed, done, left]

    def line(self) -> str:
        """Return the same figures as one plain line."""
        parts = [f"{self.unit} {self.step}" + (f"/{self.total}" if self.total else "")]
        for key, _, words, share in _FIGURES:
            if key in self.metrics:
                parts.append(f"{words} {_figure(self.metrics[key], share)}")
        if self.tokens_per_s:
            parts.append(f"{_count(self.tokens_per_s)} tokens/s")
        if self.fraction is not None:
            parts.append(f"{self.fraction:.0%} done")
        if self.seconds_left is not None:
            parts.append(f"{_clock(self.seconds_left)} left")
        return f"{self.name}  " + "  ".join(parts)


def eval_line(step: int, metrics: Mapping[str, float]) -> str:
    """Return one evaluation in words: success with its interval, reward, turns."""
    text = f"eval at step {step}:  success {_figure(metrics.get('eval/success'), False)}"
    low, high = metrics.get("eval/success_low"), metrics.get("eval/success_high")
    if low is not None and high is not None:
        text += f" [{low:.2f}, {high:.2f}]"
    for key, word, digits in (
        ("eval/reward", "reward", 2),
        ("eval/turns_mean", "turns", 1),
    ):
        if key in metrics:
            text += f"  {word} {metrics[key]:.{digits}f}"
    return text


class Progress:
    """The display of one run, or of one long piece of work in it.

    `total` and `unit` are for work that is counted ("demonstrations", "episodes"); a run whose end
    is a budget gives `fraction_done` with each update instead.
    """

    def __init__(self, title: str, total: int | None = None, unit: str = "step") -> None:
        self._job = JobView(title, total, unit)
        self._screen = _Screen([self._job])

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
        self._screen.show(self._job)

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print one evaluation as a line that stays."""
        self.note(eval_line(step, metrics))

    def note(self, text: str) -> None:
        """Print a sentence that stays, above the live display."""
        self._screen.note(text)


class ComparisonProgress:
    """The display of several runs, fed from their journals: `refresh()` reads what is new."""

    def __init__(self, run_dirs: Sequence[str | Path]) -> None:
        self._followed = [_Followed(Path(run_dir)) for run_dir in run_dirs]
        self._screen = _Screen([followed.job for followed in self._followed])

    def __enter__(self) -> Self:
        self._screen.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.refresh()
        self._screen.close()

    def refresh(self) -> None:
        """Read the new lines of every journal and show them."""
        for followed in self._followed:
            for line in followed.read():
                if line.stage == "eval":
                    self._screen.note(f"{followed.job.name}  {eval_line(line.step, line.metrics)}")
            if followed.changed:
                self._screen.show(followed.job)
        self._screen.redraw()

    def note(self, text: str) -> None:
        """Print a sentence that stays, above the live display."""
        self._screen.note(text)

    def table(self) -> "Table":
        """Return the rows as a rich table, for a caller with a display of its own."""
        return render_table([followed.job for followed in self._followed])


class _Followed:
    """A run folder that someone else writes, and how far it was read."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.job = JobView("/".join(run_dir.parts[-2:]))
        self.changed = False
        self._cursor = Cursor()
        self._seen = 0.0  # time of the newest line so far
        self._config: dict[str, Any] = {}

    def read(self) -> list[MetricsLine]:
        read = read_new(self.run_dir / METRICS, self._cursor)
        self._cursor = read.cursor
        lines = [parse_metrics(line) for line in read.lines]
        self._config = self._config or read_config(self.run_dir)
        for line in lines:
            if line.stage == "train":
                done = fraction_done(self._config, line.step, line.metrics)
                self.job.update(line.step, line.metrics, done, line.time)
        lines = [line for line in lines if line.time > self._seen]  # a resume shows none again
        self._seen = max([self._seen, *(line.time for line in lines)])
        self.changed = any(line.stage == "train" for line in lines)
        if (self.run_dir / RUN_INFO).is_file():
            status = read_run_info(self.run_dir).status
            starting = status == "running" and not self._cursor.offset
            self.job.state = "starting" if starting else status
        return lines


def fraction_done(
    config: Mapping[str, Any], step: int, metrics: Mapping[str, float]
) -> float | None:
    """Return the share of a recipe's budget that is spent, in [0, 1]; None without a limit.

    The limit that is nearest decides, as it ends the run. `step` counts from 1.
    """
    train = config.get("train", {})
    limits = {unit: limit for unit, limit in train.get("budget", {}).items() if limit}
    shares = [metrics.get(f"cost/{unit}", 0.0) / limit for unit, limit in limits.items()]
    if train.get("num_steps"):
        shares.append(step / train["num_steps"])
    return min(1.0, max(shares)) if shares else None


class _Screen:
    """Where rows go: a rich live table on a terminal, throttled lines elsewhere."""

    def __init__(self, jobs: Sequence[JobView]) -> None:
        self._jobs = jobs
        self._live: Live | None = None
        self._printed: dict[str, float] = {}  # by run: when its last line was
        self._pending: dict[str, str] = {}

    def open(self) -> None:
        if not sys.stdout.isatty():
            return
        from rich.live import Live

        self._live = Live(render_table(self._jobs), refresh_per_second=2, transient=False)
        self._live.start()

    def show(self, job: JobView) -> None:
        if self._live is not None:
            self.redraw()
            return
        now = time.monotonic()
        last = self._printed.get(job.name, -PLAIN_INTERVAL_S)
        if now - last >= PLAIN_INTERVAL_S:
            self._print(job.name, job.line(), now)
        else:
            self._pending[job.name] = job.line()

    def redraw(self) -> None:
        if self._live is not None:
            self._live.update(render_table(self._jobs))

    def note(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, highlight=False, markup=False)
        else:
            print(text, flush=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.update(render_table(self._jobs), refresh=True)
            self._live.stop()
            self._live = None
        for name, line in dict(self._pending).items():
            self._print(name, line, time.monotonic())

    def _print(self, name: str, line: str, now: float) -> None:
        print(line, flush=True)
        self._printed[name] = now
        self._pending.pop(name, None)


def render_table(jobs: Sequence[JobView]) -> "Table":
    """Return one row per run; it fits 80 columns, and a long name is cut."""
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
    for job in jobs:
        table.add_row(job.name, *job.cells())
    return table


def _figure(value: float | None, share: bool) -> str:
    if value is None:
        return ""
    if share:
        return f"{value:.0%}"
    return f"{value:.0f}" if float(value).is_integer() and value > 1 else f"{value:.2f}"


def _count(value: float) -> str:
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.0f}"


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
