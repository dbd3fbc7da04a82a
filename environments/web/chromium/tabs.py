"""The tabs of a Chromium context: how they come and go, load, and are read as trees.

Whatever an action starts, a page that loads or a popup that opens, is announced by the events of
Chromium's protocol; `_settle` waits for what was announced, so no page is read half-way.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments.web.axtree import Field, Node
from environments.web.browser import BLANK, MAX_TABS
from environments.web.interface import Direction, View
from environments.web.refusals import resolve, scrolled

_HERE = Path(__file__).parent
LISTENERS, TREE = ((_HERE / name).read_text("utf-8") for name in ("listeners.js", "tree.js"))
_FLUSH = """new Promise((done) => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => done();
  channel.port2.postMessage(0);
})"""
_IS_LOADING = "() => document.readyState === 'loading'"
_RESET = "() => { for (const form of document.forms) form.reset() }"
POLL_MS = 3
CLOCK_START = 1_500_000_000  # seconds: July 2017


@dataclass(slots=True)
class Tab:
    """A tab and what is known of it."""

    page: Any  # playwright.sync_api.Page
    protocol: Any  # playwright.sync_api.CDPSession
    first: int = 0  # line at the top of the viewport
    title: str = ""
    nodes: tuple[Node, ...] = ()
    scripted: bool = False
    focus: int = 0  # id of the focused element
    can_go_back: bool = False
    can_go_forward: bool = False
    asked: bool = False  # the page has asked for a navigation that has not begun
    loading: bool = False


class Tabs:
    """The half of `interface.Browser` that is about pages, over a playwright context.

    Args:
        context: of playwright; its pages are the tabs.
        origins: where the agent may go, `http://site.test`; empty: everywhere.
        start: address of the first tab.
        viewport: lines of a page that are in view.
        wait_ms: longest wait for pages to load or open; what is there by then is shown.
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
        self._tabs: list[Tab] = []
        self._front = 0
        self._coming = 0  # pages that were announced and have not opened yet
        self._home = start
        context.add_init_script(LISTENERS)
        if stopped_clock:
            context.clock.install(time=CLOCK_START)
            context.clock.pause_at(CLOCK_START + 1)
        context.on("page", self._opened)
        self._open()
        self._load(start)

    @property
    def page(self) -> Any:
        """The page in front, for judges (`playwright.sync_api.Page`)."""
        return self._tab.page

    @property
    def _tab(self) -> Tab:
        return self._tabs[self._front]

    # --- tabs come and go

    def _open(self) -> None:
        """Open a blank tab. Raises `TimeoutError` if Chromium does not."""
        self._coming += 1
        page = self._context.new_page()
        self._wait_while(lambda: self._coming > 0, page)
        if self._coming:
            raise TimeoutError(f"Chromium opened no tab within {self._wait_ms} ms")

    def _opened(self, page: Any) -> None:
        """A page has opened, ours or a popup: it is a tab now, and in front.

        It runs beside whatever waits in the meantime: the tab is added when it is complete.
        """
        from playwright.sync_api import Error

        try:
            self._add(page)
        except Error:
            pass  # a popup that closed itself at once never was a tab
        finally:
            self._coming = max(0, self._coming - 1)

    def _add(self, page: Any) -> None:
        tab = Tab(page, self._context.new_cdp_session(page))

        def on(event: str, change: Callable[[Any], None]) -> None:
            tab.protocol.on(f"Page.{event}", change)

        on("windowOpen", self._announced)
        on("frameRequestedNavigation", lambda about: _asked(tab, about))
        on("frameStartedNavigating", lambda _: setattr(tab, "loading", True))
        on("domContentEventFired", lambda _: _loaded(tab))
        on("frameStoppedLoading", lambda _: _loaded(tab))
        page.on("dialog", lambda dialog: dialog.dismiss())
        tab.protocol.send("Page.enable")
        if page.evaluate(_IS_LOADING):
            tab.loading = True
        if page.is_closed():
            return
        if len(self._tabs) >= MAX_TABS:
            page.close()
            return
        page.on("close", lambda _: self._closed(tab))
        self._tabs.append(tab)
        self._front = len(self._tabs) - 1

    def _announced(self, _: Any) -> None:
        self._coming += 1

    def _closed(self, tab: Tab) -> None:
        if tab in self._tabs and len(self._tabs) > 1:
            front = self._tab
            self._tabs.remove(tab)
            self._front = self._tabs.index(front) if front in self._tabs else len(self._tabs) - 1

    # --- loading and reading pages

    def goto(self, url: str) -> str:
        base = self._tab.page.url
        whole, refusal = resolve(url, base if base != BLANK else self._home, self._origins)
        return refusal or self._load(whole)

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
            _loaded(self._tab)
            self._read()
        return ""

    def _settle(self) -> None:
        """Wait until what an action started is there: a page on its way, a tab that opens.

        The flush comes back over the connection that carries the announcements, and Chromium keeps
        their order: what the action caused has been announced when it is answered.
        """
        from playwright.sync_api import Error

        tab = self._tab
        try:
            tab.protocol.send("Runtime.evaluate", {"expression": _FLUSH, "awaitPromise": True})
        except Error:  # the document went away: a navigation has begun
            tab.loading = True
        self._wait_while(lambda: self._coming > 0 or self._tab.asked or self._tab.loading)
        self._coming = 0  # what has not opened by now is not waited for again

    def _wait_while(self, condition: Callable[[], bool], page: Any = None) -> None:
        """Let events arrive until the condition is false, at most `wait_ms`."""
        from playwright.sync_api import Error

        for _ in range(self._wait_ms // POLL_MS):
            if not condition():
                return
            with suppress(Error):  # the page in front may close while it is waited on
                (page or self._tab.page).wait_for_timeout(POLL_MS)

    def _read(self) -> None:
        """Read the tree of the page in front; a page that changes under the reader is read anew."""
        from playwright.sync_api import Error

        tab = self._tab
        try:
            read = tab.page.evaluate(TREE, self._reading)
        except Error:
            self._settle()
            tab = self._tab
            read = tab.page.evaluate(TREE, self._reading)
        tab.title, tab.scripted = read["title"], read["scripted"]
        tab.can_go_back, tab.can_go_forward = read["back"], read["forward"]
        tab.nodes = tuple(_node(i, raw) for i, raw in enumerate(read["nodes"], 1))
        tab.focus = next((node.id for node in tab.nodes if node.focused), 0)
        tab.first = min(tab.first, max(0, len(tab.nodes) - 1) // self._viewport * self._viewport)

    # --- scrolling, history, tabs

    def scroll(self, direction: Direction) -> str:
        tab = self._tab
        first = scrolled(direction, tab.first, self._viewport, len(tab.nodes))
        if isinstance(first, str):
            return first
        tab.first = first
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
        self._open()
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


def _asked(tab: Tab, about: Any) -> None:
    """A page has asked for a navigation; what goes to another tab or a file is not its own."""
    if about.get("disposition", "currentTab") == "currentTab":
        tab.asked = True


def _loaded(tab: Tab) -> None:
    tab.asked = tab.loading = False
    tab.first = 0


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
