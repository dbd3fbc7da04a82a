"""The tutorial works as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "your_own_environment.md").read_text(encoding="utf-8")


def block(language):
    return re.search(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)[1]


@pytest.fixture
def folder(tmp_path):
    """A folder with the tutorial's two files."""
    (tmp_path / "my_game.py").write_text(block("python"))
    (tmp_path / "high_low.yaml").write_text(block("yaml"))
    return tmp_path


def run(folder, *command):
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


CLI = ("-c", "import sys; from scalinginter.cli.main import main; sys.exit(main())")


def test_the_environment_is_forty_lines_of_code():
    code = block("python").split("class HighLow", 1)[1]
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 45


def test_the_environment_passes_every_check(folder):
    ended = run(folder, *CLI, "check-env", "my_game:HighLow")
    assert (ended.returncode, "FAIL" in ended.stdout) == (0, False), ended.stdout + ended.stderr


@pytest.mark.slow
def test_training_on_it_ends_with_a_run_to_evaluate(folder):
    options = ["--set", "train.num_steps=2", "track.mlflow=false"]
    ended = run(
        folder, str(ROOT / "train.py"), "--schedule", "high_low.yaml", "--output", "run", *options
    )
    assert (ended.returncode, "eval.py --checkpoint run" in ended.stdout) == (0, True), ended.stderr
