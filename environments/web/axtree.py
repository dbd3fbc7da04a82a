"""HTML to an accessibility tree: one line per element, with an id to act on it.

    [1] RootWebArea 'Cart'
    [2] link 'Shop'
    [9] textbox 'Quantity' required: True value: '2'
    [10] combobox 'Shipping' value: 'standard' options: 'standard', 'express'
    [11] row 'Total $12.50'

In the style of WebArena (arXiv 2307.13854), flatter: the tree's lines have no indentation, labels
are names of their controls only, and a table row that holds nothing but text is one line. Ids count
the lines of the page, from 1 in document order: the same HTML gives the same ids.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from environments.web.errors import require_selectolax

CACHED_PAGES = 512

TEXT_ROLES = ("textbox", "searchbox")
_HIDDEN = frozenset(["head", "script", "style", "template", "noscript", "label", "option"])
_INLINE = frozenset(["span", "b", "strong", "em", "i", "small", "code", "abbr", "time"])
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_INPUT_ROLES = {
    "checkbox": "checkbox",
    "radio": "radio",
    "search": "searchbox",
    "submit": "button",
}
_CONTROLS = "a[href],button,input,select,textarea"
_PART = re.compile(r" · | = |: ")


@dataclass(frozen=True, slots=True)
class Field:
    """What a control has and sends with its form."""

    name: str
    value: str
    checked: bool = False  # checkbox, radio
    options: tuple[tuple[str, str], ...] = ()  # (value, label) of a combobox
    required: bool = False
    multiline: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """An element of the page, as a line of the tree."""

    id: int
    role: str
    name: str
    path: tuple[int, ...]  # child-element positions from <html>; of a text, its parent element's
    href: str = ""  # link
    form: int | None = None  # control: position of its form on the page
    field: Field | None = None  # control
    cells: tuple[str, ...] = ()  # row: its cells' texts
    focused: bool = False

    @property
    def line(self) -> str:
        """The node as the agent sees it."""
        text = f"[{self.id}] {self.role} '{self.name}'"
        if self.focused:
            text += " focused: True"
        if self.field is None or self.role == "button":
            return text
        if self.role in ("checkbox", "radio"):
            return f"{text} checked: {self.field.checked}"
        if self.role == "combobox":
            labels = dict(self.field.options)
            options = ", ".join(f"'{label}'" for label in labels.values())
            return f"{text} value: '{labels.get(self.field.value, '')}' options: {options}"
        text += f" required: {self.field.required}"
        return f"{text} value: '{collapse(self.field.value)}'" if self.field.value else text

    @property
    def brief(self) -> str:
        """The node in few words: no quotes, and the id last."""
        role = "text" if self.role in ("StaticText", "row", "heading") else self.role
        now = ""
        if self.field is not None and self.role != "button":
            ticked = self.role in ("checkbox", "radio")
            now = f" {self.field.checked}" if ticked else f" {collapse(self.field.value)}"
        return f"{role} {self.name}{now.rstrip()} {self.id}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The node's name and the pieces of it that can be an answer by themselves."""
        pieces = [piece for text in (*self.cells, self.name) for piece in _PART.split(text)]
        return tuple(dict.fromkeys(piece for piece in (self.name, *pieces) if piece))


@dataclass(frozen=True, slots=True)
class Form:
    """Where a form goes."""

    action: str
    method: str  # GET or POST
    hidden: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A parsed page. Immutable: what an agent types is kept by the browser."""

    title: str
    nodes: tuple[Node, ...]
    forms: tuple[Form, ...]


def collapse(text: str) -> str:
    """Return the text with every run of white space as one blank, without ends."""
    return " ".join(text.split())


@lru_cache(maxsize=CACHED_PAGES)
def parse(html: str) -> Page:
    """Parse a page. Raises `UserError` if the package selectolax is missing."""
    return _Reader(require_selectolax()(html)).read()


class _Reader:
    """Walks a document once and collects lines."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._nodes: list[Node] = []
        self._forms: list[Form] = []
        self._text: list[str] = []  # of inline content that is not a line yet
        self._labels = {
            label.attributes.get("for"): collapse(label.text()) for label in document.css("label")
        }

    def read(self) -> Page:
        title_tag = self._document.css_first("title")
        title = collapse(title_tag.text()) if title_tag is not None else ""
        self._add("RootWebArea", title, ())
        root = self._document.root
        position = 0
        for child in _children(root):
            if child.tag == "body":
                self._walk(child, (position,), None)
                self._flush((position,))
            position += not child.tag.startswith("-")
        return Page(title, tuple(self._nodes), tuple(self._forms))

    def _add(self, role: str, name: str, path: tuple[int, ...], **more: Any) -> None:
        self._nodes.append(Node(len(self._nodes) + 1, role, name, path, **more))

    def _flush(self, path: tuple[int, ...]) -> None:
        text = collapse("".join(self._text))
        self._text.clear()
        if text:
            self._add("StaticText", text, path)

    def _walk(self, parent: Any, path: tuple[int, ...], form: int | None) -> None:
        position = 0
        for child in _children(parent):
            tag = child.tag
            if tag == "-text":
                self._text.append(child.text_content or "")
                continue
            if tag.startswith("-"):  # a comment is no element
                continue
            here = (*path, position)
            position += 1
            if tag in _HIDDEN or "hidden" in child.attributes:
                continue
            if tag in _INLINE:
                self._walk(child, here, form)
                continue
            self._flush(path)
            self._element(child, tag, here, form)
            self._flush(here)

    def _element(self, element: Any, tag: str, path: tuple[int, ...], form: int | None) -> None:
        attributes = element.attributes
        if tag == "a" and attributes.get("href") is not None:
            name = attributes.get("aria-label") or collapse(element.text())
            self._add("link", name, path, href=attributes["href"])
        elif tag in _HEADINGS:
            self._add("heading", collapse(element.text()), path)
        elif tag == "img":
            self._add("img", attributes.get("alt") or "", path)
        elif tag in ("input", "button", "select", "textarea"):
            self._control(element, tag, path, form)
        elif tag == "tr" and element.css_first(_CONTROLS) is None:
            cells = tuple(collapse(cell.text()) for cell in element.css("td,th"))
            self._add("row", " ".join(cells), path, cells=cells)
        elif tag == "form":
            method = (attributes.get("method") or "get").upper()
            self._forms.append(Form(attributes.get("action") or "", method, _hidden(element)))
            self._walk(element, path, len(self._forms) - 1)
        else:
            self._walk(element, path, form)

    def _control(self, element: Any, tag: str, path: tuple[int, ...], form: int | None) -> None:
        attributes = element.attributes
        kind = attributes.get("type") or ("submit" if tag == "button" else "text")
        if kind == "hidden":
            return
        value = attributes.get("value") or ""
        name = attributes.get("aria-label") or self._labels.get(attributes.get("id"))
        options: tuple[tuple[str, str], ...] = ()
        if tag == "select":
            role, options, value = "combobox", *_options(element)
        elif tag == "textarea":
            role, value = "textbox", element.text()
        elif tag == "button":
            role, name = "button", name or collapse(element.text())
        else:
            role = _INPUT_ROLES.get(kind, "textbox")
        field = Field(
            name=attributes.get("name") or "",
            value=value,
            checked="checked" in attributes,
            options=options,
            required="required" in attributes,
            multiline=tag == "textarea",
        )
        shown = name or attributes.get("placeholder") or (value if role == "button" else "")
        self._add(role, shown, path, form=form, field=field)


def _children(element: Any) -> Iterator[Any]:
    child = element.child
    while child is not None:
        yield child
        child = child.next


def _hidden(form: Any) -> tuple[tuple[str, str], ...]:
    inputs = form.css("input[type=hidden]")
    return tuple((i.attributes.get("name") or "", i.attributes.get("value") or "") for i in inputs)


def _options(select: Any) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the options as (value, label), and the value of the selected one."""
    options: list[tuple[str, str]] = []
    chosen: str | None = None
    for option in select.css("option"):
        label = collapse(option.text())
        value = option.attributes.get("value")
        options.append((label if value is None else value, label))
        if "selected" in option.attributes:
            chosen = options[-1][0]
    return tuple(options), chosen if chosen is not None else (options[0][0] if options else "")


def with_state(node: Node, value: str | bool | None, focused: bool) -> Node:
    """Return the node as it is after typing, choosing or ticking: `value` None changes nothing."""
    if value is None:
        return replace(node, focused=True) if focused else node
    assert node.field is not None
    if isinstance(value, bool):
        return replace(node, field=replace(node.field, checked=value), focused=focused)
    return replace(node, field=replace(node.field, value=value), focused=focused)
