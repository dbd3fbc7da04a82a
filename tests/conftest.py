"""What several test folders use: a recipe that trains in seconds, and the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import settings

ROOT = Path(__file__).parent.parent

# How long an example takes says nothing on a busy machine.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def toy_data(**changes):
    """A recipe as data: a corridor, a tiny model, two steps. `changes` are dotted with `__`."""
    data = {
        "name": "toy",
        "environment": {"id": "toy_corridor"},
        "horizon": {"kind": "staged", "stages": [2, 4], "every": 1},
        "model": {"path": "tiny:nano"},
        "chat": {"constrain_to_admissible": True},
        "rollout": {
            "num_tasks": 4,
            "group_size": 4,
            "max_tokens_per_turn": 8,
            "max_context": 256,
        },
        "train": {"num_steps": 2, "learning_rate": 0.003},
        "eval": {"horizon": 4, "every": 2, "num_tasks": 4},
        "checkpoint": {"every": 1, "keep": 10},
        "track": {"mlflow": False},
    }
    for path, value in changes.items():
        node = data
        *parents, last = path.split("__")
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = value
    return data


@pytest.fixture(scope="session")
def toy_recipe():
    """Return the function that gives the toy recipe as data."""
    return toy_data


@pytest.fixture
def toy_file(tmp_path):
    """Return a function that writes the toy recipe and returns its path."""

    def write(file="toy.yaml", **changes):
        path = tmp_path / file
        path.write_text(yaml.safe_dump(toy_data(**({"name": path.stem} | changes))))
        return path

    return write


@pytest.fixture
def command():
    """Return a function that runs a script of the repository as a user does."""

    def run(script, *arguments, cwd=None, env=None, timeout=240):
        return subprocess.run(
            [sys.executable, str(ROOT / script), *map(str, arguments)],
            cwd=cwd or ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | (env or {}),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def start():
    """Return a function that starts a script and returns the process; it is killed at the end."""
    processes = []

    def run(script, *arguments, env=None):
        process = subprocess.Popen(
            [sys.executable, str(ROOT / script), *map(str, arguments)],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def numbers():
    """Return a function that reads a run's metrics without what depends on the clock."""

    def read(run_dir):
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        return [
            (
                line["step"],
                line["stage"],
                {
                    name: value
                    for name, value in line["metrics"].items()
                    if not name.startswith("time/") and name != "cost/seconds"
                },
            )
            for line in lines
        ]

    return read


@pytest.fixture(scope="session")
def compiler():
    """Skip where torch.compile has no compiler that works."""
    import torch

    from scalinginter.errors import UserError
    from scalinginter.model.compiled import refuse_without_compiler

    try:
        refuse_without_compiler(torch.device("cpu"))
    except UserError as error:
        pytest.skip(str(error))
