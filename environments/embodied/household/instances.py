"""The tasks: kinds and numbers of errands in turn, drawn from keys.

A task's content decides its split.
"""

import functools
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from environments.embodied.household.errand import Errand
from environments.embodied.household.expert import solve
from environments.embodied.household.homes import build
from environments.embodied.household.world import World
from scalinginter.env.base import SPLITS, Split
from scalinginter.errors import UserError
from scalinginter.types import Task

MOST_IDLE = 400  # draws in a row without a new task before giving up
SHARES = (6, 1, 1)  # of the splits

Data = dict[str, Any]
Home = tuple[World, tuple[Errand, ...]]


@dataclass(frozen=True, slots=True)
class Design:
    """What a task list is made from; the fields are the parameters of the environment."""

    kinds: tuple[str, ...]
    errands: range
    rooms: int
    copies: int
    clutter: int
    seed: int
    search: bool  # has the expert to look for things?


@functools.lru_cache(maxsize=8)
def make_tasks(design: Design, sizes: tuple[int, int, int]) -> dict[Split, tuple[Task, ...]]:
    """Return the tasks of the splits; numbers of errands and kinds of the first one take turns.

    The hash of a task's home and errands decides its split, so no two splits share one, and no
    split holds one twice. Raises `UserError` if there are too few different ones.
    """
    cells = [(number, kind) for number in design.errands for kind in design.kinds]
    found: dict[Split, dict[int, Task]] = {split: {} for split in SPLITS}
    for place, (number, kind) in enumerate(cells):
        positions = {
            split: list(range(place, size, len(cells)))
            for split, size in zip(SPLITS, sizes, strict=True)
        }
        draws = _draws(design, number, kind)
        while any(positions.values()):
            split, name, data, (world, errands) = next(draws)
            if positions[split]:
                task = Task(name, "household", data, len(solve(world, errands, design.search)))
                found[split][positions[split].pop(0)] = task
    return {split: tuple(tasks[i] for i in sorted(tasks)) for split, tasks in found.items()}


def _draws(design: Design, number: int, kind: str) -> Iterator[tuple[Split, str, Data, Home]]:
    """Yield new tasks of a number of errands, the first of them of a kind."""
    seen: set[bytes] = set()
    attempt = last = 0
    while attempt - last <= MOST_IDLE:
        attempt += 1
        key = f"{design.seed}/{attempt}"
        dice = random.Random(f"{kind}/{number}/{key}")
        data = {
            "kinds": [kind, *(dice.choice(design.kinds) for _ in range(number - 1))],
            "rooms": design.rooms,
            "copies": design.copies,
            "clutter": design.clutter,
            "key": key,
        }
        world, errands = build(**data)
        digest = _digest(world, errands)
        if digest not in seen:
            last = attempt
            seen.add(digest)
            split = _split(digest)
            name = f"{split}/{kind}{number}/{design.seed}-{attempt}"
            yield split, name, data, (world, errands)
    raise UserError(
        f"too few different tasks of {number} errands of kind {kind!r}; "
        "ask for fewer tasks, or for more rooms, copies or clutter"
    )


def _digest(world: World, errands: tuple[Errand, ...]) -> bytes:
    return hashlib.sha256(repr((world, errands)).encode()).digest()


def _split(digest: bytes) -> Split:
    share = digest[0] % sum(SHARES)
    return SPLITS[max(0, share - SHARES[0] + 1)]
