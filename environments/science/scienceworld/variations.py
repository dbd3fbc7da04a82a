"""The 30 tasks of ScienceWorld, their variations, and the official splits.

The simulator cuts the variations 0, 1, 2, ... of every task into three runs: train, dev, test. How
long they are is written here, so that listing tasks needs no Java; a test compares.
"""

import functools
import json
from collections.abc import Sequence
from pathlib import Path

from scalinginter.env.base import SPLITS, Split
from scalinginter.errors import UserError, nearest

LENGTHS = Path(__file__).with_name("lengths.json")

# name: id in the paper (arXiv 2203.07540, table 2), variations of train, dev, test
TASKS: dict[str, tuple[str, int, int, int]] = {
    "boil": ("1-1", 14, 7, 9),
    "melt": ("1-2", 14, 7, 9),
    "freeze": ("1-3", 14, 7, 9),
    "change-the-state-of-matter-of": ("1-4", 14, 7, 9),
    "use-thermometer": ("2-1", 270, 135, 135),
    "measure-melting-point-known-substance": ("2-2", 218, 109, 109),
    "measure-melting-point-unknown-substance": ("2-3", 150, 75, 75),
    "power-component": ("3-1", 10, 5, 5),
    "power-component-renewable-vs-nonrenewable-energy": ("3-2", 10, 5, 5),
    "test-conductivity": ("3-3", 450, 225, 225),
    "test-conductivity-of-unknown-substances": ("3-4", 300, 150, 150),
    "find-living-thing": ("4-1", 150, 75, 75),
    "find-non-living-thing": ("4-2", 150, 75, 75),
    "find-plant": ("4-3", 150, 75, 75),
    "find-animal": ("4-4", 150, 75, 75),
    "grow-plant": ("5-1", 62, 31, 33),
    "grow-fruit": ("5-2", 62, 31, 33),
    "chemistry-mix": ("6-1", 16, 8, 8),
    "chemistry-mix-paint-secondary-color": ("6-2", 18, 9, 9),
    "chemistry-mix-paint-tertiary-color": ("6-3", 18, 9, 9),
    "lifespan-longest-lived": ("7-1", 62, 31, 32),
    "lifespan-shortest-lived": ("7-2", 62, 31, 32),
    "lifespan-longest-lived-then-shortest-lived": ("7-3", 62, 31, 32),
    "identify-life-stages-1": ("8-1", 6, 3, 5),
    "identify-life-stages-2": ("8-2", 4, 2, 4),
    "inclined-plane-determine-angle": ("9-1", 84, 42, 42),
    "inclined-plane-friction-named-surfaces": ("9-2", 692, 346, 348),
    "inclined-plane-friction-unnamed-surfaces": ("9-3", 80, 40, 42),
    "mendelian-genetics-known-plant": ("10-1", 60, 30, 30),
    "mendelian-genetics-unknown-plant": ("10-2", 240, 120, 120),
}
SIMPLIFICATIONS = (
    "teleportAction",
    "openDoors",
    "openContainers",
    "selfWateringFlowerPots",
    "noElectricalAction",
)
EASY = ",".join(SIMPLIFICATIONS[:4])


def variations(name: str, split: Split) -> range:
    """Return the variations of a task that belong to a split."""
    counts = TASKS[name][1:]
    place = SPLITS.index(split)
    start = sum(counts[:place])
    return range(start, start + counts[place])


def chosen_tasks(wanted: Sequence[str | float] | str | None) -> tuple[str, ...]:
    """Return task names for names or ids such as "boil" and "1-1". Raises `UserError`."""
    if wanted is None:
        return tuple(TASKS)
    by_id = {number: name for name, (number, *_) in TASKS.items()}
    found = []
    for item in [wanted] if isinstance(wanted, str) else wanted:
        name = by_id.get(str(item), str(item))
        if name not in TASKS:
            raise UserError(
                f"unknown task {item!r}{nearest(name, [*TASKS, *by_id])}; "
                f"there are: {', '.join(f'{name} ({by})' for by, name in by_id.items())}"
            )
        found.append(name)
    if not found:
        raise UserError("tasks is empty; name some, or leave it out for all 30")
    return tuple(dict.fromkeys(found))


def checked_simplification(text: str) -> str:
    """Return simplifications in the simulator's order. Raises `UserError` for unknown ones."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if parts == ["easy"]:
        return EASY
    for part in parts:
        if part not in SIMPLIFICATIONS:
            raise UserError(
                f"unknown simplification {part!r}{nearest(part, ['easy', *SIMPLIFICATIONS])}; "
                f"allowed: easy, or some of {', '.join(SIMPLIFICATIONS)} with commas between"
            )
    return ",".join(part for part in SIMPLIFICATIONS if part in parts)


@functools.cache
def known_lengths() -> dict[str, dict[str, int]]:
    """Return the turns of measured gold paths: `{"boil": {"0": 39}}`; without simplifications."""
    return json.loads(LENGTHS.read_text())
