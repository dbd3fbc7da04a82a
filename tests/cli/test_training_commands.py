"""Training through the command line, as a user does it."""

import json
import os
import signal
import time

import pytest
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = pytest.mark.slow


def weights(run_dir, step):
    return load_file(run_dir / "checkpoints" / f"step-{step:06d}" / "policy" / "model.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all((a[name] == b[name]).all() for name in a)


def wait_for_step(process, run_dir, step):
    """Wait until a checkpoint of that step is there."""
    deadline = time.monotonic() + 120
    while not (run_dir / "checkpoints" / f"step-{step:06d}").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_trains_evaluates_and_says_what_to_do_next(command, toy_file, tmp_path):
    run_dir = tmp_path / "run"
    done = command("train.py", "--schedule", toy_file(), "--output", run_dir)
    assert done.returncode == 0, done.stderr
    assert f"python eval.py --checkpoint {run_dir}" in done.stdout
    assert json.loads((run_dir / "run.json").read_text())["status"] == "finished"


def test_the_exported_policy_loads_with_auto_classes(command, toy_file, tmp_path):
    run_dir = tmp_path / "run"
    command("train.py", "--schedule", toy_file(), "--output", run_dir)
    folder = run_dir / "checkpoints" / "step-000002" / "policy"
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "2 to go"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")
    assert model(ids["input_ids"]).logits.shape[-1] == len(tokenizer)


def test_ctrl_c_saves_and_names_the_resume_command(start, command, toy_file, tmp_path):
    run_dir = tmp_path / "run"
    path = toy_file(train__num_steps=100_000, eval__every=None)
    process = start("train.py", "--schedule", path, "--output", run_dir)
    wait_for_step(process, run_dir, 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"python train.py --resume {run_dir}" in output
    assert json.loads((run_dir / "run.json").read_text())["status"] == "stopped"


def test_ctrl_c_twice_ends_at_once_with_one_sentence(start, toy_file, tmp_path):
    run_dir = tmp_path / "run"
    # One endless step: the first Ctrl-C has to wait for the update, the second does not wait.
    path = toy_file(train__num_steps=100_000, train__num_epochs=100_000, eval__every=None)
    process = start("train.py", "--schedule", path, "--output", run_dir)
    deadline = time.monotonic() + 120
    while not (run_dir / "metrics.jsonl").exists() or not (run_dir / "metrics.jsonl").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert "Stopped at once; no checkpoint was saved." in output
    assert "Traceback" not in output


@pytest.mark.parametrize("step", [1, 3])
def test_pitfall_36_and_37_a_killed_run_goes_on_as_if_nothing_had_happened(
    start, command, toy_file, tmp_path, numbers, step
):
    path = toy_file(train__num_steps=5)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert command("train.py", "--schedule", path, "--output", whole).returncode == 0
    process = start("train.py", "--schedule", path, "--output", killed)
    wait_for_step(process, killed, step)
    process.kill()
    process.wait()
    resumed = command("train.py", "--resume", killed)
    assert resumed.returncode == 0, resumed.stderr
    assert same(weights(whole, 5), weights(killed, 5))
    assert numbers(whole) == numbers(killed)


def test_a_comparison_writes_one_report_and_can_be_repeated(command, toy_file, tmp_path):
    short = toy_file("short.yaml", horizon={"kind": "fixed", "turns": 2})
    scaled = toy_file("scaled.yaml")
    root = tmp_path / "compared"
    arguments = ["train.py", "--schedule", short, scaled, "--seeds", "0,1", "--output", root]
    first = command(*arguments, "--budget", "turns=60")
    assert first.returncode == 0, first.stdout + first.stderr
    report = (root / "report.md").read_text()
    assert "short" in report
    assert "differ in the horizon block" in report
    again = command(*arguments, "--budget", "turns=60")
    assert again.returncode == 0
    assert "skip" in (again.stdout + again.stderr).lower() or "finished" in again.stdout


def test_mlflow_gets_the_run_with_its_metrics(command, toy_file, tmp_path):
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    path = toy_file(track={"mlflow": True, "uri": uri, "experiment": "toy"})
    done = command("train.py", "--schedule", path, "--output", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("toy")
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["horizon/max_turns"] == 4.0
    assert run.data.params["train.num_steps"] == "2"


def test_pitfall_41_a_tracking_server_that_is_down_changes_nothing(command, toy_file, tmp_path):
    path = toy_file(track={"mlflow": True, "uri": "http://127.0.0.1:9"})
    done = command("train.py", "--schedule", path, "--output", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "scalinginter mlflow-sync" in done.stdout
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["stage"] for line in lines].count("train") == 2


def test_a_training_run_learns_the_corridor(command, toy_file, tmp_path):
    path = toy_file(
        train__num_steps=30,
        rollout__num_tasks=8,
        rollout__group_size=8,
        horizon={"kind": "fixed", "turns": 4},
        eval={"horizon": 4, "num_tasks": 16, "samples_per_task": 4},
    )
    run_dir = tmp_path / "run"
    done = command("train.py", "--schedule", path, "--output", run_dir)
    assert done.returncode == 0, done.stderr
    evaluations = [
        json.loads(line)["metrics"]["eval/success"]
        for line in (run_dir / "metrics.jsonl").read_text().splitlines()
        if json.loads(line)["stage"] == "eval"
    ]
    assert evaluations[0] < 0.8
    assert evaluations[-1] > 0.95


def test_no_process_is_left_behind(command, toy_file, tmp_path):
    mark = f"SCALINGINTER_TEST_{os.getpid()}"
    path = toy_file(environment__id="toy_faulty", environment__num_workers=2)
    done = command("train.py", "--schedule", path, "--output", tmp_path / "run", env={mark: "1"})
    assert done.returncode == 0, done.stderr
    left = []
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            try:
                with open(f"/proc/{folder}/environ", "rb") as file:
                    left += [folder] if mark.encode() in file.read() else []
            except OSError:
                continue  # ended meanwhile, or not ours
    assert left == []
