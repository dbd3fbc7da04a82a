"""The task list: which tasks a split has, and how many turns each needs."""

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

from environments.web.browser import TextBrowser
from environments.web.site.site import ORIGIN, WebSite
from environments.web.site.tasks import AREAS, TEMPLATES, draft
from environments.web.site.tasks.base import Draft, Walker
from scalinginter.env.base import SPLITS, Split
from scalinginter.errors import UserError, nearest
from scalinginter.types import Task

LENGTHS = Path(__file__).with_name("lengths.json")
VIEWPORT = 40  # lines; lengths.json holds for it
WORLDS = 1_000_000  # seeds of a split; no seed is in two splits
TRIED = 50  # tasks looked at, and ten more for each wanted one, before max_turns is given up
TASKS_PER_WORLD = 24  # at least, where the kinds allow it


def open_site(found: Draft, world_seed: int) -> tuple[WebSite, str]:
    """Return a fresh site for a task and the session cookie that the agent begins with."""
    site = WebSite(world_seed)
    return site, site.login() if found.login else ""


def expert_plan(found: Draft, world_seed: int, viewport: int) -> list[str]:
    """Play the task's expert on a site of its own and return its actions."""
    site, cookie = open_site(found, world_seed)
    walker = Walker(TextBrowser(site, ORIGIN + found.start, viewport, cookie))
    found.solve(walker)
    site.close()
    return walker.actions


@lru_cache(maxsize=1)
def _measured() -> dict[str, dict[str, list[int | None]]]:
    """Return `kind -> world -> turns of each variant`; null: there is no such variant."""
    return json.loads(LENGTHS.read_text(encoding="utf-8")) if LENGTHS.exists() else {}


@lru_cache(maxsize=65536)
def required_turns(world_seed: int, kind: str, variant: int, viewport: int) -> int | None:
    """Return how many turns the expert needs, None where there is no such task.

    Read from `lengths.json` where it has the task, else found by playing (some milliseconds).
    """
    known = _measured().get(kind, {}).get(str(world_seed), []) if viewport == VIEWPORT else []
    if variant < len(known):
        return known[variant]
    found = draft(world_seed, kind, variant)
    return None if found is None else len(expert_plan(found, world_seed, viewport))


def _candidates(
    split: Split, kinds: tuple[str, ...], task_seed: int, viewport: int
) -> Iterator[Task]:
    """Yield the tasks of a split, world after world; kinds take turns."""
    variants = -(-TASKS_PER_WORLD // len(kinds))
    first = (task_seed * len(SPLITS) + SPLITS.index(split)) * WORLDS
    for world in range(WORLDS):
        left = list(kinds)  # kinds of which this world has more
        for variant in range(variants):
            for kind in tuple(left):
                turns = required_turns(first + world, kind, variant, viewport)
                if turns is None:
                    left.remove(kind)
                    continue
                data = {"world": first + world, "kind": kind, "variant": variant}
                yield Task(f"{split}/{kind}/w{world:04d}v{variant}", "web_site", data, turns)


@lru_cache(maxsize=64)
def list_tasks(
    split: Split,
    kinds: tuple[str, ...],
    count: int,
    longest: int | None,
    task_seed: int,
    viewport: int,
) -> tuple[Task, ...]:
    """Return the first `count` tasks of a split that take at most `longest` turns.

    Raises `UserError` if the kinds have too few of them.
    """
    tasks = _candidates(split, kinds, task_seed, viewport)
    tried = islice(tasks, TRIED + 10 * count)
    fitting = (t for t in tried if longest is None or (t.required_turns or 0) <= longest)
    found = tuple(islice(fitting, count))
    if len(found) < count:
        raise UserError(
            f"kinds {list(kinds)} have {len(found)} {split} tasks of at most {longest} turns, "
            f"{count} are wanted; raise max_turns, or ask for fewer tasks or for other kinds"
        )
    return found


def kinds_of(names: list[str] | None) -> tuple[str, ...]:
    """Return the kinds that a list of kinds and areas names, in the order of the table.

    Raises `UserError` for an unknown name.
    """
    if names is None:
        return tuple(TEMPLATES)
    if not (isinstance(names, list) and names and all(isinstance(n, str) for n in names)):
        raise UserError(f"kinds must be a list of kinds and areas, got {names!r}")
    for name in names:
        if name not in TEMPLATES and name not in AREAS:
            allowed = [*AREAS, *TEMPLATES]
            raise UserError(
                f"unknown kind {name!r}{nearest(name, allowed)}; areas: {', '.join(AREAS)}; "
                f"kinds: {', '.join(TEMPLATES)}"
            )
    return tuple(kind for kind in TEMPLATES if kind in names or kind.split("_")[0] in names)
