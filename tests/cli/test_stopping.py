"""Signals at any moment, readers that leave, folders without a checkpoint: a run ends in order."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalinginter.cli.main import main
from scalinginter.track.run_folder import RunInfo, write_run_info

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
ENDLESS = {"train__num_steps": 100_000, "eval__every": None, "checkpoint__every": None}


def status(run_dir):
    return json.loads((run_dir / "run.json").read_text())["status"]


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lines(run_dir, stage):
    path = run_dir / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return text.count(f'"stage": "{stage}"')


@pytest.fixture
def long_cold_start(toy_file):
    """A recipe whose cold start takes minutes."""
    return toy_file(sft={"num_demonstrations": 32, "num_epochs": 100_000, "batch_size": 4})


def stop_in_cold_start(start, recipe, run_dir):
    process = start("train.py", "--schedule", recipe, "--output", run_dir)
    wait_for(lambda: lines(run_dir, "sft") > 2, process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def test_a_signal_in_the_cold_start_is_told_and_stops_it(start, long_cold_start, tmp_path):
    code, output = stop_in_cold_start(start, long_cold_start, tmp_path / "run")
    assert code == 130
    assert "stopping…" in output
    assert f"python train.py --resume {tmp_path / 'run'}" in output
    assert "Stopped before anything was to save" in output
    assert status(tmp_path / "run") == "stopped"


def test_a_run_without_a_checkpoint_is_resumed_from_its_beginning(
    start, command, long_cold_start, tmp_path, numbers
):
    run_dir = tmp_path / "run"
    stop_in_cold_start(start, long_cold_start, run_dir)
    config = run_dir / "config.yaml"  # so that the continued cold start has an end
    config.write_text(config.read_text().replace("num_epochs: 100000", "num_epochs: 1"))
    resumed = command("train.py", "--resume", run_dir)
    assert resumed.returncode == 0, resumed.stderr
    assert "holds no checkpoint yet: the run starts over" in resumed.stdout
    whole = tmp_path / "whole"
    assert command("train.py", "--schedule", config, "--output", whole).returncode == 0
    assert numbers(run_dir) == numbers(whole)


def test_ctrl_c_while_the_environment_lists_its_tasks_stops_at_once(start, toy_file, tmp_path):
    (tmp_path / "entered").mkdir()
    params = {"hang_on": ["train/l1/000000"], "at_turn": 0, "once_in": str(tmp_path / "entered")}
    path = toy_file(environment={"id": "toy_faulty", "params": params})
    process = start("train.py", "--schedule", path, "--output", tmp_path / "run")
    wait_for(lambda: any((tmp_path / "entered").iterdir()), process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nothing was written" in output
    assert not (tmp_path / "run").exists()


def test_ctrl_c_twice_is_recorded_and_says_that_nothing_was_saved(start, toy_file, tmp_path):
    run_dir = tmp_path / "run"
    # One endless step: the first Ctrl-C has to wait for the update, the second does not wait.
    path = toy_file(**ENDLESS, train__num_epochs=100_000)
    process = start("train.py", "--schedule", path, "--output", run_dir)
    wait_for(lambda: lines(run_dir, "eval"), process)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert "Stopped at once; no checkpoint was saved." in output
    assert status(run_dir) == "stopped"


@pytest.mark.parametrize("module", ["argparse", "yaml"])  # before and after `main` is called
def test_ctrl_c_during_the_imports_gives_no_traceback(command, toy_file, tmp_path, module):
    ctrl_c = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
    (tmp_path / f"{module}.py").write_text(ctrl_c)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = command("train.py", "--schedule", toy_file(), env={"PYTHONPATH": path})
    assert done.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_does_not_end_the_training(toy_file, tmp_path):
    run_dir = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, ROOT / "train.py", "--schedule", toy_file(), "--output", run_dir],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read().decode()
    assert process.returncode == 0, error
    assert error == ""
    assert status(run_dir) == "finished"


def test_a_terminal_without_unicode_gets_the_same_lines(command, toy_file, tmp_path):
    name = "é…"
    path = toy_file(name=name)
    arguments = ["train.py", "--schedule", path, "--output", tmp_path / name]
    done = command(*arguments, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0, done.stderr
    assert "toy_corridor \\xe9\\u2026 seed 0  step 1" in done.stdout
    assert (tmp_path / name / "config.yaml").read_text(encoding="utf-8").startswith(f"name: {name}")


def test_a_folder_whose_run_never_got_anywhere_can_be_used_again(toy_file, tmp_path):
    run_dir = tmp_path / "run"
    write_run_info(run_dir, RunInfo("killed before its first figures"))
    assert main(["train", "--schedule", str(toy_file()), "--output", str(run_dir)]) == 0
