"""The site as a callable: `site.handle(method, path, form, cookie)`, without a network."""

import sqlite3
from collections.abc import Iterable, Mapping
from itertools import islice
from urllib.parse import parse_qsl, quote, urlsplit

from environments.web.interface import Response
from environments.web.site.data import ME
from environments.web.site.database import open_copy
from environments.web.site.pages import ROUTES
from environments.web.site.pages.account import LOGIN, LOGOUT, check_password, login_page
from environments.web.site.web import NotFound, Page, Redirect, Request, layout, note_page

ORIGIN = "http://site.test"
MAX_PATH = 4000
MAX_FIELDS = 100


class WebSite:
    """One world, served. Implements `environments.web.interface.Site`.

    Args:
        seed: the world.
        origins: where browsers reach it; links are relative, so it does not care.
    """

    def __init__(self, seed: int, origins: tuple[str, ...] = (ORIGIN,)) -> None:
        self.seed = seed
        self._origins = origins
        self.db = open_copy(seed)
        self._sessions: dict[str, int] = {}

    @property
    def origins(self) -> tuple[str, ...]:
        return self._origins

    def login(self, user_id: int = ME) -> str:
        """Open a session for a user and return its cookie's value."""
        token = f"session-{self.seed}-{len(self._sessions) + 1}"
        self._sessions[token] = user_id
        return token

    def close(self) -> None:
        self.db.close()

    def handle(
        self, method: str, path: str, form: Mapping[str, str] | None = None, cookie: str = ""
    ) -> Response:
        """Answer a request. Never raises for what a client sends."""
        parts = urlsplit(path[:MAX_PATH])
        request = Request(
            db=self.db,
            method=method.upper(),
            path=parts.path.rstrip("/") or "/",
            query=_clean(parse_qsl(parts.query)),
            form=_clean((form or {}).items()),
            user=self._user(cookie),
        )
        headers: dict[str, str] = {}
        if request.path in (LOGIN, LOGOUT):
            reply = self._session(request, cookie, headers)
        else:
            reply = _answer(request)
        if isinstance(reply, Redirect):
            return Response(303, {**headers, "Location": reply.path})
        headers["Content-Type"] = "text/html; charset=utf-8"
        return Response(reply.status, headers, layout(reply, request))

    def _user(self, cookie: str) -> sqlite3.Row | None:
        user_id = self._sessions.get(cookie)
        found = self.db.execute("SELECT * FROM users WHERE id = ?", (user_id,))
        return found.fetchone() if user_id is not None else None

    def _session(self, request: Request, cookie: str, headers: dict[str, str]) -> Page | Redirect:
        if request.path == LOGOUT:
            self._sessions.pop(cookie, None)
            request.user = None
            headers["Set-Cookie"] = "session=; Path=/; HttpOnly"
            return note_page("Logged out", "You are logged out.")
        if request.method != "POST":
            return login_page(request)
        user_id = check_password(request)
        back = request.text("next")
        if user_id is None:
            return Redirect(f"{LOGIN}?failed=1&next={quote(back, safe='')}")
        headers["Set-Cookie"] = f"session={self.login(user_id)}; Path=/; HttpOnly"
        local = back.startswith("/") and not back.startswith("//") and "\\" not in back
        return Redirect(back if local else "/")


def _clean(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Drop what is too much, the character at which sqlite ends a pattern, and half characters."""
    return {
        name: value.replace("\0", "").encode("utf-8", "replace").decode()
        for name, value in islice(fields, MAX_FIELDS)
    }


def _answer(request: Request) -> Page | Redirect:
    try:
        return ROUTES.answer(request)
    except NotFound:
        return note_page("Not found", "There is no such page.", status=404)
