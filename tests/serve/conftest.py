"""A real server, started by the real command line."""

import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAULTY = str(ROOT / "tests" / "env")  # where faulty_environments.py is
COMMAND = "import sys; from scalinginter.cli.main import main; sys.exit(main())"
START_TIMEOUT_S = 150.0


class ServerProcess:
    """A server and what a client needs to know of it."""

    def __init__(self, process, port):
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}"
        self.websocket_url = f"ws://127.0.0.1:{port}"

    def request(self, method, path, body=None, headers=None):
        """Send one request; return its status and the JSON of its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer

    def open(self, task="train/0", **fields):
        """Open a session and return its answer."""
        status, answer = self.request("POST", "/sessions", {"task": task} | fields)
        assert status == 200, answer
        return answer


def launch(folder, *arguments, env=None):
    """Start `serve-env` and wait until it listens."""
    port_file = folder / f"port-{time.monotonic_ns()}"
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{FAULTY}", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "serve-env", *arguments, "--port-file", str(port_file)],
        env=environment | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + START_TIMEOUT_S
    while not port_file.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    if not port_file.exists():
        process.kill()
        raise AssertionError(f"the server did not start: {process.communicate()}")
    return ServerProcess(process, int(port_file.read_text()))


def end(server):
    """Kill a server, if it still runs, and collect it."""
    server.process.kill()
    server.process.communicate()


@pytest.fixture
def start_server(tmp_path):
    """Return a function that starts `serve-env` with arguments; killed at the end."""
    servers = []

    def start(*arguments, env=None):
        servers.append(launch(tmp_path, *arguments, env=env))
        return servers[-1]

    yield start
    for server in servers:
        end(server)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    """Return a function that gives the server with these arguments and environment variables, for
    tests that leave it whole and without sessions: starting one takes a second of CPU."""
    folder = tmp_path_factory.mktemp("servers")
    servers = {}

    def get(*arguments, **env):
        key = (arguments, *env.items())
        if key not in servers:
            servers[key] = launch(folder, *arguments, env=env)
        return servers[key]

    yield get
    for server in servers.values():
        end(server)


@pytest.fixture
def textcraft_server(shared_server):
    """A TextCraft server."""
    return shared_server("textcraft")


@pytest.fixture
def agentgym_server(shared_server):
    """A TextCraft server that speaks AgentGym's format."""
    return shared_server("textcraft", "--format", "agentgym")
