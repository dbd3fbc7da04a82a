"""The site behind a real HTTP server, for a real browser: the same callable, another door.

python -m environments.web.site.server --world 3
"""

import argparse
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from environments.web.interface import Site
from environments.web.site.site import MAX_FIELDS, WebSite

MAX_BODY = 1 << 16  # bytes of a form
TIMEOUT_S = 30  # of a silent connection


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, site: Site, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.site = site
        self.lock = threading.Lock()  # one database connection serves all threads

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of the site."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        self._answer("GET", None)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > MAX_BODY:
            self.close_connection = True
            self.send_error(413)
            return
        body = self.rfile.read(int(length)).decode("utf-8", errors="replace")
        self._answer("POST", dict(parse_qsl(body, True)[:MAX_FIELDS]))

    def _answer(self, method: str, form: dict[str, str] | None) -> None:
        server = self.server
        assert isinstance(server, _Server)
        with server.lock:
            response = server.site.handle(method, self.path, form, self._cookie())
        body = response.html.encode()
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get("session")
        except CookieError:
            return ""
        return found.value if found is not None else ""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the output belongs to the trainer."""


@contextmanager
def serve(site: Site, port: int = 0) -> Generator[str, None, None]:
    """Serve a site on 127.0.0.1 while the context lasts; gives its origin, `http://127.0.0.1:8123`.

    `port` 0 takes a free one. Requests are answered one at a time.
    """
    server = _Server(site, port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a world of the site to look at.")
    parser.add_argument("--world", type=int, default=0, help="seed of the world")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    arguments = parser.parse_args()
    site = WebSite(arguments.world)
    me = site.db.execute("SELECT name, password FROM users WHERE id = 1").fetchone()
    with serve(site, arguments.port) as origin:
        print(f"{origin}  user {me['name']}, password {me['password']}; Ctrl-C ends", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
