"""Tasks: a template per kind, drawn in a world."""

from functools import lru_cache

from environments.web.site.data import make_world
from environments.web.site.dice import Dice
from environments.web.site.tasks import code, cross, forum, shop_act, shop_read, wiki
from environments.web.site.tasks.base import Draft, Template

TEMPLATES: dict[str, Template] = {
    **shop_read.TEMPLATES,
    **shop_act.TEMPLATES,
    **forum.TEMPLATES,
    **wiki.TEMPLATES,
    **code.TEMPLATES,
    **cross.TEMPLATES,
}
"""Kinds of tasks, by name; the name's first word is the area."""

AREAS = ("shop", "forum", "wiki", "code", "cross")
CACHED_DRAFTS = 4096
_ATTEMPTS = 20


@lru_cache(maxsize=CACHED_DRAFTS)
def draft(world_seed: int, kind: str, variant: int) -> Draft | None:
    """Draw a task: a pure function of its arguments. None where the world has none for them, or
    where a smaller variant already asks the same."""
    world = make_world(world_seed)
    earlier = {d.goal for v in range(variant) if (d := draft(world_seed, kind, v))}
    for attempt in range(_ATTEMPTS):
        found = TEMPLATES[kind](world, Dice("task", world_seed, kind, variant, attempt))
        if found is not None and found.goal not in earlier:
            return found
    return None
