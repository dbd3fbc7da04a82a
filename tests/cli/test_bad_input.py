"""Bad input gets one clear error and exit code 2; nothing is lost and nothing is left behind."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml

from scalinginter.cli.main import main

HEAVY = {"torch", "transformers", "mlflow", "gymnasium", "accelerate"}


@pytest.fixture
def refusal(capsys, monkeypatch):
    """Return a function that runs a command and returns its one error, checked to be one."""
    monkeypatch.setattr(sys, "argv", ["train.py"])

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert code == 2
        assert captured.err.startswith("error: ")
        assert "Traceback" not in captured.err
        return captured.err

    return run


def test_no_schedule_says_what_to_name(refusal):
    assert "name a recipe" in refusal("train")


def test_a_missing_file_is_named(refusal):
    assert "--schedule no/such.yaml: no such file" in refusal("train", "--schedule", "no/such.yaml")


def test_a_folder_as_schedule_lists_its_recipes(refusal):
    assert "fixed_long.yaml" in refusal("train", "--schedule", "schedules/quickstart")


def test_an_unknown_key_is_refused_before_anything_is_made(refusal, toy_file, tmp_path):
    error = refusal(
        "train", "--schedule", toy_file(), "--set", "trian.num_steps=1", "--output", tmp_path / "x"
    )
    assert "did you mean 'train'?" in error
    assert not (tmp_path / "x").exists()


def test_a_wrong_type_is_told_with_what_was_got(refusal, toy_file):
    error = refusal("train", "--schedule", toy_file(), "--set", "train.num_steps=many")
    assert "train.num_steps" in error
    assert "'many'" in error


def test_horizon_0_is_refused(refusal, toy_file):
    path = toy_file(horizon={"kind": "fixed", "turns": 0})
    assert "horizon.turns" in refusal("train", "--schedule", path)


def test_a_schedule_that_shrinks_by_mistake_is_refused(refusal, toy_file):
    path = toy_file(horizon={"kind": "staged", "stages": [9, 4], "every": 1})
    assert "shrinks the horizon" in refusal("train", "--schedule", path)


def test_an_unknown_environment_names_the_nearest(refusal, toy_file):
    path = toy_file(environment__id="toy_coridor")
    assert "did you mean 'toy_corridor'?" in refusal("train", "--schedule", path)


def test_an_unknown_environment_parameter_names_the_nearest(refusal, toy_file, tmp_path):
    path = toy_file(environment__params={"max_lenth": 2})
    error = refusal("train", "--schedule", path, "--output", tmp_path / "x")
    assert "did you mean 'max_length'?" in error


def test_an_unknown_model_preset_names_the_nearest(refusal, toy_file, tmp_path):
    path = toy_file(model__path="tiny:smal")
    error = refusal("train", "--schedule", path, "--output", tmp_path / "x")
    assert "did you mean" in error


def test_an_output_that_cannot_be_made_is_refused(refusal, toy_file, tmp_path):
    (tmp_path / "file").write_text("")
    error = refusal("train", "--schedule", toy_file(), "--output", tmp_path / "file" / "x")
    assert "choose another folder" in error


@pytest.mark.parametrize("seeds", ["0", "0,1"])
def test_an_output_that_the_system_refuses_to_make_is_refused(refusal, toy_file, seeds):
    """For the super-user, too, whom permissions do not stop: /proc holds no folders of users."""
    error = refusal("train", "--schedule", toy_file(), "--seeds", seeds, "--output", "/proc/x")
    assert "/proc/x: " in error
    assert "choose another folder" in error


def test_an_output_that_holds_a_run_names_the_resume_command(refusal, toy_file, tmp_path):
    (tmp_path / "x" / "checkpoints" / "step-000001").mkdir(parents=True)
    (tmp_path / "x" / "run.json").write_text("{}")
    error = refusal("train", "--schedule", toy_file(), "--output", tmp_path / "x")
    assert f"--resume {tmp_path / 'x'}" in error


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--budget", "turn=5"], "did you mean 'turns'?"),
        (["--budget", "turns=0"], "train.budget.turns"),
        (["--budget", "turns="], "must be unit=amount"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--resume", "nowhere", "--seeds", "1,2"], "leave --seeds away"),
    ],
)
def test_a_wrong_option_is_told(refusal, toy_file, arguments, sentence):
    schedule = [] if "--resume" in arguments else ["--schedule", toy_file()]
    assert sentence in refusal("train", *schedule, *arguments)


@pytest.mark.parametrize("seeds", ["1,x", "1,1", "-1", ""])
def test_wrong_seeds_are_refused_by_the_parser(seeds, toy_file):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--schedule", str(toy_file()), f"--seeds={seeds}"])


def test_two_schedules_with_one_name_are_refused(refusal, toy_file, tmp_path):
    first, second = toy_file("a.yaml", name="same"), toy_file("b.yaml", name="same")
    error = refusal("train", "--schedule", first, second, "--output", tmp_path / "x")
    assert "two schedules are named 'same'" in error


def test_a_resume_of_nothing_is_refused(refusal, tmp_path):
    assert "there is no such folder" in refusal("train", "--resume", tmp_path / "none")


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory, toy_recipe):
    """A run of two steps, copied by the tests that spoil it."""
    from scalinginter.train.run import run_training

    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run_training(toy_recipe(), folder, quiet=True) == 0
    return folder


@pytest.fixture
def run_copy(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")


def test_a_resume_with_another_config_says_what_would_change(refusal, run_copy):
    error = refusal("train", "--resume", run_copy, "--set", "train.learning_rate=1")
    assert "train.learning_rate: 0.003 -> 1" in error


def test_a_resume_with_only_damaged_checkpoints_says_which_file(refusal, run_copy):
    for folder in (run_copy / "checkpoints").iterdir():
        (folder / "learner.pt").write_bytes(b"spoilt")
    assert "learner.pt is damaged" in refusal("train", "--resume", run_copy)


def test_an_evaluation_of_a_damaged_checkpoint_is_refused(refusal, run_copy):
    folder = run_copy / "checkpoints" / "step-000002"
    (folder / "policy" / "config.json").write_text("{}")
    assert "is damaged" in refusal("eval", "--checkpoint", folder)


def test_an_output_of_an_evaluation_that_cannot_be_written_is_refused_first(refusal, run_copy):
    output = run_copy / "no" / "such" / "file.json"
    error = refusal("eval", "--checkpoint", run_copy, "--output", output)
    assert "cannot be written" in error


def test_figures_that_cannot_be_written_are_still_printed(run_copy, capsys):
    words = ["eval", "--checkpoint", str(run_copy), "--tasks", "2", "--output", "/dev/full"]
    assert main(words) == 1
    captured = capsys.readouterr()
    assert "reward" in captured.out
    assert captured.err.startswith("error: the figures above could not be written to /dev/full")


@pytest.mark.parametrize("command_name", ["check-env", "describe-env"])
def test_environments_are_not_checked_or_measured_on_no_task(refusal, command_name):
    error = refusal(command_name, "toy_corridor", "--num-tasks", "0")
    assert "--num-tasks must be at least 1, got 0" in error


def test_an_evaluation_of_nothing_is_refused(refusal, tmp_path):
    assert "is neither a run" in refusal("eval", "--checkpoint", tmp_path)


def test_a_journal_of_another_run_is_refused(refusal, run_copy):
    (run_copy / "metrics.jsonl").write_text("")
    assert "metrics.jsonl holds 0 bytes" in refusal("train", "--resume", run_copy)


def test_a_refused_resume_leaves_the_run_as_it_was(refusal, run_copy):
    before = (run_copy / "config.yaml").read_text()
    refusal("train", "--resume", run_copy, "--set", "seed=3")
    assert (run_copy / "config.yaml").read_text() == before


def test_two_trainers_in_one_folder_are_refused(refusal, run_copy):
    code = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX)"
    code += "; print('locked', flush=True); time.sleep(60)"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(run_copy / ".lock")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "locked\n"
        assert "another process trains there" in refusal("train", "--resume", run_copy)
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.parametrize("arguments", [["train", "--help"], ["eval", "--help"], ["--help"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys\n"
        "from scalinginter.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        f"heavy = {HEAVY} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert "HEAVY []" in done.stdout


def test_a_config_error_imports_nothing_heavy(toy_file):
    code = (
        "import sys\n"
        "from scalinginter.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        f"heavy = {HEAVY} & set(sys.modules)\n"
        "print(code, 'HEAVY', sorted(heavy))"
    )
    arguments = ["train", "--schedule", str(toy_file()), "--set", "a=1"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert "2 HEAVY []" in done.stdout


def test_an_evaluation_writes_its_figures_into_the_run(run_copy, capsys):
    assert main(["eval", "--checkpoint", str(run_copy), "--horizon", "1,4", "--tasks", "4"]) == 0
    figures = json.loads((run_copy / "evaluation.json").read_text())
    assert list(figures["by_horizon"]) == ["1", "4"]


def test_a_context_that_is_too_small_for_the_prompt_ends_the_run(toy_file, tmp_path, capsys):
    path = toy_file(rollout__max_context=10)
    assert main(["train", "--schedule", str(path), "--output", str(tmp_path / "x")]) == 1
    assert "raise rollout.max_context" in capsys.readouterr().err


def test_a_run_without_a_single_episode_ends_with_what_went_wrong(toy_file, tmp_path, capsys):
    from scalinginter.env.registry import make

    ids = [task.id for task in make("toy_faulty").tasks("train")]
    path = toy_file(environment={"id": "toy_faulty", "params": {"bad_reward_on": ids}})
    code = main(["train", "--schedule", str(path), "--output", str(tmp_path / "x")])
    error = capsys.readouterr().err
    assert code == 1
    assert "every episode of step 1 failed" in error
    assert "a reward must be finite, got nan" in error
    assert json.loads((tmp_path / "x" / "run.json").read_text())["status"] == "failed"


def test_a_resume_with_another_end_is_refused_where_the_horizons_follow_it(refusal, run_copy):
    config = run_copy / "config.yaml"
    staged = {"kind": "staged", "stages": [1, 2], "at_fraction": [0.0, 0.5]}
    data = yaml.safe_load(config.read_text()) | {"horizon": staged}
    config.write_text(yaml.safe_dump(data))
    error = refusal("train", "--resume", run_copy, "--set", "train.num_steps=50")
    assert "horizon.at_fraction places its horizons by the share" in error


def test_a_device_as_schedule_is_no_missing_file(refusal):
    assert "it is a device or a pipe" in refusal("train", "--schedule", "/dev/null")


def test_a_missing_recipe_of_prepare_env_is_told_without_schedule(refusal):
    assert refusal("prepare-env", "nope").startswith("error: prepare-env nope: no such file")


def test_a_learning_rate_that_fp32_cannot_hold_is_refused(refusal, toy_file):
    path = toy_file()
    assert "learning_rate" in refusal(
        "train", "--schedule", path, "--set", "train.learning_rate=1e39"
    )
