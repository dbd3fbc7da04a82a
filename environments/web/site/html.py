"""HTML from Python: whatever is not `Html` already is escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import urlencode

_VOID = ("input", "br", "hr", "link", "meta")


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return a value as HTML: escaped unless it is HTML."""
    return value if type(value) is Html else Html(escape(str(value)))


def join(parts: Iterable[object]) -> Html:
    return Html("".join(map(text, parts)))


def el(tag: str, *children: object, **attributes: object) -> Html:
    """Return an element. `for_` gives the attribute `for`, `aria_label` gives `aria-label`; True
    gives an attribute without a value, False and None none."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{join(children)}</{tag}>")


def link(label: object, href: str) -> Html:
    return el("a", label, href=href)


def row(*cells: object) -> Html:
    return el("tr", *(el("td", cell) for cell in cells))


def table(*rows: Sequence[object]) -> Html:
    return el("table", *(row(*cells) for cells in rows))


def items(entries: Iterable[object]) -> Html:
    return el("ul", *(el("li", entry) for entry in entries))


def form(action: str, *children: object, method: str = "post", **hidden: object) -> Html:
    kept = (el("input", type="hidden", name=key, value=value) for key, value in hidden.items())
    return el("form", *kept, *children, action=action, method=method)


def button(label: str, name: str | None = None, value: object = None) -> Html:
    return el("button", label, type="submit", name=name, value=value)


def textbox(
    label: str, name: str, value: object = "", *, required: bool = False, type: str = "text"
) -> Html:
    key = f"f-{name}"
    return el(
        "p",
        el("label", label, for_=key),
        el("input", id=key, type=type, name=name, value=value, required=required),
    )


def textarea(label: str, name: str, value: object = "") -> Html:
    key = f"f-{name}"
    return el("p", el("label", label, for_=key), el("textarea", value, id=key, name=name))


def checkbox(label: str, name: str, checked: bool = False) -> Html:
    key = f"f-{name}"
    return el(
        "p",
        el("input", id=key, type="checkbox", name=name, value="1", checked=checked),
        el("label", label, for_=key),
    )


def select(label: str, name: str, options: Sequence[tuple[object, str]], chosen: object) -> Html:
    """A combobox; `options` are (value, label)."""
    key = f"f-{name}"
    entries = (
        el("option", shown, value=value, selected=str(value) == str(chosen))
        for value, shown in options
    )
    return el("p", el("label", label, for_=key), el("select", *entries, id=key, name=name))


def search_form(action: str, query: str = "") -> Html:
    box = el("input", type="search", name="q", value=query, aria_label="Search", required=True)
    return form(action, box, button("Search"), method="get")


def pager(path: str, page: int, pages: int, **query: object) -> Html:
    """Links to the pages before and after, and where one is; nothing for a single page."""
    if pages <= 1:
        return Html("")

    def to(number: int) -> str:
        return f"{path}?{urlencode({**query, 'page': number})}"

    before = link("Previous page", to(page - 1)) if page > 1 else ""
    after = link("Next page", to(page + 1)) if page < pages else ""
    return el("p", before, f" page {page} of {pages} ", after)


def dots(*parts: object) -> Html:
    """Return the parts with dots between, `by ada · 3 stars`."""
    return join(part for i, one in enumerate(parts) for part in ((" · ", one) if i else (one,)))


def plural(number: int, noun: str, nouns: str = "") -> str:
    """Return `1 star`, `2 stars`."""
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


def money(cents: int) -> str:
    return f"${cents // 100}.{cents % 100:02d}"
