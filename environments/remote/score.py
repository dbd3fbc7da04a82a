"""Scores of other people's servers as rewards: the sum over an episode is the level reached."""

from typing import Any

from scalinginter.errors import EnvironmentFailure

TOLERANCE = 1e-9


class Score:
    """Normalises what a service reports into rewards whose sum lies in [0, 1].

    Args:
        scale: the best score, which becomes 1.
        cumulative: the service reports what was reached so far; else the reward of each step.
        start: what a cumulative score was before the first step: it counts for nothing.
    """

    def __init__(self, scale: float, cumulative: bool, start: float = 0.0) -> None:
        self._scale, self._cumulative, self._start = scale, cumulative, start
        self._raw = start  # of this episode, on the service's scale
        self._level = 0.0

    def take(self, value: Any) -> float:
        """Take the score of a step; return its reward.

        What is above the scale or below zero is cut there: a reward can be negative, where the
        level falls. Raises `EnvironmentFailure` for what is no number.
        """
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise EnvironmentFailure(f"the service's score is {value!r:.80}, not a number")
        self._raw = value if self._cumulative else self._raw + value
        level = min(1.0, max(0.0, (self._raw - self._start) / self._scale))
        reward, self._level = level - self._level, level
        return reward

    def reached(self, share: float) -> bool:
        """Is the service's own score at least this share of the best?"""
        return self._raw / self._scale >= share - TOLERANCE
