"""The writer process: beside the training, never in its way."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scalinginter.track.journal import Journal, read_metrics
from scalinginter.track.mlflow_replay import read_state
from scalinginter.track.mlflow_writer import MlflowWriter, sync
from scalinginter.track.run_folder import set_status


def run_status(store: str, run_dir: Path) -> str:
    from mlflow import MlflowClient

    state = read_state(run_dir)
    return MlflowClient(store).get_run(state.run_id).info.status if state else "never sent"


def last_step(store: str, run_dir: Path) -> int:
    from mlflow import MlflowClient

    state = read_state(run_dir)
    history = MlflowClient(store).get_metric_history(state.run_id, "reward/mean") if state else []
    return max((point.step for point in history), default=0)


def wait_for(condition: Callable[[], Any], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


@contextlib.contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """Serve `answer` to every request, or accept and never answer."""
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):  # the listener is closed at the end
            while True:
                connection, _ = listener.accept()
                taken.append(connection)
                if answer is not None:
                    connection.recv(65536)
                    connection.sendall(answer)
                    connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
    for connection in taken:
        connection.close()


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    yield address


def test_a_comparison_is_followed_while_its_runs_appear(make_run, store, tmp_path) -> None:
    first = make_run("fixed", steps=2)
    writer = MlflowWriter([], store, tmp_path.name, 0, root=tmp_path / "cmp")
    writer.start()
    wait_for(lambda: read_state(first))
    second = make_run("scaled", steps=5)
    for run_dir in (first, second):
        set_status(run_dir, "finished")
    assert writer.finish(60)
    assert (last_step(store, first), last_step(store, second)) == (2, 5)
    assert "tags.comparison" in writer.where()


BAD = {
    "refuses": refusing,
    "never_answers": lambda: server(None),
    "answers_500": lambda: server(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"),
}


@pytest.mark.parametrize("kind", BAD)
def test_pitfall_41_a_bad_server_neither_slows_nor_kills_a_run_and_nothing_is_lost(
    kind: str, make_run, write_steps, store, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    run_dir = make_run(steps=1)
    with BAD[kind]() as address:
        writer = MlflowWriter([run_dir], address, tmp_path.name, 0)
        writer.start()
        wait_for(lambda: "trying again" in writer.log_path.read_text())
        start = time.monotonic()
        with Journal(run_dir) as journal:
            for step in range(2, 202):
                journal.log(step, "train", {"reward/mean": 1.0})
        logging_s = time.monotonic() - start
        set_status(run_dir, "finished")
        drained = writer.finish(0.5)
        whole_s = time.monotonic() - start
    assert (drained, logging_s < 1.0, whole_s < 4.0) == (False, True, True)
    assert len(read_metrics(run_dir, "train")) == 201
    assert str(run_dir) in writer.replay_command
    sync([run_dir], store, tmp_path.name, 0)
    assert last_step(store, run_dir) == 201


def test_a_server_that_never_answered_is_not_waited_for(make_run, tmp_path) -> None:
    run_dir = make_run(steps=1)
    with refusing() as address:
        writer = MlflowWriter([run_dir], address, tmp_path.name, 0)
        writer.start()
        wait_for(lambda: "trying again" in writer.log_path.read_text())
        set_status(run_dir, "finished")
        start = time.monotonic()
        drained = writer.finish(300)
    assert (drained, time.monotonic() - start < 60) == (False, True)
    assert writer.trouble() == f"{address} does not answer: Connection refused"


def test_a_wait_at_the_end_is_told(make_run, tmp_path) -> None:
    run_dir, told = make_run(steps=1), []
    with server(None) as address:
        writer = MlflowWriter([run_dir], address, tmp_path.name, 0)
        writer.start()
        writer.finish(2.5, on_wait=lambda: told.append(1))
    assert told == [1]
    assert writer.trouble().endswith("was not ready in time")


def test_pitfall_41_the_writer_catches_up_when_the_store_is_back(make_run, tmp_path, store) -> None:
    run_dir = make_run(steps=3)
    there, away = Path(store.removeprefix("sqlite:///")), tmp_path / "away"
    folder = tmp_path / "mounted"
    folder.write_text("a file where the folder should be: an outage")
    writer = MlflowWriter([run_dir], f"sqlite:///{folder}/mlflow.db", tmp_path.name, 0)
    writer.start()
    wait_for(lambda: "trying again" in writer.log_path.read_text())
    away.mkdir()
    (away / "mlflow.db").write_bytes(there.read_bytes())  # has its tables already
    folder.unlink()
    away.rename(folder)
    set_status(run_dir, "finished")
    assert writer.finish(60)
    assert last_step(writer.uri, run_dir) == 3


def test_when_the_trainer_is_killed_the_writer_sends_the_rest_marks_the_run_and_ends(
    make_run, store, tmp_path
) -> None:
    run_dir = make_run(steps=4)
    code = (
        "import sys, time\n"
        "from scalinginter.track.mlflow_writer import MlflowWriter\n"
        "writer = MlflowWriter([sys.argv[1]], sys.argv[2], sys.argv[3], 0)\n"
        "writer.start()\n"
        "print(writer._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    trainer = subprocess.Popen(
        [sys.executable, "-c", code, str(run_dir), store, tmp_path.name], stdout=subprocess.PIPE
    )
    assert trainer.stdout is not None
    with trainer.stdout as output:
        writer_pid = int(output.readline())
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.wait()
    wait_for(lambda: not Path(f"/proc/{writer_pid}/cmdline").exists() or is_zombie(writer_pid))
    assert (last_step(store, run_dir), run_status(store, run_dir)) == (4, "FAILED")


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes() == b""


def test_the_password_of_the_address_is_in_no_file_and_in_no_process_list(
    make_run, tmp_path
) -> None:
    run_dir = make_run(steps=1)
    with server(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n") as address:
        uri = address.replace("http://", "http://me:secret@")
        writer = MlflowWriter([run_dir], uri, tmp_path.name, 0)
        writer.start()
        assert writer._process is not None
        arguments = Path(f"/proc/{writer._process.pid}/cmdline").read_bytes()
        wait_for(lambda: "trying again" in writer.log_path.read_text())
        writer.finish(0.1)
    files = [path for path in run_dir.rglob("*") if path.is_file()]
    assert b"secret" not in arguments + b"".join(path.read_bytes() for path in files)
