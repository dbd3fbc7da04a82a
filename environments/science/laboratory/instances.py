"""The tasks: kinds and levels in turn, drawn from keys; the split is decided by the content."""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from environments.science.laboratory import change, grow, measure, mix, sort
from environments.science.laboratory.grammar import MOVING
from environments.science.laboratory.planner import Planner
from environments.science.laboratory.setup import LEVELS, Draw, Experiment
from scalinginter.env.base import SPLITS, Split
from scalinginter.errors import UserError
from scalinginter.types import Task

MOST_IDLE = 400  # draws in a row without a new task before giving up
SHARES = (6, 1, 1)  # of the splits


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of task: how it is made, and the forms of action that it takes."""

    build: Callable[[Draw], Experiment]
    forms: tuple[str, ...]


KINDS: dict[str, Kind] = {
    "measure": Kind(measure.build, measure.FORMS),
    "change": Kind(change.build, change.FORMS),
    "mix": Kind(mix.build, mix.FORMS),
    "grow": Kind(grow.build, grow.FORMS),
    "conductivity": Kind(sort.build_circuit, sort.CIRCUIT_FORMS),
    "classify": Kind(sort.build_magnet, sort.MAGNET_FORMS),
}


def forms_of(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Return the forms of action of these kinds of task."""
    return (*MOVING, *dict.fromkeys(form for kind in kinds for form in KINDS[kind].forms))


def build(kind: str, level: int, key: str) -> Experiment:
    """Make the experiment of a task: a pure function of the arguments."""
    return KINDS[kind].build(Draw(f"{kind}/{level}/{key}", LEVELS[level - 1]))


def plan(kind: str, experiment: Experiment) -> list[str]:
    """Return the expert's actions from the start of an experiment to its success; plays it."""
    planner = Planner(experiment.world, forms_of((kind,)))
    experiment.solve(planner)
    return planner.plan


@functools.lru_cache(maxsize=8)
def make_tasks(
    kinds: tuple[str, ...], levels: range, sizes: tuple[int, int, int], seed: int
) -> dict[Split, tuple[Task, ...]]:
    """Return the tasks of the splits; kinds and levels take turns.

    The hash of a task's world and goal decides its split, so no two splits share one, and no split
    holds one twice. Raises `UserError` if a kind has too few different tasks at a level.
    """
    cells = [(kind, level) for level in levels for kind in kinds]
    found: dict[Split, list[list[Task]]] = {split: [] for split in SPLITS}
    for place, (kind, level) in enumerate(cells):
        wanted = [len(range(place, size, len(cells))) for size in sizes]
        for split, tasks in _cell(kind, level, seed, wanted).items():
            found[split].append(tasks)
    return {split: _in_turn(columns) for split, columns in found.items()}


def _in_turn(columns: list[list[Task]]) -> tuple[Task, ...]:
    longest = max(map(len, columns))
    return tuple(tasks[row] for row in range(longest) for tasks in columns if row < len(tasks))


def _cell(kind: str, level: int, seed: int, wanted: list[int]) -> dict[Split, list[Task]]:
    """Return the tasks of one kind and level: `wanted[i]` of the i-th split."""
    tasks: dict[Split, list[Task]] = {split: [] for split in SPLITS}
    left = dict(zip(SPLITS, wanted, strict=True))
    seen: set[bytes] = set()
    attempt = last = 0
    while any(left.values()):
        if attempt - last > MOST_IDLE:
            raise UserError(
                f"too few different tasks of kind {kind!r} at level {level} for {sum(wanted)} of "
                "them; ask for fewer tasks, more kinds or more levels"
            )
        attempt += 1
        key = f"{seed}/{attempt}"
        experiment = build(kind, level, key)
        digest = _digest(experiment)
        split = _split(digest)
        if digest in seen or not left[split]:
            continue
        last = attempt
        seen.add(digest)
        left[split] -= 1
        data = {"kind": kind, "level": level, "key": key}
        name = f"{split}/{kind}{level}/{key.replace('/', '-')}"
        tasks[split].append(Task(name, "laboratory", data, len(plan(kind, experiment))))
    return tasks


def _digest(experiment: Experiment) -> bytes:
    content = repr((experiment.world, experiment.goal.text))
    return hashlib.sha256(content.encode()).digest()


def _split(digest: bytes) -> Split:
    share = digest[0] % sum(SHARES)
    return SPLITS[max(0, share - SHARES[0] + 1)]
