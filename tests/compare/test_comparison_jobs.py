"""Comparisons in real processes: order, skip, resume, refuse, failures and signals.

The job is a module of its own that writes a journal as training does and behaves as a file in the
working directory tells it. Each comparison runs in a process of its own, as at the command line.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import scalinginter
from scalinginter.compare.run import default_jobs
from scalinginter.config.schema import Recipe

JOB = """
import json, os, signal, time
from pathlib import Path
import imported_early
from scalinginter.errors import UserError
from scalinginter.track.journal import Journal
from scalinginter.track.run_folder import RunInfo, set_status, write_config, write_run_info

signals = []

def note(text):
    with open("order.txt", "a") as file:
        file.write(text + "\\n")

def train(config, run_dir, resume, quiet, command, comparison, arm):
    name = f"{arm}/seed{config['seed']}"
    how = json.loads(Path("how.json").read_text()).get(name, "finish")
    if how != "ignore":
        signal.signal(signal.SIGINT, lambda number, frame: signals.append(number))
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    write_run_info(run_dir, RunInfo(name, config["seed"], comparison, arm, command))
    write_config(run_dir, config)
    note(f"{name} {'continues' if resume else 'starts'} {os.getpid()} {imported_early.pid}")
    print("hello from", name)
    try:
        code = act(how, config, run_dir)
    except BaseException:
        set_status(run_dir, "failed")
        raise
    set_status(run_dir, {0: "finished", 130: "stopped"}[code])
    note(f"{name} ends {os.getpid()} signals={len(signals)}")
    return code

def act(how, config, run_dir):
    if how == "crash":
        # Half written: a checkpoint is renamed when it is whole.
        (run_dir / "checkpoints" / "step-000001.tmp").mkdir(parents=True, exist_ok=True)
        raise RuntimeError("the loss exploded")
    if how == "refuse":
        raise UserError("no such model")
    while how == "prepare":
        if signals:
            return 130
        time.sleep(0.02)
    (run_dir / "checkpoints" / "step-000001").mkdir(parents=True, exist_ok=True)
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    while how in ("wait", "ignore") and not signals:
        time.sleep(0.02)
    if signals:
        time.sleep(0.3)  # long enough for a second signal to be counted
        return 130
    with Journal(run_dir) as journal:
        for i in range(2):
            cost = {"cost/turns": 1000.0 * i, "cost/steps": float(i)}
            journal.log(i, "eval", {"eval/success": 0.1 + 0.4 * i} | cost)
    return 0
"""

DRIVER = """
import json, sys
from scalinginter.compare.run import run_comparison
from scalinginter.config.schema import Recipe
from scalinginter.errors import UserError

def main():
    spec = json.loads(sys.argv[1])
    arms = {arm: Recipe.model_validate(recipe) for arm, recipe in spec["arms"].items()}
    try:
        return run_comparison(
            arms, spec["seeds"], "cmp", jobs=spec["jobs"], command=("python", "train.py"),
            function="fake_job:train", preload=["imported_early"],
        )
    except UserError as error:
        print(f"error: {error}")
        return 2

if __name__ == "__main__":
    sys.exit(main())
"""


def recipe(turns: int, budget: int = 1000) -> dict[str, Any]:
    return {
        "environment": {"id": "toy_corridor"},
        "horizon": {"kind": "fixed", "turns": turns},
        "train": {"budget": {"turns": budget}},
        "eval": {"horizon": 20},
    }


TURNS = {"short": 5, "long": 20}
ARMS = {arm: recipe(turns) for arm, turns in TURNS.items()}
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a comparison; what is left of it is killed in the end."""
    (tmp_path / "fake_job.py").write_text(JOB)
    (tmp_path / "imported_early.py").write_text("import os\npid = os.getpid()\n")
    (tmp_path / "driver.py").write_text(DRIVER)
    started: list[subprocess.Popen[str]] = []

    def run(
        how: dict[str, str] | None = None,
        arms: dict[str, Any] = ARMS,
        seeds: tuple[int, ...] = (0, 1),
        jobs: int = 2,
    ) -> "subprocess.Popen[str]":
        (tmp_path / "how.json").write_text(json.dumps(how or {}))
        spec = json.dumps({"arms": arms, "seeds": seeds, "jobs": jobs})
        process = subprocess.Popen(
            [sys.executable, "driver.py", spec],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(scalinginter.__file__).parents[1])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
    for pid in {words[2] for words in order(tmp_path)}:
        # Before reading to the end: a job that is left holds the pipe. A number that was given to
        # another process since works in another folder.
        cwd = Path(f"/proc/{pid}/cwd")
        if cwd.exists() and cwd.resolve() == tmp_path.resolve():
            os.kill(int(pid), signal.SIGKILL)
    for process in started:
        process.communicate()


def order(folder: Path) -> list[list[str]]:
    path = folder / "order.txt"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def events(folder: Path, what: str) -> list[str]:
    return [words[0] for words in order(folder) if words[1] == what]


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    output, _ = process.communicate(timeout=150)
    return process.returncode, output


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def status(folder: Path, run: str) -> str:
    return json.loads((folder / "cmp" / run / "run.json").read_text())["status"]


def test_runs_interleave_seed_by_seed_and_leave_a_report(start: Start, tmp_path: Path) -> None:
    code, output = finish(start(jobs=1))
    assert code == 0, output
    assert events(tmp_path, "starts") == ["short/seed0", "long/seed0", "short/seed1", "long/seed1"]
    assert "tie on final success" in (tmp_path / "cmp" / "report.md").read_text()
    assert "hello from long/seed1" in (tmp_path / "cmp/long/seed1/output.log").read_text()
    # Every job is a fork of a process that has made the imports already.
    assert len({words[3] for words in order(tmp_path) if words[1] == "starts"}) == 1
    assert len({words[2] for words in order(tmp_path) if words[1] == "starts"}) == 4


def test_the_same_command_skips_finished_runs_and_another_recipe_is_refused(
    start: Start, tmp_path: Path
) -> None:
    finish(start(seeds=(0,)))
    changed = {"short": recipe(6), "long": recipe(20)}
    code, output = finish(start(arms=changed, seeds=(0, 1)))
    assert code == 2
    assert "cmp/short/seed0 holds a run with another recipe" in output
    assert "horizon.turns is 5 there, 6 now" in output
    assert len(events(tmp_path, "starts")) == 2  # nothing ran

    code, output = finish(start(seeds=(0, 1)))
    assert code == 0
    assert output.count("finished already") == 2
    assert sorted(events(tmp_path, "starts")[2:]) == ["long/seed1", "short/seed1"]


def test_failures_leave_the_others_alone_and_are_continued_by_the_same_command(
    start: Start, tmp_path: Path
) -> None:
    how = {"short/seed0": "crash", "long/seed0": "die", "short/seed1": "refuse"}
    code, output = finish(start(how))
    assert code == 1
    assert "short/seed0: FAILED (exit code 1): RuntimeError: the loss exploded" in output
    assert "long/seed0: FAILED (killed by signal 9)" in output
    assert "short/seed1: FAILED (exit code 2): error: no such model" in output
    assert events(tmp_path, "ends") == ["long/seed1"]
    report = (tmp_path / "cmp" / "report.md").read_text()
    assert "- `short/seed0`: failed" in report
    assert "- `long/seed0`: failed" in report

    code, output = finish(start())
    assert code == 0, output
    assert events(tmp_path, "continues") == ["long/seed0"]
    # The two that failed before their first checkpoint start over.
    assert sorted(events(tmp_path, "starts")[4:]) == ["short/seed0", "short/seed1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_terminal_reaches_each_running_job_once_and_starts_no_more(
    start: Start, tmp_path: Path, number: int
) -> None:
    process = start({f"{arm}/seed0": "wait" for arm in ARMS})
    wait_for(lambda: len(events(tmp_path, "starts")) == 2)
    os.killpg(process.pid, number)
    code, output = finish(process)
    assert code == 130, output
    ends = [words for words in order(tmp_path) if words[1] == "ends"]
    assert [words[3] for words in ends] == ["signals=1", "signals=1"]
    assert len(events(tmp_path, "starts")) == 2
    assert {status(tmp_path, f"{arm}/seed0") for arm in ARMS} == {"stopped"}


def test_a_ctrl_c_while_the_imports_are_made_is_not_lost(start: Start, tmp_path: Path) -> None:
    slow = "open('importing', 'w').close()\nimport os, time\ntime.sleep(1)\npid = os.getpid()\n"
    (tmp_path / "imported_early.py").write_text(slow)
    process = start({f"{arm}/seed0": "wait" for arm in ARMS})
    wait_for((tmp_path / "importing").exists)
    os.killpg(process.pid, signal.SIGINT)
    code, output = finish(process)
    assert code == 130
    assert "Traceback" not in output
    assert "go on from" not in output


def test_the_second_signal_kills(start: Start, tmp_path: Path) -> None:
    process = start({f"{arm}/seed0": "ignore" for arm in ARMS})
    wait_for(lambda: len(events(tmp_path, "starts")) == 2)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    assert {status(tmp_path, f"{arm}/seed0") for arm in ARMS} == {"stopped"}
    pids = [words[2] for words in order(tmp_path)]
    wait_for(lambda: not any(Path(f"/proc/{pid}/cwd").exists() for pid in pids))


def test_jobs_stop_when_the_process_that_wanted_them_is_killed(
    start: Start, tmp_path: Path
) -> None:
    process = start({f"{arm}/seed0": "wait" for arm in ARMS})
    wait_for(lambda: len(events(tmp_path, "starts")) == 2)
    process.kill()
    wait_for(lambda: len(events(tmp_path, "ends")) == 2)
    assert {status(tmp_path, f"{arm}/seed0") for arm in ARMS} == {"stopped"}


def test_a_report_that_cannot_be_written_stops_no_run_and_is_told_once(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "cmp" / "report.md").mkdir(parents=True)  # as a full disk does: an OSError
    code, output = finish(start())
    assert code == 1
    assert len(events(tmp_path, "ends")) == 4
    assert output.count("the report cannot be written: Is a directory; the runs go on") == 1
    assert "Later: scalinginter report cmp" in output


def test_a_second_comparison_in_a_folder_is_refused_while_the_first_one_runs(
    start: Start, tmp_path: Path
) -> None:
    first = start({f"{arm}/seed0": "wait" for arm in ARMS})
    wait_for(lambda: len(events(tmp_path, "starts")) == 2)
    code, output = finish(start(seeds=(1,)))
    assert code == 2
    assert "another comparison runs there" in output
    first.send_signal(signal.SIGINT)
    finish(first)
    assert finish(start())[0] == 0


def test_a_stopped_comparison_says_of_every_run_what_is_true(start: Start, tmp_path: Path) -> None:
    process = start({"short/seed0": "wait", "long/seed0": "prepare"})
    wait_for(lambda: len(events(tmp_path, "starts")) == 2)
    process.send_signal(signal.SIGINT)
    _, output = finish(process)
    assert "short/seed0: stopped; it will go on from its checkpoint at step 1" in output
    assert "long/seed0: stopped; it had saved nothing and will start over" in output
    assert "not started: short/seed1, long/seed1" in output


def test_a_larger_budget_continues_finished_runs(start: Start, tmp_path: Path) -> None:
    finish(start(seeds=(0,)))
    code, output = finish(start(arms={a: recipe(t, 2000) for a, t in TURNS.items()}, seeds=(0,)))
    assert code == 0, output
    assert sorted(events(tmp_path, "continues")) == ["long/seed0", "short/seed0"]
    assert "train.budget" not in output


def test_as_many_runs_as_cores_go_at_a_time_where_no_gpu_is_used() -> None:
    cpu = Recipe.model_validate(recipe(5) | {"model": {"device": "cpu"}})
    assert default_jobs([cpu]) == len(os.sched_getaffinity(0))
