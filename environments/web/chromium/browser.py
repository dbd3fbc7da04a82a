"""A real browser behind `interface.Browser`: tabs of a Chromium context, driven by playwright.

Elements are found as a person finds them: the tree is read from the live page (tree.js), a click is
a click of the mouse at a point of the element, text is typed by the keyboard.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from environments.web.axtree import TEXT_ROLES, Field, Node
from environments.web.browser import BLANK, FOCUSABLE, MAX_TABS, MAX_TEXT, MAX_URL
from environments.web.interface import Direction, View

_HERE = Path(__file__).parent
LISTENERS, TREE, ACT = (
    (_HERE / name).read_text("utf-8") for name in ("listeners.js", "tree.js", "act.js")
)
_FLUSH = """() => new Promise((done) => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => done();
  channel.port2.postMessage(0);
})"""
_RESET = "() => { for (const form of document.forms) form.reset() }"
_BLUR = "() => document.activeElement.blur()"
KEYS_BY_ONE = 200  # characters that are typed key by key where scripts may listen
KEYS = "Enter, Tab, Shift+Tab, Escape, Backspace, PageDown, PageUp"
POLL_MS = 3
CLOCK_START = 1_500_000_000  # seconds: July 2017


@dataclass(slots=True)
class _Tab:
    """A tab and what is known of it."""

    page: Any  # playwright.sync_api.Page
    first: int = 0  # line at the top of the viewport
    title: str = ""
    nodes: tuple[Node, ...] = ()
    scripted: bool = False
    focus: int = 0  # id of the focused element
    can_go_back: bool = False
    can_go_forward: bool = False
    asked: bool = False  # the page has asked for a navigation that has not begun
    loading: bool = False
    document: int = 0  # counts the documents that were loaded


class ChromiumBrowser:
    """Implements `interface.Browser` over a playwright context, which it closes.

    Args:
        context: of playwright; its pages are the tabs.
        origins: where the agent may go, `http://site.test`; empty: everywhere.
        start: address of the first tab.
        viewport: lines of a page that are in view.
        wait_ms: longest wait for a page to load; what is there by then is shown.
        shapes: parts of SVG drawings are lines too.
        skip: CSS selector of elements that are left out.
        stopped_clock: the pages' clock stands still but for `tick`.
    """

    def __init__(
        self,
        context: Any,
        origins: Sequence[str],
        start: str,
        viewport: int = 40,
        *,
        wait_ms: int = 10_000,
        shapes: bool = False,
        skip: str = "",
        stopped_clock: bool = False,
    ) -> None:
        self._context = context
        self._origins = tuple(origins)
        self._viewport = viewport
        self._wait_ms = wait_ms
        self._reading = [shapes, skip]
        self._tabs: list[_Tab] = []
        self._front = 0
        self._home = start
        context.add_init_script(LISTENERS)
        if stopped_clock:
            context.clock.install(time=CLOCK_START)
            context.clock.pause_at(CLOCK_START + 1)
        context.on("page", self._opened)
        context.new_page()
        self._load(start)

    @property
    def page(self) -> Any:
        """The page in front, for judges (`playwright.sync_api.Page`)."""
        return self._tab.page

    @property
    def _tab(self) -> _Tab:
        return self._tabs[self._front]

    # --- tabs come and go

    def _opened(self, page: Any) -> None:
        """A page has opened, ours or a popup: it is a tab now, and in front."""
        if len(self._tabs) >= MAX_TABS:
            page.close()
            return
        tab = _Tab(page)
        self._tabs.append(tab)
        self._front = len(self._tabs) - 1
        page.on("close", lambda _: self._closed(tab))
        page.on("dialog", lambda dialog: dialog.dismiss())
        protocol = self._context.new_cdp_session(page)

        def on(event: str, change: Callable[[], None]) -> None:
            protocol.on(f"Page.{event}", lambda _: change())

        on("frameRequestedNavigation", lambda: setattr(tab, "asked", True))
        on("frameStartedNavigating", lambda: setattr(tab, "loading", True))
        on("domContentEventFired", lambda: self._loaded(tab))
        on("frameStoppedLoading", lambda: self._loaded(tab))
        protocol.send("Page.enable")

    def _closed(self, tab: _Tab) -> None:
        if tab in self._tabs and len(self._tabs) > 1:
            front = self._tab
            self._tabs.remove(tab)
            self._front = self._tabs.index(front) if front in self._tabs else len(self._tabs) - 1

    @staticmethod
    def _loaded(tab: _Tab) -> None:
        tab.asked = tab.loading = False
        tab.document += 1
        tab.first = 0

    # --- loading and reading pages

    def goto(self, url: str) -> str:
        base = self._tab.page.url
        try:
            whole = urljoin(base if base != BLANK else self._home, url.strip())
            parts = urlsplit(whole)
        except ValueError:
            return f"{url[:100]!r} is not an address."
        if len(whole) > MAX_URL:
            return f"An address has at most {MAX_URL} characters."
        allowed = self._origins
        if allowed and f"{parts.scheme}://{parts.netloc}" not in allowed:
            return f"This browser reaches {', '.join(allowed)} only."
        if parts.scheme not in ("http", "https"):
            return f"{url[:100]!r} is no http address."
        return self._load(whole)

    def _load(self, url: str) -> str:
        return self._navigate(lambda page: page.goto(url, wait_until="domcontentloaded"))

    def _navigate(self, move: Callable[[Any], object]) -> str:
        """Load and read a page; a failure of the network is a note, not an error."""
        from playwright.sync_api import Error

        try:
            move(self._tab.page)
        except Error as error:
            return f"The page did not load: {error.message.splitlines()[0][:200]}"
        finally:
            self._loaded(self._tab)
            self._read()
        return ""

    def _settle(self) -> None:
        """Wait until what an action started is there: a page on its way, a tab that opened."""
        from playwright.sync_api import Error

        try:
            self._tab.page.evaluate(_FLUSH)
        except Error:  # the document went away: a navigation has begun
            self._tab.loading = True
        for _ in range(self._wait_ms // POLL_MS):
            if not (self._tab.asked or self._tab.loading):
                break
            self._tab.page.wait_for_timeout(POLL_MS)

    def _read(self) -> None:
        """Read the tree of the page in front; a page that changes under the reader is read anew."""
        from playwright.sync_api import Error

        tab = self._tab
        try:
            read = tab.page.evaluate(TREE, self._reading)
        except Error:
            self._settle()
            read = tab.page.evaluate(TREE, self._reading)
        tab.title, tab.scripted = read["title"], read["scripted"]
        tab.can_go_back, tab.can_go_forward = read["back"], read["forward"]
        tab.nodes = tuple(_node(i, raw) for i, raw in enumerate(read["nodes"], 1))
        tab.focus = next((node.id for node in tab.nodes if node.focused), 0)
        tab.first = min(tab.first, max(0, len(tab.nodes) - 1) // self._viewport * self._viewport)

    # --- elements

    def _find(self, id: int) -> Node | str:
        """Return the node in view with this id, or a note why there is none."""
        tab = self._tab
        total = len(tab.nodes)
        if not 1 <= id <= total:
            return f"There is no element [{id}]: this page has [1] to [{total}]."
        if not tab.first <= id - 1 < tab.first + self._viewport:
            direction = "up" if id - 1 < tab.first else "down"
            return f"Element [{id}] is not in view: scroll [{direction}]."
        return tab.nodes[id - 1]

    def _prepare(self, id: int, what: str, text: str = "") -> dict[str, Any] | str:
        """Return what act.js says of an element, or a note why it cannot be used."""
        said = self._tab.page.evaluate(ACT, [id, what, text])
        if said.get("gone"):
            return f"Element [{id}] is no longer on the page."
        if said.get("invalid"):
            self._read()
            return f"Element [{said['invalid']}] is required: fill it in first."
        return said

    def click(self, id: int) -> str:
        node = self._find(id)
        if isinstance(node, str):
            return node
        if node.role not in FOCUSABLE and not self._tab.scripted:
            return f"Nothing happens: [{id}] is no link, button or field."
        point = self._prepare(id, "click")
        if isinstance(point, str):
            return point
        self._tab.page.mouse.click(point["x"], point["y"])
        self._settle()
        self._read()
        return ""

    def type(self, id: int, text: str, enter: bool) -> str:
        node = self._find(id)
        if isinstance(node, str):
            return node
        if node.role not in TEXT_ROLES:
            return f"Element [{id}] is a {node.role}: type needs a textbox."
        field_now = self._prepare(id, "fill")
        if isinstance(field_now, str):
            return field_now
        keyboard = self._tab.page.keyboard
        text = text[:MAX_TEXT]
        if not field_now["empty"]:
            keyboard.press("Delete")
        if self._tab.scripted and len(text) <= KEYS_BY_ONE:
            keyboard.type(text)
        elif text:
            keyboard.insert_text(text)
        self._read()
        return self.press("Enter") if enter else ""

    def select(self, id: int, option: str) -> str:
        node = self._find(id)
        if isinstance(node, str):
            return node
        if node.role != "combobox" or node.field is None:
            return f"Element [{id}] is a {node.role}: select needs a combobox."
        said = self._prepare(id, "select", option)
        if isinstance(said, str):
            return said
        if said.get("option") is False:
            labels = ", ".join(f"'{label}'" for _, label in node.field.options)
            return f"Combobox [{id}] has no option '{option[:60]}'; it has {labels}."
        self._settle()
        self._read()
        return ""

    def hover(self, id: int) -> str:
        node = self._find(id)
        if isinstance(node, str):
            return node
        point = self._prepare(id, "hover")
        if isinstance(point, str):
            return point
        self._tab.page.mouse.move(point["x"], point["y"])
        self._read()
        return ""

    # --- keys

    def press(self, key: str) -> str:
        from playwright.sync_api import Error

        tab, key = self._tab, key.strip()
        if key in ("PageDown", "PageUp"):
            return self.scroll("down" if key == "PageDown" else "up")
        if not tab.scripted and (refusal := self._refusal(key)):
            return refusal
        if key == "Enter" and tab.focus:
            said = self._prepare(tab.focus, "enter")
            if isinstance(said, str):
                return said
        try:
            tab.page.keyboard.press(key)
        except Error:
            return f"There is no key {key[:40]!r}; keys: {KEYS}, and single characters."
        if key == "Escape" and not tab.scripted:
            tab.page.evaluate(_BLUR)
        self._settle()
        self._read()
        tab = self._tab
        if key in ("Tab", "Shift+Tab") and tab.focus:
            tab.first = (tab.focus - 1) // self._viewport * self._viewport
        return ""

    def _refusal(self, key: str) -> str:
        """Return why a key does nothing on a page without scripts, empty if it does something."""
        tab = self._tab
        if key in ("Tab", "Shift+Tab"):
            return ""
        if not tab.focus:
            return f"Nothing happens: no element has the focus for {key[:40]!r}."
        writes = len(key) == 1 or key == "Backspace"
        if key in ("Enter", "Escape") or (writes and tab.nodes[tab.focus - 1].role in TEXT_ROLES):
            return ""
        return (
            f"The key {key[:40]!r} does nothing here; keys: {KEYS}, "
            "and single characters in a textbox."
        )

    # --- scrolling, history, tabs

    def scroll(self, direction: Direction) -> str:
        tab = self._tab
        if direction == "up":
            if tab.first == 0:
                return "This is the top of the page."
            tab.first = max(0, tab.first - self._viewport)
        elif tab.first + self._viewport >= len(tab.nodes):
            return "This is the end of the page."
        else:
            tab.first += self._viewport
        return ""

    def go_back(self) -> str:
        if not self._tab.can_go_back:
            return "There is no page to go back to."
        return self._navigate(lambda page: _travel(page, page.go_back))

    def go_forward(self) -> str:
        if not self._tab.can_go_forward:
            return "There is no page to go forward to."
        return self._navigate(lambda page: _travel(page, page.go_forward))

    def new_tab(self) -> str:
        if len(self._tabs) == MAX_TABS:
            return f"There are {MAX_TABS} tabs open: close one first."
        self._context.new_page()
        self._read()
        return ""

    def tab_focus(self, index: int) -> str:
        if not 0 <= index < len(self._tabs):
            return f"There is no tab {index}: tabs are 0 to {len(self._tabs) - 1}."
        self._front = index
        self._tab.page.bring_to_front()
        self._read()
        return ""

    def close_tab(self) -> str:
        if len(self._tabs) == 1:
            return "The last tab stays open."
        index = self._front
        self._tab.page.close()
        self._front = min(index, len(self._tabs) - 1)
        self._read()
        return ""

    def view(self) -> View:
        tab = self._tab
        return View(
            url=tab.page.url,
            tabs=tuple(other.title or "blank" for other in self._tabs),
            tab=self._front,
            nodes=tab.nodes[tab.first : tab.first + self._viewport],
            first=tab.first,
            total=len(tab.nodes),
            can_go_back=tab.can_go_back,
            can_go_forward=tab.can_go_forward,
        )

    def refresh(self) -> None:
        """Read the page again: scripts may have changed it."""
        self._settle()
        self._read()

    def tick(self, milliseconds: int) -> None:
        """Move the clock of a browser with `stopped_clock`, and read the page again."""
        self._context.clock.run_for(milliseconds)
        self._read()

    def detach(self) -> Any:
        """Return the page in front for a judge; pages that it opens are no tabs."""
        self._context.remove_listener("page", self._opened)
        return self._tab.page

    def close(self) -> None:
        close_context(self._context)


def close_context(context: Any) -> None:
    """Close a playwright context; its browser may have crashed."""
    from playwright.sync_api import Error

    with suppress(Error):
        context.close()


def _travel(page: Any, move: Callable[..., object]) -> None:
    """Move in the history. Chromium fills forms with what was typed before; here a page of the
    history is as the site gives it, as in the text browser."""
    move(wait_until="domcontentloaded")
    page.evaluate(_RESET)


def _node(id: int, raw: dict[str, Any]) -> Node:
    more = raw.get("field")
    control = None
    if more is not None:
        options = tuple((value, label) for value, label in more.pop("options"))
        control = Field(options=options, **more)
    return Node(
        id,
        raw["role"],
        raw["name"],
        (),
        field=control,
        cells=tuple(raw.get("cells", ())),
        focused=raw["focused"],
    )
