"""The sandbox: results, limits, sessions, and a SandboxFusion server that speaks its protocol."""

import base64
import dataclasses
import json
import os
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.code.sandbox import Limits, Result, make_sandbox
from environments.code.sandbox.levels import find_plan
from environments.code.sandbox.process import Folder
from scalinginter.errors import EnvironmentFailure, UserError

FAST = Limits(cpu_s=2, wall_s=3.0, output_bytes=2000, disk_mb=4, file_mb=2)


@pytest.fixture(scope="module")
def sandbox():
    """The strongest sandbox of this machine."""
    return make_sandbox(FAST)


@pytest.fixture
def session(sandbox):
    """An interpreter that keeps its state."""
    opened = sandbox.session()
    yield opened
    opened.close()


# --- one-shot runs ----------------------------------------------------------------------------


def test_a_program_prints_and_ends_well(sandbox):
    assert sandbox.run_python("print(6 * 7)") == Result("ok", "42\n", 0)


def test_files_lie_beside_the_program(sandbox):
    result = sandbox.run_python("print(open('a/b.txt').read())", {"a/b.txt": "here"})
    assert result.output == "here\n"


def test_an_exception_is_an_error_with_its_text(sandbox):
    result = sandbox.run_python("1 / 0")
    assert (result.status, "ZeroDivisionError" in result.output) == ("error", True)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("while True: pass", "time"),
        ("import time; time.sleep(60)", "time"),
        ("while True: print('x' * 100)", "output"),
        ("for n in range(99): open(str(n), 'wb').write(b'x' * 1000000)", "disk"),
        ("import sys; sys.exit(3)", "error"),
    ],
)
def test_the_limit_that_ended_a_run_is_named(sandbox, code: str, status: str):
    assert sandbox.run_python(code).status == status


def test_output_is_cut_while_it_is_read(sandbox):
    assert len(sandbox.run_python("print('x' * 10**7)").output) == FAST.output_bytes


def test_the_folder_is_gone_after_the_run(sandbox, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chmod(place, 0o755)
        monkeypatch.setattr("tempfile.tempdir", place)
        sandbox.run_python("open('left', 'w').write('x')")
        assert os.listdir(place) == []


def test_the_environment_variables_are_cleared(sandbox, monkeypatch):
    monkeypatch.setenv("TRAINERS_TOKEN", "very secret")
    assert "very secret" not in sandbox.run_python("import os; print(os.environ)").output


@pytest.mark.parametrize("name", ["cpu_s", "wall_s", "memory_mb", "output_bytes"])
def test_limits_must_be_positive(name: str):
    with pytest.raises(UserError, match=name):
        Limits(**{name: 0})


def test_an_unknown_level_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'bubblewrap'"):
        make_sandbox(level="bublewrap")


def test_root_is_never_offered_the_weak_level():
    if os.geteuid():
        pytest.skip("this process is not root")
    with pytest.raises(UserError, match="root would run the code as root"):
        make_sandbox(level="rlimit")


def test_a_sandbox_says_what_holds_and_what_does_not(sandbox):
    assert sandbox.describe().startswith(f"sandbox level {sandbox.level}")


def test_a_sandbox_that_does_not_come_up_is_a_failure_of_the_infrastructure(sandbox, monkeypatch):
    monkeypatch.setattr(sandbox, "plan", dataclasses.replace(find_plan(), python="/nowhere/python"))
    with pytest.raises(EnvironmentFailure, match="did not come up"):
        sandbox.run_python("")


# --- sessions ---------------------------------------------------------------------------------


def test_a_session_keeps_its_variables_and_shows_the_last_value(session):
    outputs = [session.run(code).output for code in ("x = 20", "x += 1", "x * 2")]
    assert outputs == ["", "", "42\n"]


def test_an_exception_keeps_the_variables_and_names_the_line(session):
    session.run("x = 1")
    wrong = session.run("y = 2\nx / 0")
    assert (wrong.output, session.run("x + y").output) == (
        "ZeroDivisionError: division by zero (line 2)\n",
        "3\n",
    )


def test_a_call_that_never_ends_loses_the_variables_and_the_next_works(session):
    session.run("x = 1")
    assert session.run("while True: pass").status == "time"
    assert "NameError" in session.run("x").output


def test_nothing_runs_between_two_calls(session):
    session.run(
        "import threading, time\n"
        "count = 0\n"
        "def tick():\n"
        "    global count\n"
        "    while True: time.sleep(0.01); count += 1\n"
        "threading.Thread(target=tick, daemon=True).start()"
    )
    before = int(session.run("count").output)
    time.sleep(1.0)
    assert int(session.run("count").output) - before < 50


def test_a_forked_child_does_not_answer_in_the_parents_place(session):
    session.run("import os\nchild = os.fork()")
    assert [session.run("1 + 1").output, session.run("2 + 2").output] == ["2\n", "4\n"]


def test_code_cannot_read_the_calls(session):
    assert session.run("import sys; sys.stdin.read()").output == "''\n"


def test_an_exit_ends_the_call_and_not_the_session(session):
    session.run("x = 5")
    session.run("import sys; sys.exit(1)")
    assert session.run("x").output == "5\n"


def test_a_killed_interpreter_is_an_error_and_the_next_call_starts_another(session):
    assert session.run("import os; os._exit(7)").status == "error"
    assert session.run("1").output == "1\n"


@given(st.lists(st.integers(-99, 99), max_size=6))
@settings(max_examples=8, deadline=None)
def test_many_cells_are_one_program(sandbox, numbers: list[int]):
    opened = sandbox.session()
    opened.run("total = 0")
    for number in numbers:
        opened.run(f"total += {number}")
    output = opened.run("total").output
    opened.close()
    assert int(output) == sum(numbers)


# --- the folder -------------------------------------------------------------------------------


def test_a_folder_is_measured_without_following_links(tmp_path):
    folder = Folder(None)
    (Path(folder.path) / "link").symlink_to("/usr")
    over = folder.is_over(1_000_000)
    folder.close()
    assert not over


# --- SandboxFusion ----------------------------------------------------------------------------


class FusionServer(BaseHTTPRequestHandler):
    """Speaks SandboxFusion's protocol over our own sandbox; `fault` makes it misbehave."""

    fault = ""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert (self.path, request["language"]) == ("/run_code", "python")
        if self.fault == "hang":
            time.sleep(3.0)
        files = {n: base64.b64decode(c).decode() for n, c in request["files"].items()}
        result = make_sandbox(FAST).run_python(request["code"], files)
        run = {
            "status": "TimeLimitExceeded" if result.status == "time" else "Finished",
            "return_code": result.exit_code,
            "stdout": result.output,
            "stderr": "",
        }
        status = "Success" if result.ok else "Failed"
        answer = {"status": status, "message": "", "run_result": run, "files": {}}
        if self.fault == "error":
            answer = {"status": "SandboxError", "message": "no machine left", "run_result": None}
        body = b"<html>" if self.fault == "garbage" else json.dumps(answer).encode()
        self.send_response(500 if self.fault == "500" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def fusion():
    """The address of a server; `FusionServer.fault` is reset afterwards."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), FusionServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    FusionServer.fault = ""
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    "code", ["print(6 * 7)", "1 / 0", "print(open('f').read())", "import sys; sys.exit(3)"]
)
def test_a_fusion_server_gives_what_the_local_sandbox_gives(fusion, sandbox, code: str):
    there = make_sandbox(FAST, url=fusion).run_python(code, {"f": "text"})
    assert there == sandbox.run_python(code, {"f": "text"})


def test_a_fusion_session_replays_without_repeating_the_output(fusion):
    session = make_sandbox(FAST, url=fusion).session()
    outputs = [session.run(code).output for code in ("x = 3; print('once')", "x += 1", "x")]
    assert outputs == ["once\n", "", "4\n"]


def test_a_fusion_run_over_its_time_is_a_result(fusion):
    assert make_sandbox(FAST, url=fusion).run_python("while True: pass").status == "time"


@pytest.mark.parametrize("fault", ["500", "error", "garbage"])
def test_a_fusion_server_that_fails_is_a_failure_of_the_infrastructure(fusion, fault: str):
    FusionServer.fault = fault
    with pytest.raises(EnvironmentFailure, match="SandboxFusion"):
        make_sandbox(FAST, url=fusion).run_python("")


def test_a_fusion_server_that_hangs_is_a_timeout(fusion, monkeypatch):
    FusionServer.fault = "hang"
    monkeypatch.setattr("environments.code.sandbox.fusion.SLACK_S", -2.5)
    with pytest.raises(EnvironmentFailure) as caught:
        make_sandbox(FAST, url=fusion).run_python("")
    assert caught.value.timeout


def test_a_fusion_server_that_is_not_there_is_a_failure_of_the_infrastructure():
    with pytest.raises(EnvironmentFailure, match="SandboxFusion"):
        make_sandbox(FAST, url="http://127.0.0.1:9").run_python("")


def test_a_fusion_address_must_be_http():
    with pytest.raises(UserError, match="http://"):
        make_sandbox(url="localhost:8080")
