"""What used to end in a traceback is one sentence: exit code 2, or 1 for a run that failed."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scalinginter.cli.main import main

ENVIRONMENTS = Path(__file__).parents[1] / "env"
MY_GAME = """
from scalinginter.env.toy import ToyCorridor

class MyGame(ToyCorridor):
    pass
"""


@pytest.fixture
def told(capsys, monkeypatch):
    """Return a function that runs a command, checks its exit code and returns its error."""
    monkeypatch.setattr(sys, "argv", ["train.py"])

    def run(*arguments, code=2):
        assert main([str(argument) for argument in arguments]) == code
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        return error

    return run


def train(told, path, tmp_path, *arguments, code=2):
    return told("train", "--schedule", path, "--output", tmp_path / "run", *arguments, code=code)


def test_betas_of_1_are_refused(told, toy_file, tmp_path):
    error = train(told, toy_file(train__betas=[1, 1]), tmp_path)
    assert "train.betas.0: input should be less than 1" in error


def test_cuda_without_cuda_says_so_and_leaves_no_folder(told, toy_file, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    error = train(told, toy_file(model__device="cuda"), tmp_path)
    assert "torch sees no CUDA device" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("? [a, b]\n: 1\n", "a key must be one word"), ("a: " + "[" * 3000, "nested too deeply")],
)
def test_strange_yaml_is_refused(told, tmp_path, text, sentence):
    (tmp_path / "strange.yaml").write_text(text)
    assert sentence in told("train", "--schedule", tmp_path / "strange.yaml")


def test_names_that_are_too_long_are_refused(told, toy_file, tmp_path):
    name = "x" * 300
    assert "File name too long" in told("train", "--schedule", toy_file(), "--output", name)
    assert "File name too long" in told("train", "--resume", name)
    assert "File name too long" in told("eval", "--checkpoint", name)


def test_a_constructor_that_raises_is_told_with_its_place(told, monkeypatch):
    monkeypatch.syspath_prepend(str(ENVIRONMENTS))
    error = told("check-env", "faulty_environments:BrokenConstructor")
    assert "cannot be built: OSError: no such data file (faulty_environments.py:" in error


def test_a_module_with_a_syntax_error_is_told_with_its_line(told, tmp_path, monkeypatch):
    (tmp_path / "spoilt_game.py").write_text("class MyGame(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    error = told("check-env", "spoilt_game:MyGame")
    assert "cannot be imported: SyntaxError" in error
    assert "spoilt_game.py, line 1" in error


@pytest.mark.parametrize("environment", ["my_game", "my game:MyGame", "my_game:", "my_game:No"])
def test_what_names_no_class_is_refused(told, toy_file, tmp_path, monkeypatch, environment):
    (tmp_path / "my_game.py").write_text(MY_GAME)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert environment in train(told, toy_file(environment__id=environment), tmp_path)


@pytest.mark.slow
def test_a_class_in_the_working_folder_is_checked_and_trained(command, toy_file, tmp_path):
    (tmp_path / "my_game.py").write_text(MY_GAME)
    console = "import sys; from scalinginter.cli.main import main; sys.exit(main())"
    words = [sys.executable, "-P", "-c", console, "check-env", "my_game:MyGame"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    path = toy_file(environment__id="my_game:MyGame")
    trained = command("train.py", "--schedule", path, "--output", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "MyGame: 32 training tasks; evaluates on 4 of 16 validation tasks" in trained.stdout
    assert "124,992 parameters" in trained.stdout or " parameters, vocabulary " in trained.stdout


def test_more_demonstrations_than_tasks_are_refused(told, toy_file, tmp_path):
    error = train(told, toy_file(sft={"num_demonstrations": 1_000_000}), tmp_path)
    assert "which has 32 training tasks" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", ["environment.num_workers", "rollout.num_tasks"])
def test_numbers_beyond_all_machines_are_refused(told, toy_file, setting):
    error = told("train", "--schedule", toy_file(), "--set", f"{setting}=1000000")
    assert f"{setting}: input should be less than or equal to" in error


@pytest.mark.slow
def test_a_budget_may_be_written_with_an_exponent_and_taken_away(toy_file, tmp_path):
    import yaml

    run_dir = tmp_path / "run"
    path = toy_file(train__budget={"steps": 9})
    arguments = ["--set", "train.budget=null", "--budget", "turns=1e1"]
    assert main(["train", "--schedule", str(path), "--output", str(run_dir), *arguments]) == 0
    budget = yaml.safe_load((run_dir / "config.yaml").read_text())["train"]["budget"]
    assert {unit: limit for unit, limit in budget.items() if limit} == {"turns": 10}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, toy_recipe):
    """A finished run of two steps in a folder whose name needs quotes."""
    from scalinginter.train.run import run_training

    folder = tmp_path_factory.mktemp("finished") / "a run"
    assert run_training(toy_recipe(), folder, quiet=True) == 0
    return folder


def test_printed_commands_are_quoted_and_name_the_program_that_was_started(
    told, toy_file, finished, monkeypatch
):
    arguments = ["train", "--schedule", toy_file(), "--output", finished]
    assert f"python train.py --resume {shlex.quote(str(finished))}" in told(*arguments)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/scalinginter", "train"])
    assert f"scalinginter train --resume {shlex.quote(str(finished))}" in told(*arguments)


def test_a_damaged_newest_checkpoint_is_named_with_the_step_that_goes_on(finished, capsys):
    weights = finished / "checkpoints" / "step-000002" / "learner.pt"
    whole = weights.read_bytes()
    weights.write_bytes(b"spoilt")
    resume = ["train", "--resume", str(finished), "--set", "train.num_steps=1"]
    assert main(resume) == 0
    note = "step 1; passed over step-000002: learner.pt is damaged"
    assert f"Continues from {note}" in capsys.readouterr().out
    assert main(["eval", "--checkpoint", str(finished), "--tasks", "2"]) == 0
    assert note in capsys.readouterr().out
    weights.write_bytes(whole)


@pytest.mark.parametrize("text", ["[]", '{"surprise": 1}', "{"])
def test_a_run_json_that_is_not_one_is_refused(told, finished, text):
    path = finished / "run.json"
    before = path.read_text()
    path.write_text(text)
    assert "run.json is not what a run wrote" in told("train", "--resume", finished)
    path.write_text(before)


@pytest.mark.parametrize(
    ("setting", "changes"),
    [
        ("train.learning_rate", ["train.learning_rate=1e20", "train.weight_decay=1e30"]),
        ("sft.learning_rate", ["sft.learning_rate=1e30", "sft.num_demonstrations=8"]),
    ],
)
def test_weights_that_blew_up_are_never_saved(told, toy_file, tmp_path, setting, changes):
    error = train(told, toy_file(), tmp_path, "--set", *changes, code=1)
    assert f"Start a new run with a lower {setting}" in error
    assert not list((tmp_path / "run").glob("checkpoints/*"))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("first", ["model", "learner"])  # safetensors and torch each have their way
def test_a_full_disk_keeps_the_last_checkpoint_and_is_told(toy_file, tmp_path, first):
    """A limit on the size of files stands for the disk: 400 KiB hold neither file."""
    run_dir = tmp_path / "run"
    path = toy_file(train__num_steps=1)
    assert main(["train", "--schedule", str(path), "--output", str(run_dir)]) == 0
    limit = {"model": 400, "learner": 700}[first]
    words = [sys.executable, "train.py", "--resume", str(run_dir), "--set", "train.num_steps=2"]
    script = f"ulimit -f {limit}; exec {shlex.join(words)}"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        ["bash", "-c", script], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "the checkpoint of step 2 could not be written" in done.stderr
    assert "the checkpoint of step 1 stands" in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in (run_dir / "checkpoints").iterdir()] == ["step-000001"]
    assert json.loads((run_dir / "run.json").read_text())["status"] == "failed"


@pytest.mark.slow
def test_a_context_that_cuts_most_episodes_is_warned_of(toy_file, tmp_path, capsys):
    path = toy_file(rollout__max_context=40, horizon={"kind": "fixed", "turns": 9})
    main(["train", "--schedule", str(path), "--output", str(tmp_path / "run")])
    assert "would not fit rollout.max_context" in capsys.readouterr().out


def test_every_evaluation_of_a_run_keeps_its_figures(finished):
    for horizon in ("2", "3,4"):
        words = ["eval", "--checkpoint", str(finished), "--tasks", "2", "--horizon", horizon]
        assert main(words) == 0
    kept = {path.name for path in (finished / "evaluations").iterdir()}
    assert {"step-000002-test-2.json", "step-000002-test-3-4.json"} <= kept
    newest = json.loads((finished / "evaluation.json").read_text())
    assert list(newest["by_horizon"]) == ["3", "4"]


def test_a_model_path_beside_a_checkpoint_is_refused(told, finished):
    error = told("eval", "--checkpoint", finished, "--set", "model.path=tiny:small")
    assert "--checkpoint names the model already" in error


def test_an_evaluation_where_every_episode_fails_says_why_and_warns_of_the_environment(
    finished, capsys
):
    from scalinginter.env.registry import make

    ids = [task.id for task in make("toy_faulty").tasks("test")]
    words = ["eval", "--checkpoint", str(finished), "--tasks", "2"]
    words += ["--set", "environment.id=toy_faulty", f"environment.params.raise_on={ids}"]
    assert main(words) == 1
    captured = capsys.readouterr()
    assert "trained in toy_corridor; this evaluates in toy_faulty" in captured.err
    assert "every episode failed" in captured.err
    assert "toy_faulty was asked to raise" in captured.err
    assert "success" not in captured.out
