"""What web environments ask of a browser and of a site.

`TextBrowser` (browser.py) implements `Browser` in process. A driver of a real browser implements
the same methods: it parses its page's HTML with `axtree.parse`, so that element ids and lines are
the same, and finds an element by its node's `path`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from environments.web.axtree import Node

Direction = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Response:
    """What a site answers to one request."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    html: str = ""


class Site(Protocol):
    """A web site, called without a network."""

    @property
    def origins(self) -> tuple[str, ...]:
        """The origins that it serves, `http://site.test`; a browser goes nowhere else."""
        ...

    def handle(
        self, method: str, path: str, form: Mapping[str, str] | None = None, cookie: str = ""
    ) -> Response:
        """Answer a request. `path` has the query, `form` is what a POST sends, `cookie` is the
        value of the session cookie. A new session cookie comes back in `Set-Cookie`."""
        ...


@dataclass(frozen=True, slots=True)
class View:
    """What the agent sees of the browser."""

    url: str
    tabs: tuple[str, ...]  # titles
    tab: int  # the one in front
    nodes: tuple[Node, ...]  # those in the viewport, as they are now
    first: int  # position of the first of them on the page, from 0
    total: int  # nodes of the page
    can_go_back: bool = False
    can_go_forward: bool = False

    @property
    def more_below(self) -> bool:
        return self.first + len(self.nodes) < self.total


class Browser(Protocol):
    """A browser with tabs. Actions return a note for the agent, empty if all went as expected.

    None of them raises for what an agent may ask: unknown ids, elements out of view, foreign
    addresses and keys without a meaning get a note that says what to do.
    """

    def goto(self, url: str) -> str:
        """Open an address, relative to the current one, in the tab in front."""
        ...

    def click(self, id: int) -> str: ...

    def type(self, id: int, text: str, enter: bool) -> str:
        """Replace a text field's content; `enter`: and press Enter."""
        ...

    def select(self, id: int, option: str) -> str:
        """Choose a combobox's option by its label."""
        ...

    def hover(self, id: int) -> str: ...

    def press(self, key: str) -> str:
        """Press a key or a combination, `Enter`, in the focused element."""
        ...

    def scroll(self, direction: Direction) -> str: ...

    def go_back(self) -> str: ...

    def go_forward(self) -> str: ...

    def new_tab(self) -> str: ...

    def tab_focus(self, index: int) -> str: ...

    def close_tab(self) -> str: ...

    def view(self) -> View: ...

    def close(self) -> None:
        """Give back what the browser holds."""
        ...
