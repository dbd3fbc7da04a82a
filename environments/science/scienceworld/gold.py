"""Gold paths: the simulator's own solutions, played, cut at their success, and kept on disk.

The simulator takes seconds to minutes to find one, so each is made once.
"""

import json
import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

FORMAT = 1  # of what is kept: raised when the same task would give another plan


def cache_folder() -> Path:
    """Return where plans are kept: `$SCALINGINTER_CACHE`, else `scalinginter` in
    `$XDG_CACHE_HOME` or `~/.cache`."""
    own = os.environ.get("SCALINGINTER_CACHE")
    common = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    base = Path(own) if own else Path(common) / "scalinginter"
    return base.expanduser() / "scienceworld" / f"{version('scienceworld')}-{FORMAT}"


def plan_file(name: str, variation: int, simplification: str) -> Path:
    """Return where the plan of a task is or will be."""
    return cache_folder() / (simplification or "none") / name / f"{variation}.json"


def has_plan(name: str, variation: int, simplification: str) -> bool:
    return plan_file(name, variation, simplification).exists()


def gold_plan(simulator: Any, name: str, variation: int, simplification: str) -> list[str] | None:
    """Return actions that solve a task from its start, or None if the gold path does not.

    Uses `simulator`, whatever it played before, for what is not in the cache.
    """
    path = plan_file(name, variation, simplification)
    if path.exists():
        return json.loads(path.read_text())
    simulator.load(name, variation, simplification, True)
    found = list(simulator.getGoldActionSequence())
    plan = _played(simulator, found, name, variation, simplification)
    _write_whole(path, json.dumps(plan))
    return plan


def _played(
    simulator: Any, actions: list[str], name: str, variation: int, simplification: str
) -> list[str] | None:
    """Play actions from the start; return those up to the success, or None without one."""
    simulator.load(name, variation, simplification, False)
    simulator.step("look around")
    for turn, action in enumerate(actions, start=1):
        simulator.step(action)
        if simulator.getCompleted():
            return actions[:turn] if simulator.getScore() >= 1 else None
    return None


def _write_whole(path: Path, text: str) -> None:
    """Write a file that others see only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=".")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(partial, path)
