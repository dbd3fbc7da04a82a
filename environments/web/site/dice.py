"""Draws that are the same on every machine and under every Python."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """A stream of draws, a pure function of its key.

    Built on `random.Random.random` alone: Python promises its stream for good, and that of
    `choice` or `sample` not.
    """

    def __init__(self, *key: int | str) -> None:
        self._draw = random.Random("/".join(map(str, key))).random

    def below(self, end: int) -> int:
        """Return a number from 0 to end - 1."""
        return int(self._draw() * end)

    def between(self, low: int, high: int) -> int:
        """Return a number from low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, pool: Sequence[T]) -> T:
        """Return one of the pool."""
        return pool[self.below(len(pool))]

    def some(self, pool: Sequence[T], count: int) -> list[T]:
        """Return `count` different ones, in random order; fewer if the pool is smaller."""
        rest = list(pool)
        for i in range(min(count, len(rest))):
            j = i + self.below(len(rest) - i)
            rest[i], rest[j] = rest[j], rest[i]
        return rest[:count]

    def shuffled(self, pool: Sequence[T]) -> list[T]:
        """Return all of them in random order."""
        return self.some(pool, len(pool))
