"""Measure how many turns the tasks need and write `lengths.json`.

python -m environments.web.site.measure
"""

import json

from environments.web.site import catalogue
from environments.web.site.tasks import TEMPLATES, draft
from scalinginter.env.base import SPLITS

TRAIN_WORLDS, OTHER_WORLDS = 48, 8
VARIANTS = 4


def _turns(seed: int, kind: str, variant: int) -> int | None:
    found = draft(seed, kind, variant)
    return None if found is None else len(catalogue.expert_plan(found, seed, catalogue.VIEWPORT))


def measure() -> dict[str, dict[str, list[int | None]]]:
    """Return `kind -> world -> turns of each variant`, of the default tasks and some more."""
    table: dict[str, dict[str, list[int | None]]] = {kind: {} for kind in TEMPLATES}
    for position, split in enumerate(SPLITS):
        for world in range(TRAIN_WORLDS if split == "train" else OTHER_WORLDS):
            seed = position * catalogue.WORLDS + world
            for kind in TEMPLATES:
                table[kind][str(seed)] = [_turns(seed, kind, v) for v in range(VARIANTS)]
    return table


def main() -> None:
    lines = (f"{json.dumps(kind)}: {json.dumps(turns)}" for kind, turns in measure().items())
    catalogue.LENGTHS.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
    for split in SPLITS:
        key = (split, tuple(TEMPLATES), 1200 if split == "train" else 192, None, 0)
        tasks = catalogue.list_tasks(*key, catalogue.VIEWPORT)
        turns = sorted(task.required_turns or 0 for task in tasks)
        marks = [turns[len(turns) * share // 100] for share in (0, 25, 50, 75, 90)]
        print(f"{split}: {len(tasks)} tasks, turns {marks} at 0, 25, 50, 75, 90 %, {turns[-1]} max")


if __name__ == "__main__":
    main()
