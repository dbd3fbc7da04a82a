"""Scripted policies: from a goal and the first view to a whole plan. One for each kind of page."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from environments.web.axtree import Node

Nodes = Sequence[Node]
Expert = Callable[[str, Nodes], list[str]]

EXPERTS: dict[str, Expert] = {}
"""Page -> its policy."""


def _policy(*pages: str) -> Callable[[Expert], Expert]:
    def keep(expert: Expert) -> Expert:
        EXPERTS.update(dict.fromkeys(pages, expert))
        return expert

    return keep


def _quoted(goal: str) -> list[str]:
    return re.findall(r'"([^"]*)"', goal)


def _of(nodes: Nodes, *roles: str) -> list[Node]:
    return [node for node in nodes if node.role in roles]


def _ordinals(goal: str) -> list[int]:
    """Return the places that a goal names, `3rd` as 3."""
    return [int(digits) for digits in re.findall(r"(\d+)(?:st|nd|rd|th)", goal)]


def _click(nodes: Nodes, name: str, *roles: str) -> str:
    """Click the first element of this name."""
    wanted = name.strip().lower()
    found = (n for n in nodes[1:] if n.name.lower() == wanted and (not roles or n.role in roles))
    return f"click [{next(found).id}]"


def _submit(nodes: Nodes) -> str:
    return _click(nodes, "Submit", "button")


@_policy("click-test")
def _the_button(goal: str, nodes: Nodes) -> list[str]:
    return [f"click [{_of(nodes, 'button')[0].id}]"]


@_policy("click-test-2", "click-test-transfer")
def _button_one(goal: str, nodes: Nodes) -> list[str]:
    return [_click(nodes, "ONE")]


@_policy("click-button", "click-dialog-2", "click-link", "unicode-test")
def _named(goal: str, nodes: Nodes) -> list[str]:
    name = _quoted(goal)[0]
    return [_click(nodes, "Close" if name == "x" else name, "button", "link")]


@_policy("click-button-sequence")
def _one_then_two(goal: str, nodes: Nodes) -> list[str]:
    return [_click(nodes, "ONE"), _click(nodes, "TWO")]


@_policy("click-dialog")
def _close_dialog(goal: str, nodes: Nodes) -> list[str]:
    return [_click(nodes, "Close", "button")]


@_policy("click-checkboxes", "click-checkboxes-large", "click-checkboxes-transfer")
def _tick(goal: str, nodes: Nodes) -> list[str]:
    listed = goal.removeprefix("Select ").partition(" and click Submit")[0]
    names = [] if listed == "nothing" else listed.split(", ")
    return [*(_click(nodes, name, "checkbox") for name in names), _submit(nodes)]


@_policy("click-option")
def _choose_radio(goal: str, nodes: Nodes) -> list[str]:
    name = goal.removeprefix("Select ").partition(" and click Submit")[0]
    return [_click(nodes, name, "radio"), _submit(nodes)]


@_policy("choose-list")
def _choose_option(goal: str, nodes: Nodes) -> list[str]:
    name = goal.removeprefix("Select ").partition(" from the list")[0]
    return [f"select [{_of(nodes, 'combobox')[0].id}] [{name}]", _submit(nodes)]


@_policy("focus-text")
def _focus(goal: str, nodes: Nodes) -> list[str]:
    return [f"click [{_of(nodes, 'textbox')[0].id}]"]


@_policy("focus-text-2")
def _focus_nth(goal: str, nodes: Nodes) -> list[str]:
    position = int(next(iter(re.findall(r"(\d+)", goal)), 1))
    return [f"click [{_of(nodes, 'textbox')[position - 1].id}]"]


@_policy("enter-text", "enter-text-dynamic")
def _enter(goal: str, nodes: Nodes) -> list[str]:
    return [f"type [{_of(nodes, 'textbox')[0].id}] [{_quoted(goal)[0]}] [0]", _submit(nodes)]


@_policy("enter-text-2")
def _enter_in_case(goal: str, nodes: Nodes) -> list[str]:
    text = _quoted(goal)[0]
    text = text.upper() if "upper case" in goal else text.lower()
    return [f"type [{_of(nodes, 'textbox')[0].id}] [{text}] [0]", _submit(nodes)]


@_policy("enter-password")
def _enter_twice(goal: str, nodes: Nodes) -> list[str]:
    boxes = _of(nodes, "textbox")
    return [*(f"type [{box.id}] [{_quoted(goal)[0]}] [0]" for box in boxes), _submit(nodes)]


@_policy("login-user")
def _log_in(goal: str, nodes: Nodes) -> list[str]:
    pairs = zip(_of(nodes, "textbox"), _quoted(goal), strict=False)
    return [*(f"type [{box.id}] [{text}] [0]" for box, text in pairs), _click(nodes, "Login")]


@_policy("simple-arithmetic")
def _calculate(goal: str, nodes: Nodes) -> list[str]:
    said = " ".join(node.name for node in nodes)
    left, sign, right = re.findall(r"(\d+)\s*([-+x×*])\s*(\d+)", said)[0]
    first, second = int(left), int(right)
    result = {"+": first + second, "-": first - second}.get(sign, first * second)
    return [f"type [{_of(nodes, 'textbox')[0].id}] [{result}] [0]", _submit(nodes)]


@_policy("simple-algebra")
def _solve_for_x(goal: str, nodes: Nodes) -> list[str]:
    said = " ".join(node.name for node in nodes)
    left, sign, right, total = re.findall(r"(\w+)\s*([-+])\s*(\w+)\s*=\s*(-?\d+)", said)[0]
    value = int(total)
    if left == "x":
        value = value - int(right) if sign == "+" else value + int(right)
    else:
        value = value - int(left) if sign == "+" else int(left) - value
    return [f"type [{_of(nodes, 'textbox')[0].id}] [{value}] [0]", _submit(nodes)]


@_policy("text-transform")
def _copy_picture(goal: str, nodes: Nodes) -> list[str]:
    shown = "".join(n.name for n in _of(nodes, "StaticText"))
    return [f"type [{_of(nodes, 'textbox')[0].id}] [{shown}] [0]", _submit(nodes)]


@_policy("read-table")
def _look_up(goal: str, nodes: Nodes) -> list[str]:
    key = re.findall(r"value of (.+?) into", goal)[0]
    value = next(n.cells[1] for n in _of(nodes, "row") if n.cells[0] == key)
    return [f"type [{_of(nodes, 'textbox')[0].id}] [{value}] [0]", _submit(nodes)]


@_policy("read-table-2")
def _look_up_each(goal: str, nodes: Nodes) -> list[str]:
    table = {n.cells[0]: n.cells[1] for n in _of(nodes, "row")}
    actions = []
    for label, box in pairwise(nodes):
        if box.role == "textbox":
            actions.append(f"type [{box.id}] [{table[label.name.rstrip(':')]}] [0]")
    return [*actions, _submit(nodes)]


@_policy("enter-date")
def _enter_date(goal: str, nodes: Nodes) -> list[str]:
    month, day, year = re.findall(r"(\d+)/(\d+)/(\d+)", goal)[0]
    box = _of(nodes, "textbox")[0].id
    return [f"type [{box}] [{month}{day}{year}] [0]", _submit(nodes)]


@_policy("find-greatest")
def _greatest(goal: str, nodes: Nodes) -> list[str]:
    cards = [node for node in nodes if node.name.isdigit()]
    return [f"click [{max(cards, key=lambda n: int(n.name)).id}]", _submit(nodes)]


@_policy("find-word")
def _nth_word(goal: str, nodes: Nodes) -> list[str]:
    words = _of(nodes, "StaticText")[0].name.split()
    word = words[_ordinals(goal)[0] - 1].strip(",.")
    return [f"type [{_of(nodes, 'textbox')[0].id}] [{word}] [0]", _submit(nodes)]


@_policy("copy-paste", "copy-paste-2")
def _copy(goal: str, nodes: Nodes) -> list[str]:
    texts = [n for n in _of(nodes, "textbox") if n.field and n.field.multiline]
    box = next(n for n in _of(nodes, "textbox") if n.field and not n.field.multiline)
    source = texts[next(iter(_ordinals(goal)), 1) - 1].field
    return [f"type [{box.id}] [{source.value if source else ''}] [0]", _submit(nodes)]


@_policy("click-tab")
def _tab(goal: str, nodes: Nodes) -> list[str]:
    return [_click(nodes, goal.removeprefix("Click on ").rstrip("."), "link")]


@_policy("form-sequence-2")
def _check_and_enter(goal: str, nodes: Nodes) -> list[str]:
    kind = "radio" if "radio" in goal else "checkbox"
    first, second = _ordinals(goal)
    box = _of(nodes, "textbox")[second - 1].id
    ticked = _of(nodes, kind)[first - 1].id
    return [f"click [{ticked}]", f"type [{box}] [{_quoted(goal)[0]}] [0]", _submit(nodes)]
