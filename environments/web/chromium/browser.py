"""A real browser behind `interface.Browser`: elements and keys of the tabs of a Chromium context.

Elements are found as a person finds them: the tree is read from the live page (tree.js), a click is
a click of the mouse at a point of the element, text is typed by the keyboard.
"""

from pathlib import Path
from typing import Any

from environments.web.axtree import TEXT_ROLES, Node
from environments.web.browser import FOCUSABLE, MAX_TEXT
from environments.web.chromium.tabs import Tabs
from environments.web.refusals import KEYS, find, no_combobox, no_key, no_option, no_textbox

ACT = (Path(__file__).parent / "act.js").read_text("utf-8")
_BLUR = "() => document.activeElement.blur()"
KEYS_BY_ONE = 200  # characters that are typed key by key where scripts may listen


class ChromiumBrowser(Tabs):
    """Implements `interface.Browser` over a playwright context, which it closes.

    Args: those of `environments.web.chromium.tabs.Tabs`.
    """

    # --- elements

    def _find(self, id: int) -> Node | str:
        """Return the node in view with this id, or a note why there is none."""
        return find(self._tab.nodes, id, self._tab.first, self._viewport)

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
        self.refresh()
        return ""

    def type(self, id: int, text: str, enter: bool) -> str:
        node = self._find(id)
        if isinstance(node, str):
            return node
        if refusal := no_textbox(node):
            return refusal
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
        if refusal := no_combobox(node):
            return refusal
        said = self._prepare(id, "select", option)
        if isinstance(said, str):
            return said
        if said.get("option") is False:
            return no_option(node, option)
        self.refresh()
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
        self.refresh()
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
        return no_key(key)
