"""Search over HTTP: the served corpus is the local one, and a failing server is a failure of the
infrastructure."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from environments.search import serve
from environments.search.atlas import atlas_index
from environments.search.env import Search
from environments.search.files import parse_document
from environments.search.index import Document, Hit
from environments.search.remote import RemoteRetriever
from scalinginter.cli.main import main
from scalinginter.env.base import SPLITS
from scalinginter.env.check import check_env
from scalinginter.errors import EnvironmentFailure


@contextmanager
def _running(app: web.Application) -> Iterator[str]:
    """Serve an application from a thread; yields the address without a path."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(app)
    listening = socket.create_server(("127.0.0.1", 0))

    async def start() -> None:
        await runner.setup()
        await web.SockSite(runner, listening).start()

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of our countries, served."""
    with _running(serve.make_app(atlas_index("countries"))) as address:
        yield address


def _answering(body: str, status: int = 200) -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=body, status=status)

    app = web.Application()
    app.router.add_post("/retrieve", answer)
    return app


def _post(url: str, body: bytes) -> tuple[int, dict]:
    request = urllib.request.Request(f"{url}/retrieve", body)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
            return error.code, json.loads(text) if text.startswith(b"{") else {}


# --- local is remote --------------------------------------------------------------------------


def test_local_equals_served_document_for_document(url):
    local, remote = atlas_index("countries"), RemoteRetriever(url, 20)
    tasks = [t for split in SPLITS for t in Search(world="countries").tasks(split)[:25]]
    queries = [t.data["question"] for t in tasks] + [s for t in tasks for s in t.data["searches"]]
    queries = [*dict.fromkeys(queries), "São Tomé", "", "?!", "zzzz", "a city in France"]
    assert [remote.search(q, 5) for q in queries] == [local.search(q, 5) for q in queries]


def test_an_episode_with_a_server_equals_a_local_one(url):
    episodes = []
    for params in ({}, {"retriever": f"{url}/retrieve"}):
        env = Search(world="countries", **params)
        episode = []
        for task in env.tasks("test")[:12]:
            episode.append(env.reset(options={"task": task}))
            episode += [(env.step(a), env.admissible_actions()) for a in env.expert_plan() or []]
        episodes.append(episode)
    assert episodes[0] == episodes[1]


def test_search_with_a_server_keeps_the_contract(url):
    report = check_env("search", {"world": "countries", "retriever": url}, num_tasks=4)
    assert report.ok, report


def test_search_with_a_server_does_not_hold_up_the_event_loop(url):
    assert (Search().isolation, Search(retriever=url).isolation) == ("inline", "thread")


@given(st.text(), st.text(), st.text())
def test_a_document_survives_the_protocol(name, title, text):
    document = parse_document({"id": name, "title": title, "text": text})
    if document is not None:
        entry = serve._entry(Hit(document, 1.0), scored=False)
        contents = parse_document({"id": name, "contents": entry["contents"]})
        assert parse_document(entry) == document
        assert contents is not None
        assert contents.text == text


# --- the protocol -----------------------------------------------------------------------------


def test_the_answer_has_the_form_of_search_r1(url):
    body = {"queries": ["France", "Paris"], "topk": 2, "return_scores": True}
    _, answer = _post(url, json.dumps(body).encode())
    assert [[set(entry) for entry in hits] for hits in answer["result"]] == [
        [{"document", "score"}] * 2
    ] * 2
    title, text = answer["result"][0][0]["document"]["contents"].split("\n")
    assert (title, text[:30]) == ('"France"', "France is a country in Europe.")


def test_without_scores_the_answer_holds_the_documents_alone(url):
    _, answer = _post(url, b'{"queries": ["France"], "topk": 1}')
    assert answer["result"][0][0]["title"] == "France"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b"[]", 400, "the body must be"),
        (b'{"queries": "France"}', 400, "queries must be a list of texts"),
        (b'{"queries": [1]}', 400, "queries must be a list of texts"),
        (b'{"queries": ["x"], "topk": 0}', 400, "topk must be a whole number from 1 to 100"),
        (b'{"queries": ["x"], "topk": true}', 400, "topk must be"),
        (json.dumps({"queries": ["x"] * 257}).encode(), 400, "at most 256 queries"),
        (b'{"queries": ["' + b"x" * 1_000_001 + b'"]}', 413, ""),
    ],
)
def test_a_bad_request_is_refused(url, body, status, said):
    code, answer = _post(url, body)
    assert (code, said in answer.get("error", "")) == (status, True)


def test_the_command_serves_documents_of_the_user_until_it_is_told_to_stop(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "7", "contents": "\\"Zebra\\"\\nIt has stripes."}\n')
    command = [
        sys.executable,
        "-m",
        "scalinginter.cli.main",
        "serve-retriever",
        "--documents",
        corpus,
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/retrieve", address)
        hits = RemoteRetriever(address, 20).search("stripes", 3)
        assert [hit.document for hit in hits] == [Document("7", "Zebra", "It has stripes.")]
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    finally:
        server.kill()
        server.communicate()


def test_the_command_names_what_is_wrong_with_the_users_documents(tmp_path, capsys):
    (tmp_path / "c.jsonl").write_text("{}\n")
    assert main(["serve-retriever", "--documents", str(tmp_path / "c.jsonl")]) == 2
    assert "c.jsonl:1: needs 'text'" in capsys.readouterr().err


def test_the_command_says_which_port_is_taken(tmp_path, capsys):
    (tmp_path / "c.jsonl").write_text('{"id": "7", "title": "Zebra", "text": "It has stripes."}\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["--documents", str(tmp_path / "c.jsonl"), "--port", str(port)]
        assert main(["serve-retriever", *words]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_the_command_refuses_a_port_that_is_none(capsys):
    assert main(["serve-retriever", "--port", "65536"]) == 2
    assert "--port must be from 0 (a free one) to 65535, got 65536" in capsys.readouterr().err


# --- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("no", 500, "status 500: no"),
        ("no", 200, "answered b'no'"),
        ("[]", 200, "which is not"),
        ('{"result": []}', 200, "which is not"),
        ('{"result": [[{"score": 1}]]}', 200, "which is not"),
        ('{"result": [[{"document": {"id": 1}, "score": 1}]]}', 200, "which is not"),
        ('{"result": [[{"document": {"text": "x"}, "score": null}]]}', 200, "which is not"),
    ],
)
def test_pitfall_13_a_broken_answer_is_a_failure_of_the_environment(body, status, said):
    with _running(_answering(body, status)) as address:
        env = Search(world="countries", retriever=address)
        env.reset()
        with pytest.raises(EnvironmentFailure, match=said):
            env.step("search[France]")


def test_pitfall_13_no_server_is_a_failure_of_the_environment():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(EnvironmentFailure, match="failed"):
        RemoteRetriever(f"http://127.0.0.1:{port}", 5).search("France", 1)


@pytest.mark.parametrize("trickle", [False, True], ids=["silent", "trickling"])
def test_pitfall_29_a_server_that_never_ends_its_answer_meets_the_deadline(trickle):
    ended = threading.Event()

    def serve_badly(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            if trickle:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not ended.wait(0.05):
                try:
                    connection.sendall(b"x" if trickle else b"")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve_badly, args=(listening,))
        thread.start()
        try:
            port = listening.getsockname()[1]
            with pytest.raises(EnvironmentFailure) as caught:
                RemoteRetriever(f"http://127.0.0.1:{port}", 0.5).search("France", 1)
        finally:
            ended.set()
            thread.join()
    assert caught.value.timeout
