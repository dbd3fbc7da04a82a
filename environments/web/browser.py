"""A text browser in process: tabs, history, focus, forms and a viewport over a site's HTML.

There is no network and no script: a click on a link or a button is one call of `site.handle`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode, urljoin, urlsplit

from environments.web.axtree import TEXT_ROLES, Node, Page, parse, with_state
from environments.web.interface import Direction, Response, Site, View
from environments.web.refusals import (
    find,
    no_combobox,
    no_key,
    no_option,
    no_textbox,
    resolve,
    scrolled,
)

MAX_TABS = 8
MAX_TEXT = 4000  # characters in a field
MAX_REDIRECTS = 5
BLANK = "about:blank"
FOCUSABLE = ("link", "button", "combobox", "checkbox", "radio", *TEXT_ROLES)


@dataclass(slots=True)
class _Tab:
    """A tab: its history, and the page in front with what was typed into it."""

    urls: list[str] = field(default_factory=lambda: [BLANK])
    position: int = 0
    page: Page = field(default_factory=lambda: parse(""))
    values: dict[int, str | bool] = field(default_factory=dict)
    focus: int | None = None
    first: int = 0  # line at the top of the viewport


class TextBrowser:
    """Implements `interface.Browser`.

    Args:
        site: what it browses; requests go nowhere else.
        start: address of the first tab.
        viewport: lines of a page that are in view.
        cookie: the session cookie to begin with, empty for none.
    """

    def __init__(self, site: Site, start: str, viewport: int = 40, cookie: str = "") -> None:
        self._site = site
        self._viewport = viewport
        self._cookie = cookie
        self._tabs = [_Tab()]
        self._front = 0
        self._load(start)
        self._tab.urls, self._tab.position = self._tab.urls[-1:], 0

    @property
    def _tab(self) -> _Tab:
        return self._tabs[self._front]

    # --- loading pages

    def goto(self, url: str) -> str:
        base = self._tab.urls[self._tab.position]
        origins = self._site.origins
        whole, refusal = resolve(url, base if base != BLANK else origins[0], origins)
        if not refusal:
            self._load(whole)
        return refusal

    def _load(self, url: str, form: Mapping[str, str] | None = None) -> None:
        """Request a page as a new entry of the tab's history; redirections are followed."""
        tab = self._tab
        url = self._request(url, form)
        tab.urls = [*tab.urls[: tab.position + 1], url]
        tab.position = len(tab.urls) - 1

    def _request(self, url: str, form: Mapping[str, str] | None = None) -> str:
        response = self._ask("GET" if form is None else "POST", url, form)
        for _ in range(MAX_REDIRECTS):
            location = response.headers.get("Location")
            if location is None:
                break
            url = urljoin(url, location)
            response = self._ask("GET", url)
        self._show(parse(response.html))
        return url

    def _ask(self, method: str, url: str, form: Mapping[str, str] | None = None) -> Response:
        parts = urlsplit(url)
        path = parts.path or "/"
        whole = f"{path}?{parts.query}" if parts.query else path
        response = self._site.handle(method, whole, form, self._cookie)
        cookie = response.headers.get("Set-Cookie")
        if cookie is not None:
            self._cookie = cookie.partition(";")[0].partition("=")[2]
        return response

    def _show(self, page: Page) -> None:
        tab = self._tab
        tab.page, tab.values, tab.focus, tab.first = page, {}, None, 0

    # --- elements

    def _find(self, id: int) -> Node | str:
        """Return the node in view with this id, or a note why there is none."""
        found = find(self._tab.page.nodes, id, self._tab.first, self._viewport)
        return found if isinstance(found, str) else self._now(found)

    def _now(self, node: Node) -> Node:
        tab = self._tab
        return with_state(node, tab.values.get(node.id), node.id == tab.focus)

    def click(self, id: int) -> str:
        node = self._find(id)
        return node if isinstance(node, str) else self._activate(node)

    def _activate(self, node: Node) -> str:
        tab = self._tab
        if node.role == "link":
            return self.goto(node.href)
        if node.role not in FOCUSABLE:
            return f"Nothing happens: [{node.id}] is no link, button or field."
        tab.focus = node.id
        if node.role == "button":
            return self._submit(node)
        if node.role == "checkbox":
            assert node.field is not None
            tab.values[node.id] = not node.field.checked
        elif node.role == "radio":
            self._choose_radio(node)
        return ""

    def _choose_radio(self, node: Node) -> None:
        assert node.field is not None
        for other in self._tab.page.nodes:
            radio = other.role == "radio" and other.form == node.form
            if radio and other.field is not None and other.field.name == node.field.name:
                self._tab.values[other.id] = other.id == node.id

    def type(self, id: int, text: str, enter: bool) -> str:
        node = self._find(id)
        if isinstance(node, str):
            return node
        if refusal := no_textbox(node):
            return refusal
        self._tab.focus = id
        if node.field is not None and not node.field.multiline:
            text = text.replace("\n", "").replace("\r", "")
        self._tab.values[id] = text[:MAX_TEXT]
        return self.press("Enter") if enter else ""

    def select(self, id: int, option: str) -> str:
        node = self._find(id)
        if isinstance(node, str):
            return node
        if refusal := no_combobox(node):
            return refusal
        assert node.field is not None
        wanted = option.strip().lower()
        for value, label in node.field.options:
            if label.lower() == wanted:
                self._tab.focus, self._tab.values[id] = id, value
                return ""
        return no_option(node, option)

    def hover(self, id: int) -> str:
        node = self._find(id)
        return node if isinstance(node, str) else ""

    def _submit(self, button: Node) -> str:
        """Send the form of a control; a button sends its own name and value along."""
        tab = self._tab
        if button.form is None:
            return ""
        form = tab.page.forms[button.form]
        data = dict(form.hidden)
        for node in tab.page.nodes:
            if node.form != button.form or node.field is None or not node.field.name:
                continue
            field_now = self._now(node).field
            assert field_now is not None
            if field_now.required and not field_now.value:
                tab.focus = node.id
                return f"Element [{node.id}] is required: fill it in first."
            if node.role == "button":
                if node.id == button.id:
                    data[field_now.name] = field_now.value
            elif node.role not in ("checkbox", "radio"):
                data[field_now.name] = field_now.value
            elif field_now.checked:
                data[field_now.name] = field_now.value or "on"
        url = urljoin(tab.urls[tab.position], form.action)
        if form.method == "POST":
            self._load(url, data)
        else:
            self._load(f"{url.partition('?')[0]}?{urlencode(data)}")
        return ""

    # --- keys

    def press(self, key: str) -> str:
        tab = self._tab
        key = key.strip()
        if key == "Tab" or key == "Shift+Tab":
            return self._move_focus(-1 if key == "Shift+Tab" else 1)
        if key in ("PageDown", "PageUp"):
            return self.scroll("down" if key == "PageDown" else "up")
        if tab.focus is None:
            return f"Nothing happens: no element has the focus for {key[:40]!r}."
        node = self._now(tab.page.nodes[tab.focus - 1])
        assert node.field is not None or node.role == "link"
        if key == "Escape":
            tab.focus = None
        elif key == "Enter":
            return self._enter(node)
        elif node.role in TEXT_ROLES and node.field and (len(key) == 1 or key == "Backspace"):
            value = node.field.value
            tab.values[node.id] = value[:-1] if key == "Backspace" else (value + key)[:MAX_TEXT]
        else:
            return no_key(key)
        return ""

    def _enter(self, node: Node) -> str:
        if node.role in ("link", "button"):
            return self._activate(node)
        if node.field is not None and node.field.multiline:
            self._tab.values[node.id] = node.field.value + "\n"
            return ""
        buttons = (n for n in self._tab.page.nodes if n.role == "button" and n.form == node.form)
        return self._submit(next(buttons, node))  # Enter presses a form's first button

    def _move_focus(self, step: int) -> str:
        tab = self._tab
        stops = [node.id for node in tab.page.nodes if node.role in FOCUSABLE]
        if not stops:
            return "Nothing happens: this page has nothing to focus."
        here = stops.index(tab.focus) if tab.focus in stops else (-1 if step > 0 else 0)
        tab.focus = stops[(here + step) % len(stops)]
        if not tab.first <= tab.focus - 1 < tab.first + self._viewport:
            tab.first = (tab.focus - 1) // self._viewport * self._viewport
        return ""

    # --- scrolling, history, tabs

    def scroll(self, direction: Direction) -> str:
        tab = self._tab
        first = scrolled(direction, tab.first, self._viewport, len(tab.page.nodes))
        if isinstance(first, str):
            return first
        tab.first = first
        return ""

    def go_back(self) -> str:
        return self._travel(-1, "There is no page to go back to.")

    def go_forward(self) -> str:
        return self._travel(1, "There is no page to go forward to.")

    def _travel(self, step: int, refusal: str) -> str:
        """Pages of the history are requested again: they show the site as it is now."""
        tab = self._tab
        if not 0 <= tab.position + step < len(tab.urls):
            return refusal
        tab.position += step
        url = tab.urls[tab.position]
        if url == BLANK:
            self._show(parse(""))
        else:
            self._request(url)
        return ""

    def new_tab(self) -> str:
        if len(self._tabs) == MAX_TABS:
            return f"There are {MAX_TABS} tabs open: close one first."
        self._tabs.append(_Tab())
        self._front = len(self._tabs) - 1
        return ""

    def tab_focus(self, index: int) -> str:
        if not 0 <= index < len(self._tabs):
            return f"There is no tab {index}: tabs are 0 to {len(self._tabs) - 1}."
        self._front = index
        return ""

    def close_tab(self) -> str:
        if len(self._tabs) == 1:
            return "The last tab stays open."
        del self._tabs[self._front]
        self._front = min(self._front, len(self._tabs) - 1)
        return ""

    def view(self) -> View:
        tab = self._tab
        shown = tab.page.nodes[tab.first : tab.first + self._viewport]
        if tab.values or tab.focus is not None:
            shown = tuple(self._now(node) for node in shown)
        return View(
            url=tab.urls[tab.position],
            tabs=tuple(other.page.title or "blank" for other in self._tabs),
            tab=self._front,
            nodes=shown,
            first=tab.first,
            total=len(tab.page.nodes),
            can_go_back=tab.position > 0,
            can_go_forward=tab.position + 1 < len(tab.urls),
        )

    def close(self) -> None:
        """There is nothing to give back."""
