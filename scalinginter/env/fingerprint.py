"""Plays episodes and sums them up in digests, so that two processes can compare what they saw.

python -m scalinginter.env.fingerprint < request.json > digests.json
"""

import hashlib
import importlib.util
import inspect
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalinginter.env import registry
from scalinginter.env.base import SPLITS, TextEnv
from scalinginter.types import Task

CHILD_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Moment:
    """One answer of an environment. The first of an episode is the reset's: no action, reward 0."""

    action: str | None
    observation: str
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    admissible: list[str] | None


def play(env: TextEnv, task: Task, *, seed: int, turns: int) -> list[Moment]:
    """Play an episode that goes forward and astray: half expert, half random actions.

    The choice of actions depends on `seed`, the task and what the environment offers.
    """
    choice = random.Random(f"{seed}/{task.id}")
    observation, _ = env.reset(seed=seed, options={"task": task, "horizon": turns})
    plan = list(env.expert_plan() or [])
    moments = [Moment(None, observation, 0.0, False, False, False, env.admissible_actions())]
    while len(moments) <= turns and not (moments[-1].terminated or moments[-1].truncated):
        if plan and choice.random() < 0.5:
            action = plan.pop(0)
        else:
            action = choice.choice(moments[-1].admissible or ["look", "help", "wait"])
        moments.append(act(env, action))
    return moments


def act(env: TextEnv, action: str) -> Moment:
    """Take one action and record the answer."""
    observation, reward, terminated, truncated, info = env.step(action)
    over = terminated or truncated
    success = bool(info.get("success", False))
    admissible = None if over else env.admissible_actions()
    return Moment(action, observation, reward, terminated, truncated, success, admissible)


def digest(value: Any) -> str:
    """Return a short hash of anything whose `repr` shows all of it."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def fingerprint(env: TextEnv, *, num_tasks: int, seed: int, turns: int) -> dict[str, str]:
    """Return digests: of the task list of each split, and of episodes of each split."""
    digests = {}
    for split in SPLITS:
        tasks = env.tasks(split)
        listed = [(t.id, json.dumps(t.data, sort_keys=True), t.required_turns) for t in tasks]
        digests[f"tasks of {split}"] = digest(listed)
        for task in spread(tasks, num_tasks):
            digests[f"episode of {task.id}"] = digest(play(env, task, seed=seed, turns=turns))
    return digests


def spread(tasks: Any, count: int) -> list[Task]:
    """Return up to `count` tasks from all over the list, in its order."""
    places = random.Random(0).sample(range(len(tasks)), min(count, len(tasks)))
    return [tasks[place] for place in sorted(places)]


def in_another_process(
    cls: type[TextEnv], params: Mapping[str, Any], *, hash_seed: int, **how: int
) -> dict[str, str]:
    """Return `fingerprint` as a fresh interpreter with `PYTHONHASHSEED=hash_seed` sees it.

    Raises `RuntimeError` with the end of its error output if that interpreter fails.
    """
    request = {
        "module": cls.__module__,
        "class": cls.__qualname__,
        "file": inspect.getsourcefile(cls),
        "path": sys.path,
        "params": dict(params),
        "how": how,
    }
    child = subprocess.run(
        [sys.executable, "-m", "scalinginter.env.fingerprint"],
        input=json.dumps(request),
        env={
            **os.environ,
            "PYTHONHASHSEED": str(hash_seed),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        },
        capture_output=True,
        text=True,
        timeout=CHILD_TIMEOUT_S,
    )
    if child.returncode:
        raise RuntimeError(f"a second process failed: {child.stderr.strip()[-500:]}")
    return json.loads(child.stdout.splitlines()[-1])


def _load(request: dict[str, Any]) -> type[TextEnv]:
    """Import the class by name, or from its file where its module has no importable name."""
    if importlib.util.find_spec(request["module"].partition(".")[0]) is None:
        name = Path(request["file"]).stem
        spec = importlib.util.spec_from_file_location(request["module"], request["file"])
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load {name} from {request['file']}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[request["module"]] = module
        spec.loader.exec_module(module)
    return registry.load_location(f"{request['module']}:{request['class']}", request["class"])


def main() -> None:
    """Answer one request on stdin."""
    request = json.loads(sys.stdin.read())
    cls = _load(request)
    env = registry.build(cls, request["class"], request["params"])
    print(json.dumps(fingerprint(env, **request["how"])))


if __name__ == "__main__":
    main()
