"""What both browsers refuse, in the same words: ids, addresses, fields, the ends of a page."""

from collections.abc import Sequence
from urllib.parse import urljoin, urlsplit

from environments.web.axtree import TEXT_ROLES, Node
from environments.web.interface import Direction

MAX_URL = 2000  # characters
KEYS = "Enter, Tab, Shift+Tab, Escape, Backspace, PageDown, PageUp"


def find(nodes: Sequence[Node], id: int, first: int, viewport: int) -> Node | str:
    """Return the node with this id, or a note why an agent that sees `viewport` lines from
    position `first` on cannot use it."""
    if not 1 <= id <= len(nodes):
        return f"There is no element [{id}]: this page has [1] to [{len(nodes)}]."
    if not first <= id - 1 < first + viewport:
        return f"Element [{id}] is not in view: scroll [{'up' if id - 1 < first else 'down'}]."
    return nodes[id - 1]


def resolve(url: str, base: str, origins: Sequence[str]) -> tuple[str, str]:
    """Return an address relative to `base` as a whole one, and a note if it is refused.

    `origins`: what may be reached, `http://site.test`; empty: everything over http.
    """
    try:
        whole = urljoin(base, url.strip())
        parts = urlsplit(whole)
    except ValueError:
        return "", f"{url[:100]!r} is not an address."
    if len(whole) > MAX_URL:
        return "", f"An address has at most {MAX_URL} characters."
    if origins and f"{parts.scheme}://{parts.netloc}" not in origins:
        return "", f"This browser reaches {', '.join(origins)} only."
    if parts.scheme not in ("http", "https"):
        return "", f"{url[:100]!r} is no http address."
    return whole, ""


def no_textbox(node: Node) -> str:
    """Return why nothing can be typed into a node, empty if it can."""
    if node.role in TEXT_ROLES:
        return ""
    return f"Element [{node.id}] is a {node.role}: type needs a textbox."


def no_combobox(node: Node) -> str:
    """Return why a node has nothing to select, empty if it has."""
    if node.role == "combobox" and node.field is not None:
        return ""
    return f"Element [{node.id}] is a {node.role}: select needs a combobox."


def no_option(node: Node, option: str) -> str:
    """Return a note with the options that a combobox does have."""
    assert node.field is not None
    labels = ", ".join(f"'{label}'" for _, label in node.field.options)
    return f"Combobox [{node.id}] has no option '{option[:60]}'; it has {labels}."


def no_key(key: str) -> str:
    """Return a note for a key that does nothing on a page without scripts."""
    return (
        f"The key {key[:40]!r} does nothing here; keys: {KEYS}, and single characters in a textbox."
    )


def scrolled(direction: Direction, first: int, viewport: int, total: int) -> int | str:
    """Return the position of the first line in view after a scroll, or why there is none."""
    if direction == "up":
        return max(0, first - viewport) if first else "This is the top of the page."
    return first + viewport if first + viewport < total else "This is the end of the page."
