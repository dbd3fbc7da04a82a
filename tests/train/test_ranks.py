"""How the processes of a run agree, and what ends them where they cannot."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from scalinginter.cli.main import main
from scalinginter.compare import jobs
from scalinginter.compare.jobs import Events, Job, run_jobs
from scalinginter.compare.run import PRELOAD
from scalinginter.errors import LostProcessError, UserError
from scalinginter.train.ranks import Ranks, world_size

ROOT = Path(__file__).parents[2]
PARTS = """
import time
from pathlib import Path

import torch

from scalinginter.errors import RunFailedError, UserError
from scalinginter.train.ranks import joined
from scalinginter.train.signals import Interrupted

CPU = torch.device("cpu")


def everything():
    with joined(CPU, 100.0) as ranks:
        assert ranks.gather(ranks.rank) == [0, 1]
        assert ranks.to_main("x") == (["x", "x"] if ranks.is_main else [])
        assert ranks.broadcast(10 + ranks.rank) == 10
        assert ranks.sum({"b": 2.0 ** 40, "a": float(ranks.rank)}) == {"a": 1.0, "b": 2.0 ** 41}
        assert ranks.agree(lambda: ranks.rank) == ranks.rank
        ranks.refuse_difference(3, "nothing")
        try:
            ranks.agree(lambda: stop_if(ranks.rank == 1))
        except Interrupted:
            return 0
    return 1


def stop_if(it_is_so):
    if it_is_so:
        raise Interrupted


def fail_on(rank, kind):
    with joined(CPU, 100.0) as ranks:
        def fail():
            if ranks.rank == rank:
                raise {"user": UserError, "run": RunFailedError}[kind]("the disk is made of cheese")
        ranks.agree(fail)


def differ():
    with joined(CPU, 100.0) as ranks:
        ranks.refuse_difference(ranks.rank, "the recipe")


def come_late():
    with joined(CPU, 1.0) as ranks:
        if ranks.rank == 1:
            time.sleep(600)
        ranks.barrier()
"""


@pytest.fixture
def together(tmp_path, monkeypatch):
    """Return a function that calls one of the above in two processes: exit code and output."""
    (tmp_path / "parts_of_a_run.py").write_text(PARTS)
    monkeypatch.syspath_prepend(tmp_path)

    def run(name, **arguments):
        codes = []
        events = Events(*[lambda *_: None] * 4)
        events = Events(events.started, lambda job, code: codes.append(code), *[events.tick] * 2)
        job = Job(name, arguments, tmp_path / "log", 2)
        run_jobs([job], f"parts_of_a_run:{name}", 1, PRELOAD, events)
        return codes[0], (tmp_path / "log").read_text()

    return run


def test_a_process_alone_agrees_with_itself():
    ranks = Ranks()
    assert ranks.gather(5) == [5] == ranks.to_main(5)
    assert ranks.sum({"a": 2.5}) == {"a": 2.5}
    assert ranks.agree(lambda: 7) == 7


def test_two_processes_tell_each_other_and_stop_together(together):
    assert together("everything")[0] == 0


@pytest.mark.parametrize(("kind", "code"), [("user", 2), ("run", 1)])
def test_what_one_process_raises_ends_both_and_is_told_once(together, kind, code):
    got, printed = together("fail_on", rank=1, kind=kind)
    assert got == code
    assert printed.count("error: the disk is made of cheese") == 1
    assert "Traceback" not in printed


def test_processes_that_disagree_are_refused(together):
    code, printed = together("differ")
    assert code == 1
    assert "disagree on the recipe: 0 in process 0, 1 in process 1" in printed


def test_pitfall_35_a_process_that_does_not_answer_is_waited_for_a_limited_time(
    together, monkeypatch
):
    monkeypatch.setattr(jobs, "GRACE_S", 2.0)
    code, printed = together("come_late")
    assert code == LostProcessError.exit_code, printed
    assert printed.count("error: process 0 of 2 waited 1 s (train.rank_timeout_s)") == 1


def test_a_launcher_that_started_another_number_is_refused(monkeypatch, toy_file, capsys):
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert main(["train", "--schedule", str(toy_file()), "--num-processes", "2"]) == 2
    assert "--num-processes 2, but a launcher has started 3" in capsys.readouterr().err


def test_accelerate_that_starts_one_process_instead_of_several_is_refused(monkeypatch):
    for name, value in {"ACCELERATE_MIXED_PRECISION": "no", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(UserError, match="has started one"):
        world_size()


@pytest.mark.parametrize("name", ["ddp", "ddp_two_machines", "fsdp2", "fsdp2_two_machines"])
def test_the_shipped_configuration_of_accelerate_starts_what_it_says(name):
    config = load_config_from_file(str(ROOT / "docs" / "cluster" / f"{name}.yaml"))
    assert str(config.distributed_type.value) == ("FSDP" if "fsdp" in name else "MULTI_GPU")
    assert config.num_processes == 8 * config.num_machines
    assert config.mixed_precision == "no"


def test_a_comparison_under_a_launcher_is_refused(monkeypatch, toy_file, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", "--schedule", str(toy_file()), "--seeds", "0,1"]) == 2
    assert "a comparison starts its runs itself" in capsys.readouterr().err


def stat(pid):
    """State and parent of a process; None where there is none."""
    try:
        state, parent = (
            (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[:2]
        )
    except OSError:
        return None
    return state, int(parent)


def processes_below(pid):
    """The ids of the processes that one started, and of those that they started."""
    entries = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    parents = {entry: found[1] for entry in entries if (found := stat(entry))}
    below = [pid]
    for above in below:
        below += [entry for entry, parent in parents.items() if parent == above]
    return below[1:]


def runs(pid):
    found = stat(pid)
    return found is not None and found[0] not in "ZX"


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "train.py"]


@pytest.mark.slow
@pytest.mark.parametrize("launch", [TORCHRUN, ["train.py", "--num-processes", "2"]])
def test_a_launcher_that_is_killed_leaves_no_process_behind(toy_file, tmp_path, launch):
    recipe = toy_file(train__num_steps=100_000, eval__every=None, checkpoint__every=None)
    journal = tmp_path / "run" / "metrics.jsonl"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *launch, "--schedule", recipe, "--output", journal.parent],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + 200
    try:
        while not journal.exists() or '"train"' not in journal.read_text():
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        left = processes_below(process.pid)
        assert len(left) >= 2
    finally:
        process.kill()
        process.wait()
    while any(map(runs, left)):
        assert time.monotonic() < deadline + 100
        time.sleep(0.05)
