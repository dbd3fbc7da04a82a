"""The package's pages, behind a proxy that serves nothing else, and which of them are used."""

import json
import os
import threading
from functools import lru_cache
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from scalinginter.errors import UserError

ORIGIN = "http://miniwob.test"
TABLE = Path(__file__).with_name("pages.json")  # made by survey.py


@lru_cache(maxsize=1)
def folder() -> Path:
    """Return where the package `miniwob` keeps its HTML. Raises `UserError` if it is missing."""
    spec = find_spec("miniwob")  # imports nothing: the package would import selenium
    if spec is None or spec.origin is None:
        raise UserError("miniwob needs the package miniwob; pip install 'scalinginter[web]'")
    return Path(spec.origin).parent / "html"


def all_pages() -> list[str]:
    """Return the names of all pages of the package, in alphabetical order."""
    return sorted(path.stem for path in (folder() / "miniwob").glob("*.html"))


@lru_cache(maxsize=1)
def table() -> dict[str, dict[str, Any]]:
    """Return `page -> {"left_out": reason}` or `{"turns": ...}`: how many turns the expert needs,
    always or by seed; nothing by seed where there is no expert."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


def used_pages() -> list[str]:
    """Return the pages that can be played with the action grammar."""
    return [page for page, about in table().items() if "left_out" not in about]


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        return (
            "text/html; charset=utf-8" if str(path).endswith(".html") else super().guess_type(path)
        )

    def translate_path(self, path: str) -> str:
        parts = urlsplit(path)
        whole = (folder() / unquote(parts.path).lstrip("/")).resolve()
        inside = whole.is_relative_to(folder()) and f"http://{parts.netloc}" == ORIGIN
        return str(whole) if inside and whole.is_file() else "/nonexistent"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the output belongs to the trainer."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error."""


@lru_cache(maxsize=1)
def proxy() -> str:
    """Return the address of this process's proxy to the pages; it ends with the process."""
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"
