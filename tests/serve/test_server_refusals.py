"""What a server refuses, and with which sentence. Every request goes to a real server."""

import base64
import json

import pytest

from environments.remote.connection import Address
from environments.remote.websocket import WebSocket
from scalinginter.env.registry import make
from scalinginter.errors import EnvironmentFailure, UserError

TOKEN = "open-sesame-77"


@pytest.fixture
def small(shared_server):
    """A server with narrow limits."""
    limits = ["--max-sessions", "2", "--max-body-bytes", "2000"]
    return shared_server("faulty_environments:InlineCounter", *limits)


@pytest.fixture
def guarded(shared_server):
    """A server that wants a token, which it got through the environment."""
    return shared_server("toy_corridor", SCALINGINTER_ENV_TOKEN=TOKEN)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "this is not JSON"),
        (b"\xff\xfe", "this is not JSON"),
        (b"[" * 1500, "this is not JSON"),
        (b"[1]", "a JSON object is wanted, got list"),
        (b"{}", "task must be a string, got nothing"),
        (b'{"task": 3}', "task must be a string, got 3"),
        (b'{"task": "train/0", "seed": "x"}', "seed must be a whole number"),
        (b'{"task": "train/0", "seed": true}', "seed must be a whole number"),
        (b'{"task": "train/0", "horizon": -1}', "horizon must be a whole number"),
    ],
)
def test_a_bad_body_is_refused_with_a_sentence(small, body, sentence):
    status, answer = small.request("POST", "/sessions", body)
    assert (status, sentence in answer["error"]) == (400, True), answer


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("PUT", "/sessions", 405),
        ("POST", "/sessions/unknown/step", 404),
        ("GET", "/sessions/unknown/plan", 404),
        ("GET", "/tasks", 400),
        ("GET", "/tasks?split=all", 400),
        ("GET", "/tasks?split=train&start=x", 400),
        ("GET", "/ws", 400),
    ],
)
def test_a_wrong_request_gets_a_status_and_a_sentence(small, method, path, status):
    body = {"action": "x"} if method == "POST" else None
    got, answer = small.request(method, path, body)
    assert (got, list(answer)) == (status, ["error"])


def test_a_task_that_the_server_does_not_have_is_refused(small):
    status, answer = small.request("POST", "/sessions", {"task": "train/99"})
    assert (status, "no task 'train/99'" in answer["error"]) == (404, True)


def test_a_body_that_is_too_large_is_refused(small):
    status, answer = small.request("POST", "/sessions", {"task": "x" * 3000})
    assert (status, "larger than 2000 bytes" in answer["error"]) == (413, True)


def test_a_websocket_message_that_is_too_large_ends_the_websocket_with_the_reason(small):
    socket = WebSocket(Address(small.websocket_url, None, ("ws",)), "/ws", 60.0)
    with pytest.raises(EnvironmentFailure, match="too large"):
        socket.exchange(json.dumps({"call": "x" * 3000}), 60.0)


def test_more_sessions_than_allowed_are_refused_until_one_is_closed(small):
    keys = [small.open()["session"] for _ in range(2)]
    refused = small.request("POST", "/sessions", {"task": "train/0"})
    small.request("DELETE", f"/sessions/{keys[0]}")
    again = small.open()["session"]
    for key in (keys[1], again):
        small.request("DELETE", f"/sessions/{key}")
    assert (refused[0], "all 2 sessions" in refused[1]["error"]) == (429, True)


def test_a_session_that_is_over_says_why(small):
    key = small.open()["session"]
    small.request("POST", f"/sessions/{key}/step", {"action": "win"})
    status, answer = small.request("POST", f"/sessions/{key}/step", {"action": "count"})
    assert (status, "its episode ended" in answer["error"]) == (410, True)


def test_an_unknown_call_of_a_websocket_names_the_nearest(small):
    socket = WebSocket(Address(small.websocket_url, None, ("ws",)), "/ws", 60.0)
    answer = json.loads(socket.exchange('{"id": 4, "call": "stepp"}', 60.0))
    socket.close()
    assert (answer["id"], answer["status"]) == (4, 400)
    assert "did you mean 'step'" in answer["error"]


@pytest.mark.parametrize("text", ["{", "[]", "", "null", '{"call": ["open"]}'])
def test_nonsense_over_a_websocket_is_answered_and_the_websocket_goes_on(small, text):
    socket = WebSocket(Address(small.websocket_url, None, ("ws",)), "/ws", 60.0)
    assert json.loads(socket.exchange(text, 60.0))["status"] == 400
    assert json.loads(socket.exchange('{"call": "info"}', 60.0))["status"] == 200
    socket.close()


@pytest.mark.parametrize(
    "header",
    [None, "Bearer wrong", "Bearer", "Basic !!!", "Bearer \xfc", f"Bearer {TOKEN}x", TOKEN],
)
@pytest.mark.parametrize("path", ["/info", "/tasks?split=train", "/ws", "/nothing"])
def test_without_the_token_nothing_is_answered(guarded, path, header):
    headers = {} if header is None else {"Authorization": header}
    status, answer = guarded.request("GET", path, headers=headers)
    assert (status, "token" in answer["error"]) == (401, True)


def test_a_health_probe_needs_no_token(guarded):
    assert guarded.request("GET", "/health") == (200, {"ok": True, "sessions": 0})


def test_a_token_in_the_urls_password_opens(guarded):
    secret = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    status, _ = guarded.request("GET", "/info", headers={"Authorization": f"Basic {secret}"})
    assert status == 200


@pytest.mark.parametrize("transport", ["url", "websocket_url"])
def test_a_client_with_the_token_plays_and_one_without_is_told_what_to_set(guarded, transport):
    url = getattr(guarded, transport)
    client = make("remote", url=url, token=TOKEN)
    assert len(client.tasks("train")) == 32
    client.close()
    with pytest.raises(UserError, match=r"set SCALINGINTER_ENV_TOKEN"):
        make("remote", url=url, token="wrong").tasks("train")


def test_the_token_is_never_printed(start_server):
    server = start_server("toy_corridor", "--token", TOKEN)
    server.request("GET", "/info", headers={"Authorization": "Bearer wrong"})
    server.process.terminate()
    assert TOKEN not in "".join(server.process.communicate(timeout=90))
