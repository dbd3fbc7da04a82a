"""Figures of a run in words: what a row of a table or a line of a log says."""

from collections import deque
from collections.abc import Mapping
from typing import Any

_RATE_WINDOW = 20  # updates that speed and time left are read from


class Rate:
    """Speed and time left, from the last updates."""

    def __init__(self) -> None:
        self._history: deque[tuple[float, float, float]] = deque(maxlen=_RATE_WINDOW)

    def update(self, now: float, tokens: float, fraction: float | None) -> None:
        """Take a moment (seconds), the tokens generated so far and the share of the budget."""
        self._history.append((now, tokens, fraction or 0.0))

    def clear(self) -> None:
        """Forget what was: the run went back to a checkpoint."""
        self._history.clear()

    @property
    def tokens_per_s(self) -> float | None:
        """Generated tokens per second of wall clock; None when unknown."""
        seconds, tokens, _ = self._gained()
        return tokens / seconds if seconds > 0 and tokens > 0 else None

    @property
    def full_s(self) -> float | None:
        """Seconds that the whole budget takes at the present speed; None when unknown."""
        seconds, _, gained = self._gained()
        return seconds / gained if gained > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the budget is spent, counted from the last update; None when unknown."""
        full_s = self.full_s
        return None if full_s is None else max(0.0, 1.0 - self._history[-1][2]) * full_s

    @property
    def last(self) -> float | None:
        """The moment of the last update; None before the first."""
        return self._history[-1][0] if self._history else None

    def _gained(self) -> tuple[float, float, float]:
        if not self._history:
            return 0.0, 0.0, 0.0
        first, last = self._history[0], self._history[-1]
        return last[0] - first[0], last[1] - first[1], last[2] - first[2]


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


def eval_line(step: int, metrics: Mapping[str, float]) -> str:
    """Return one evaluation in words: success with its interval, reward, turns."""
    text = f"eval at step {step}:  success {figure(metrics.get('eval/success'))}"
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


def figure(value: float | None, share: bool = False) -> str:
    """Return a metric with two digits, a whole number without, a share as a percentage."""
    if value is None:
        return ""
    if share:
        return f"{value:.0%}"
    return f"{value:.0f}" if float(value).is_integer() and value > 1 else f"{value:.2f}"


def short_count(value: float) -> str:
    """Return a count in at most five characters below a million."""
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.0f}"


def clock(seconds: float | None) -> str:
    """Return a time as h:mm:ss or m:ss; nothing when unknown."""
    if seconds is None:
        return ""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
