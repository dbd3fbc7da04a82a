"""`scalinginter serve-env`: what it refuses, and that it says where it listens."""

import socket
import sys

import pytest

from scalinginter.cli.main import main


@pytest.fixture
def refusal(capsys, monkeypatch):
    """Return a function that runs the command and returns its one error."""
    monkeypatch.setattr(sys, "argv", ["scalinginter"])
    monkeypatch.delenv("SCALINGINTER_ENV_TOKEN", raising=False)

    def run(*arguments):
        code = main(["serve-env", *map(str, arguments)])
        captured = capsys.readouterr()
        assert (code, captured.err.startswith("error: ")) == (2, True), captured.err
        return captured.err

    return run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["textcarft"], "did you mean 'textcraft'"),
        (["textcraft", "--param", "bagg=3"], "did you mean 'bag'"),
        (["textcraft", "--param", "bag=0"], "bag must be a whole number"),
        (["textcraft", "--param", "bag"], "must look like key=value"),
        (["no.such.module:Env"], "cannot be imported"),
        (["toy_corridor", "--host", "0.0.0.0"], "set SCALINGINTER_ENV_TOKEN, or pass --no-token"),
        (["toy_corridor", "--max-sessions", 0], "--max-sessions must be at least 1, got 0"),
        (["toy_corridor", "--max-body-bytes", 10], "--max-body-bytes must be at least 256"),
        (["toy_corridor", "--lease-s", 0], "--lease-s must be above 0 seconds"),
        (["toy_corridor", "--turn-timeout-s", "nan"], "--turn-timeout-s must be above 0 seconds"),
        (["toy_corridor", "--port", -1], "--port must be at least 0"),
        (["toy_corridor", "--port", 70000], "--port must be at most 65535"),
        (["toy_corridor", "--port-file", "/no/such/folder/port"], "there is no such folder"),
        (["toy_corridor", "--format", "agentgym", "--flavour", "baby"], "did you mean 'babyai'"),
        (["toy_corridor", "--host", "no.such.host.invalid", "--no-token"], "cannot listen on"),
        (["remote"], "needs the parameter 'url'"),
    ],
)
def test_bad_input_gets_one_clear_error(refusal, arguments, sentence):
    assert sentence in refusal(*arguments)


def test_a_port_that_is_taken_is_told(refusal):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refusal("toy_corridor", "--port", port)
    assert f"cannot listen on 127.0.0.1:{port}" in error


def test_it_says_what_it_serves_and_where_and_removes_its_port_file(start_server, tmp_path):
    server = start_server("toy_corridor")
    assert list(tmp_path.glob("port-*"))
    server.process.terminate()
    out, _ = server.process.communicate(timeout=90)
    first = f"Serving toy_corridor (32 train, 16 validation, 16 test tasks) at {server.url}\n"
    assert out.startswith(first)
    assert not list(tmp_path.glob("port-*"))


def test_an_environment_of_a_server_can_be_served_again(start_server):
    first = start_server("toy_corridor")
    second = start_server("remote", "--param", f"url={first.websocket_url}")
    opened = second.open("train/l2/000001")
    path = f"/sessions/{opened['session']}/step"
    answers = [second.request("POST", path, {"action": "right"})[1] for _ in range(2)]
    assert [answer["reward"] for answer in answers] == [0.0, 1.0]


def test_the_corpus_and_pages_of_tasks_come_over_the_wire(start_server):
    server = start_server("toy_forced", "--param", "num_tasks=4500")
    pages = [server.request("GET", f"/tasks?split=train&start={n}")[1] for n in (0, 2000, 4000)]
    assert [len(page["tasks"]) for page in pages] == [2000, 2000, 500]
    assert {page["total"] for page in pages} == {4500}
    assert server.request("GET", "/corpus")[1]["texts"]
