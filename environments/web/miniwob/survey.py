"""Find out which pages can be played, measure their experts, and write `pages.json`.

python -m environments.web.miniwob.survey              all pages, some minutes
python -m environments.web.miniwob.survey click-test   some of them; the others stay as they are
"""

import json
import sys
from typing import Any

from environments.web.chromium.launch import shutdown
from environments.web.miniwob.env import ID, SEEDS, MiniWob
from environments.web.miniwob.experts import EXPERTS
from environments.web.miniwob.pages import TABLE, all_pages, table
from scalinginter.env.base import SPLITS
from scalinginter.types import Task

SEEDS_MEASURED = (14, 3, 3)  # of each split
PROBED = (0, 1, 2 * SEEDS)  # seeds whose first view has to be the same twice

_DRAG = "needs dragging with the mouse"
_POINT = "needs a click at a point that no element marks"
_PICTURE = "its picture has no text"
_TIMED = "needs moves between two turns"
LEFT_OUT = {
    **dict.fromkeys(("draw-circle", "draw-line", "highlight-text", "highlight-text-2"), _DRAG),
    **dict.fromkeys(("resize-textarea", "scroll-text-2", "daily-calendar"), _DRAG),
    **dict.fromkeys(("bisect-angle", "circle-center", "find-midpoint", "right-angle"), _POINT),
    **dict.fromkeys(("hot-cold",), _POINT),
    **dict.fromkeys(("count-sides", "visual-addition", "number-checkboxes"), _PICTURE),
    **dict.fromkeys(("click-menu-2", "use-colorwheel-2", "text-editor"), _PICTURE),
    **dict.fromkeys(("chase-circle", "moving-items", "simon-says", "stock-market"), _TIMED),
}


def _reset(env: MiniWob, page: str, seed: int) -> str:
    return env.reset(options={"task": Task(page, ID, {"page": page, "seed": seed})})[0]


def _expert_turns(env: MiniWob, page: str, seed: int) -> int | None:
    """Play the expert; None if it does not solve the task."""
    _reset(env, page, seed)
    plan = env.expert_plan() or []
    for turn, action in enumerate(plan, 1):
        _, reward, terminated, _, _ = env.step(action)
        if terminated:
            return turn if reward == 1.0 and turn == len(plan) else None
    return None


def survey(env: MiniWob, page: str) -> dict[str, Any]:
    """Return a page's entry of the table."""
    if page in LEFT_OUT or page.startswith("drag-"):
        return {"left_out": LEFT_OUT.get(page, _DRAG)}
    for seed in PROBED:
        first = _reset(env, page, seed)
        if first != _reset(env, page, seed):
            return {"left_out": "the same seed gives another page"}
        if first.count("\n[") < 2:
            return {"left_out": "shows no element to act on"}
    if page not in EXPERTS:
        return {"turns": {}}
    seeds = [i * SEEDS + n for i in range(len(SPLITS)) for n in range(SEEDS_MEASURED[i])]
    turns = {str(seed): _expert_turns(env, page, seed) for seed in seeds}
    failed = [seed for seed, number in turns.items() if number is None]
    if failed:
        print(f"the expert of {page} fails at seeds {failed}", flush=True)
        return {"left_out": f"its expert fails at seeds {', '.join(failed)}"}
    same = set(turns.values())
    return {"turns": same.pop() if len(same) == 1 else turns}


def main() -> None:
    found = dict(table())
    env = MiniWob(pages=["click-test"])
    for page in sys.argv[1:] or all_pages():
        found[page] = survey(env, page)
        print(page, found[page], flush=True)
        lines = (f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
        TABLE.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
    env.close()
    shutdown()


if __name__ == "__main__":
    main()
