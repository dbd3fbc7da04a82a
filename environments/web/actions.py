"""WebArena's action grammar (arXiv 2307.13854, table 1), with `select` for comboboxes.

click [12]      type [7] [blue kettle] [1]      stop [$12.50]
"""

import re
from dataclasses import dataclass

from environments.web.interface import Browser, View
from scalinginter.errors import nearest
from scalinginter.types import Tool

MAX_ACTION = 6000  # characters that are read

GRAMMAR = """\
click [id] - click an element
type [id] [text] [1] - replace a textbox's content with the text and press Enter; [0]: no Enter
select [id] [option] - choose an option of a combobox
hover [id] - move the pointer to an element
press [key] - press Enter, Tab, Escape, Backspace, PageDown, PageUp or a character
scroll [down] or scroll [up] - move the view
goto [url] - open an address
go_back and go_forward - move in the history
new_tab, tab_focus [number], close_tab - tabs are numbered from 0
stop [answer] - end: the task is done; the answer is what was asked for, empty if nothing was"""


@dataclass(frozen=True, slots=True)
class Action:
    """A parsed action."""

    kind: str
    id: int = 0  # of an element; of a tab
    text: str = ""  # typed text, option, key, direction, address, answer
    enter: bool = True


_ID = r"\s*\[\s*(\d{1,6})\s*\]"
_FORMS: dict[str, tuple[re.Pattern[str], str]] = {
    "click": (re.compile(_ID), "click [id]"),
    "type": (
        re.compile(_ID + r"\s*\[(.*?)\](?:\s*\[([01])\])?", re.DOTALL),
        "type [id] [text] [1]",
    ),
    "select": (re.compile(_ID + r"\s*\[(.*)\]", re.DOTALL), "select [id] [option]"),
    "hover": (re.compile(_ID), "hover [id]"),
    "press": (re.compile(r"\s*\[(.{1,40})\]", re.DOTALL), "press [key]"),
    "scroll": (
        re.compile(r"\s*\[?(?:direction=)?(up|down)\]?", re.IGNORECASE),
        "scroll [down] or scroll [up]",
    ),
    "goto": (re.compile(r"\s*\[?([^\s\[\]]+)\]?"), "goto [url]"),
    "go_back": (re.compile(""), "go_back"),
    "go_forward": (re.compile(""), "go_forward"),
    "new_tab": (re.compile(""), "new_tab"),
    "tab_focus": (re.compile(_ID), "tab_focus [number]"),
    "close_tab": (re.compile(""), "close_tab"),
    "stop": (re.compile(r"\s*(?:\[(.*)\])?", re.DOTALL), "stop [answer]"),
}
_VERB = re.compile(r"[a-z_]+")


def parse_action(text: str) -> Action | str:
    """Return the action that a text names, or a hint that says how to write it."""
    text = text[:MAX_ACTION].encode("utf-8", "replace").decode()  # JSON can hold half characters
    text = text.strip().strip("`").strip()
    match = _VERB.match(text.lower())
    verb = match.group() if match else ""
    if verb not in _FORMS:
        known = ", ".join(_FORMS)
        return f"Not an action{nearest(verb[:20], _FORMS)}. Actions: {known}."
    pattern, form = _FORMS[verb]
    found = pattern.fullmatch(text[len(verb) :].strip())
    if found is None:
        return f"Write {verb} as: {form}"
    groups = found.groups()
    if verb in ("click", "hover", "tab_focus"):
        return Action(verb, id=int(groups[0]))
    if verb == "type":
        return Action(verb, id=int(groups[0]), text=groups[1], enter=groups[2] != "0")
    if verb == "select":
        return Action(verb, id=int(groups[0]), text=groups[1])
    return Action(verb, text=(groups[0] or "") if groups else "")


def perform(browser: Browser, action: Action) -> str:
    """Do anything but `stop` in a browser; return its note."""
    match action.kind:
        case "click":
            return browser.click(action.id)
        case "type":
            return browser.type(action.id, action.text, action.enter)
        case "select":
            return browser.select(action.id, action.text)
        case "hover":
            return browser.hover(action.id)
        case "press":
            return browser.press(action.text)
        case "scroll":
            return browser.scroll("up" if action.text.lower() == "up" else "down")
        case "goto":
            return browser.goto(action.text)
        case "go_back":
            return browser.go_back()
        case "go_forward":
            return browser.go_forward()
        case "new_tab":
            return browser.new_tab()
        case "tab_focus":
            return browser.tab_focus(action.id)
        case "close_tab":
            return browser.close_tab()
    raise AssertionError(f"{action.kind} is not for a browser")


def render(view: View, note: str = "") -> str:
    """Return the observation: a note, tabs where there are several, the address, the lines in
    view, and how many are out of view."""
    lines = [note] if note else []
    if len(view.tabs) > 1:
        tabs = " | ".join(f"Tab {i}: {title}" for i, title in enumerate(view.tabs))
        lines.append(f"{tabs} (current: Tab {view.tab})")
    lines.append(f"URL: {view.url}")
    if view.first:
        lines.append(f"({view.first} lines above)")
    lines += [node.line for node in view.nodes]
    return "\n".join([*lines, *_below(view)])


def render_brief(view: View, note: str = "") -> str:
    """Return the observation in few words, for very small models: no address, no tabs."""
    lines = [note] if note else []
    if view.first:
        lines.append(f"({view.first} lines above)")
    return "\n".join([*lines, *(node.brief for node in view.nodes), *_below(view)])


def _below(view: View) -> list[str]:
    below = view.total - view.first - len(view.nodes)
    return [f"({below} lines below)"] if below else []


def _tool(name: str, description: str, template: str, **parameters: tuple[str, str]) -> Tool:
    properties = {key: {"type": kind, "description": d} for key, (kind, d) in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(name, description, schema, template)


_ELEMENT = ("integer", "id of an element in view")

TOOLS: tuple[Tool, ...] = (
    _tool("click", "Click an element.", "click [{id}]", id=_ELEMENT),
    _tool(
        "type",
        "Replace the content of a textbox.",
        "type [{id}] [{text}] [{enter}]",
        id=_ELEMENT,
        text=("string", "the new content"),
        enter=("integer", "1: press Enter afterwards, 0: do not"),
    ),
    _tool(
        "select",
        "Choose an option of a combobox.",
        "select [{id}] [{option}]",
        id=_ELEMENT,
        option=("string", "the option's label"),
    ),
    _tool("hover", "Move the pointer to an element.", "hover [{id}]", id=_ELEMENT),
    _tool("press", "Press a key.", "press [{key}]", key=("string", "Enter, Tab, PageDown, ...")),
    _tool("scroll", "Move the view.", "scroll [{direction}]", direction=("string", "up or down")),
    _tool("goto", "Open an address.", "goto [{url}]", url=("string", "the address")),
    _tool("go_back", "Go back in the history.", "go_back"),
    _tool("go_forward", "Go forward in the history.", "go_forward"),
    _tool("new_tab", "Open a tab.", "new_tab"),
    _tool("tab_focus", "Go to a tab.", "tab_focus [{number}]", number=("integer", "from 0")),
    _tool("close_tab", "Close the tab in front.", "close_tab"),
    _tool(
        "stop",
        "End the task.",
        "stop [{answer}]",
        answer=("string", "what was asked for; empty if nothing was"),
    ),
)
"""The actions as functions (OpenAI's schema)."""
