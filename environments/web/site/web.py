"""Requests, replies and routes of the site's pages."""

import re
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from environments.web.site.html import Html, el, items, join, link, text

PAGE_SIZE = 8
MAX_INPUT = 4000  # characters of a form's field
MAX_INT = 2**31


@dataclass(frozen=True, slots=True)
class Page:
    """A page to show."""

    title: str
    body: Html
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """Go there, by GET."""

    path: str


Reply = Page | Redirect


@dataclass(slots=True)
class Request:
    """What a page is asked for."""

    db: sqlite3.Connection
    method: str
    path: str
    query: Mapping[str, str]
    form: Mapping[str, str]
    user: sqlite3.Row | None
    args: tuple[str, ...] = ()  # what the route's pattern caught

    @property
    def user_id(self) -> int:
        """Who asks. Pages that need to know are behind `needs_login`."""
        assert self.user is not None
        return self.user["id"]

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        return self.db.execute(sql, values).fetchall()

    def row(self, sql: str, *values: Any) -> sqlite3.Row:
        """Return the first row. Raises `NotFound` if there is none."""
        found = self.db.execute(sql, values).fetchone()
        if found is None:
            raise NotFound
        return found

    def arg(self, position: int) -> int:
        return number(self.args[position], MAX_INT)

    def text(self, name: str) -> str:
        """Return a field of the form, trimmed."""
        return self.form.get(name, "")[:MAX_INPUT].strip()

    def number(self, name: str, default: int = 0) -> int:
        """Return a field of the form as a whole number."""
        return number(self.form.get(name, ""), default)

    def page(self, total: int, size: int = PAGE_SIZE) -> tuple[int, int, int]:
        """Return the page asked for, the number of pages, and the offset of its first row."""
        pages = max(1, -(-total // size))
        page = min(max(1, number(self.query.get("page", ""), 1)), pages)
        return page, pages, (page - 1) * size


class NotFound(Exception):  # noqa: N818 - an answer, not an error of ours
    """There is no such page."""


def number(value: str, default: int) -> int:
    """Return a text of up to nine digits as a number, else the default."""
    value = value.strip()
    return int(value) if re.fullmatch(r"[0-9]{1,9}", value) else default


Handler = Callable[[Request], Reply]


class Routes:
    """Which function answers which path."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, re.Pattern[str], Handler, bool]] = []

    def get(self, pattern: str, login: bool = False) -> Callable[[Handler], Handler]:
        return self._add("GET", pattern, login)

    def post(self, pattern: str) -> Callable[[Handler], Handler]:
        """Every change needs a login."""
        return self._add("POST", pattern, True)

    def _add(self, method: str, pattern: str, login: bool) -> Callable[[Handler], Handler]:
        def keep(handler: Handler) -> Handler:
            self._routes.append((method, re.compile(pattern), handler, login))
            return handler

        return keep

    def answer(self, request: Request) -> Reply:
        """Call the function of the request's path."""
        for method, pattern, handler, login in self._routes:
            if method != request.method:
                continue
            match = pattern.fullmatch(request.path)
            if match is None:
                continue
            if login and request.user is None:
                back = request.path if request.method == "GET" else "/"
                return Redirect(f"/login?next={quote(back, safe='')}")
            request.args = match.groups()
            return handler(request)
        raise NotFound


_NAVIGATION = (("Shop", "/shop"), ("Forum", "/forum"), ("Wiki", "/wiki"), ("Code", "/code"))
_AREA_LINKS = {
    "shop": (
        ("Cart", "/shop/cart"),
        ("Orders", "/shop/orders"),
        ("Wish list", "/shop/wishes"),
        ("Account", "/shop/account"),
    ),
}
STYLE = "body{font:16px sans-serif;max-width:60em;margin:1em auto}nav a{margin-right:1em}"


@lru_cache(maxsize=16)
def _navigation(area: str, logged_in: bool) -> Html:
    links = [link(label, path) for label, path in (*_NAVIGATION, *_AREA_LINKS.get(area, ()))]
    links.append(link("Log out", "/logout") if logged_in else link("Log in", "/login"))
    return el("nav", *links)


def layout(page: Page, request: Request) -> str:
    """Return the whole document of a page."""
    navigation = _navigation(request.path.split("/")[1], request.user is not None)
    head = el("head", el("meta", charset="utf-8"), el("title", page.title), el("style", STYLE))
    body = el("body", navigation, el("h1", page.title), page.body)
    return "<!doctype html>" + el("html", head, body, lang="en")


def note_page(title: str, *lines: object, status: int = 200) -> Page:
    return Page(title, join(el("p", line) for line in lines), status)


def listing(entries: list[Html], empty: str = "Nothing here.") -> Html:
    return items(entries) if entries else el("p", text(empty))
