"""BrowserGym's tasks by name, and how they become the tasks of three splits."""

import importlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import gymnasium

from environments.web.miniwob.pages import folder
from scalinginter.env.base import SPLITS, Split
from scalinginter.errors import UserError, nearest
from scalinginter.types import Task

ID = "browsergym"
PREFIX = "browsergym/"
SEEDS = 1_000_000  # of a split; no seed is in two splits
SEEDED = ("miniwob", "openended")  # families whose tasks are as many as there are seeds
HOW = (
    "pip install 'scalinginter[browsergym]' and pip install --no-deps browsergym-core "
    "(it pins an old playwright)"
)

SplitBy = Literal["seed", "task"]


def family(name: str) -> str:
    """Return the benchmark of a task: `miniwob` of `miniwob.click-test`."""
    return name.partition(".")[0]


def load(families: Sequence[str]) -> None:
    """Import the packages that register these benchmarks. Raises `UserError` for missing ones."""
    try:
        importlib.import_module("browsergym.core")
    except ImportError as error:
        raise UserError(f"browsergym cannot be imported: {error}; {HOW}") from error
    for name in families:
        if name == "openended":
            continue
        try:
            importlib.import_module(f"browsergym.{name}")
        except ImportError as error:
            raise UserError(
                f"BrowserGym's benchmark {name!r} cannot be imported: {error}; "
                f"pip install --no-deps browsergym-{name}"
            ) from error


def chosen(patterns: Any) -> tuple[str, ...]:
    """Return the names of tasks that `patterns` name, `miniwob.click-*` included.

    Raises `UserError` for patterns that are none, for missing packages and unknown tasks.
    """
    given = [patterns] if isinstance(patterns, str) else patterns
    if not (isinstance(given, list) and given and all(isinstance(g, str) and g for g in given)):
        raise UserError(f"tasks must be a list of names like miniwob.click-test, got {patterns!r}")
    given = [pattern.removeprefix(PREFIX) for pattern in given]
    for pattern in given:
        if not family(pattern).isidentifier():
            raise UserError(f"a task's name begins with its benchmark, got {pattern!r}")
    load(sorted({family(pattern) for pattern in given}))
    known = sorted(n.removeprefix(PREFIX) for n in gymnasium.registry if n.startswith(PREFIX))
    names: dict[str, None] = {}
    for pattern in given:
        found = [name for name in known if fnmatchcase(name, pattern)]
        if not found:
            raise UserError(f"BrowserGym has no task {pattern!r}{nearest(pattern, known)}")
        names |= dict.fromkeys(found)
    return tuple(names)


def list_tasks(
    split: Split, names: Sequence[str], by: SplitBy, count: int, task_seed: int
) -> list[Task]:
    """Return the first `count` tasks of a split: the names take turns, seed after seed.

    `by` "seed": every name, with the seeds of the split. "task": of five names three are for
    training, one for validation, one for test.
    """
    place = SPLITS.index(split)
    if by == "task":
        names = [n for i, n in enumerate(names) if (0, 0, 0, 1, 2)[i % 5] == place]
        if not names:
            raise UserError("split_by: task needs five tasks or more: name more, or split by seed")
    first = (task_seed * len(SPLITS) + place) * SEEDS
    tasks = []
    for position in range(count):
        name, seed = names[position % len(names)], first + position // len(names)
        data = {"name": name, "seed": seed}
        tasks.append(Task(f"{split}/{name}/{seed - first:06d}", ID, data))
    return tasks


def arguments(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a task: MiniWoB's pages are those of the package `miniwob`."""
    if family(name) == "miniwob":
        return {"base_url": f"{(folder() / 'miniwob').as_uri()}/"} | options
    return options
