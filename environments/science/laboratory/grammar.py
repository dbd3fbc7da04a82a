"""The text form of actions: what is understood, and what can be done now."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from environments.science.laboratory import verbs
from environments.science.laboratory.physics import tick
from environments.science.laboratory.world import (
    Device,
    Pot,
    Thing,
    Vessel,
    World,
    together,
)
from scalinginter.errors import nearest

Arguments = Iterator[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Form:
    """One form of action.

    `shown` is what the prompt says; `now` yields the arguments with which it does something now.
    """

    shown: str
    pattern: re.Pattern[str]
    act: Callable[..., str]
    now: Callable[[World], Arguments]
    says: str = ""  # the action with "{}" for each argument


def _form(
    shown: str, act: Callable[..., str], now: Callable[[World], Arguments], pattern: str = ""
) -> Form:
    """Make a form; words in capitals stand for arguments."""
    pattern = pattern or re.sub(r"\b[A-Z]\b|\b[A-Z]{2,}\b", "(.+?)", shown)
    says = re.sub(r"\b[A-Z]\b|\b[A-Z]{2,}\b", "{}", shown)
    return Form(shown, re.compile(pattern), act, now, says)


def _always(world: World) -> Arguments:
    yield ()


def _exits(world: World) -> Arguments:
    return ((room,) for room in world.rooms[world.here])


def _names(test: Callable[[World, Thing], bool]) -> Callable[[World], Arguments]:
    """Yield the things in reach that pass a test."""
    return lambda world: ((thing.name,) for thing in world.reach() if test(world, thing))


def _puts(on: bool) -> Callable[[World], Arguments]:
    def now(world: World) -> Arguments:
        targets = [
            thing
            for thing in world.reach()
            if thing.is_open and (verbs.preposition(thing) == "on") == on
        ]
        for thing in world.held():
            for target in targets:
                if verbs.can_put(world, thing, target):
                    yield thing.name, target.name

    return now


def _pours(world: World) -> Arguments:
    substances = [thing for thing in world.held() if thing.role == "substance"]
    for target in world.reach():
        for thing in substances:
            fits = isinstance(target, Vessel) and thing.name not in target.contents
            if fits or (isinstance(target, Pot) and thing.name == "water"):
                yield thing.name, target.name


def _uses(world: World) -> Arguments:
    tools = [thing for thing in world.held() if thing.role == "tool"]
    for thing in world.reach():
        for tool in tools:
            if verbs.can_use(tool, thing):
                yield tool.name, thing.name


def _connections(world: World) -> Arguments:
    things = world.reach()
    electric = [thing for thing in things if thing.role in ("battery", "bulb")]
    for end in electric:
        for other in things:
            twice = other in electric and other.name < end.name
            wired = together(end.name, other.name) in world.wires
            if verbs.can_connect(end, other) and not twice and not wired:
                yield end.name, other.name


def _focuses(world: World) -> Arguments:
    if world.asks_focus:
        kinds = ("substance", "plant", "sample")
        yield from ((thing.name,) for thing in world.reach() if thing.role in kinds)
        known = {thing.name for thing in world.reach()}
        yield from ((name,) for name in world.products() if name not in known)


FORMS: dict[str, Form] = {
    "look": _form("look", verbs.look, _always, r"look|look around"),
    "inventory": _form("inventory", verbs.inventory, _always),
    "wait": _form("wait", verbs.wait, _always),
    "go": _form("go to ROOM", verbs.go, _exits),
    "open": _form("open X", verbs.open_, _names(lambda _, t: t.lid and not t.is_open)),
    "close": _form("close X", verbs.close, _names(lambda _, t: t.lid and t.is_open)),
    "pick": _form("pick up X", verbs.pick_up, _names(verbs.can_take)),
    "put in": _form("put X in Y", verbs.put, _puts(on=False), r"put (.+?) (?:in|into) (.+)"),
    "put on": _form("put X on Y", verbs.put, _puts(on=True), r"put (.+?) (?:on|onto) (.+)"),
    "pour": _form("pour X into Y", verbs.pour, _pours, r"pour (.+?) (?:in|into) (.+)"),
    "mix": _form(
        "mix Y", verbs.mix, _names(lambda _, t: isinstance(t, Vessel) and len(t.contents) > 1)
    ),
    "empty": _form(
        "empty Y", verbs.empty, _names(lambda _, t: isinstance(t, Vessel) and bool(t.contents))
    ),
    "activate": _form(
        "activate X", verbs.activate, _names(lambda _, t: isinstance(t, Device) and not t.active)
    ),
    "deactivate": _form(
        "deactivate X", verbs.deactivate, _names(lambda _, t: isinstance(t, Device) and t.active)
    ),
    "use": _form("use X on Y", verbs.use, _uses),
    "read": _form("read X", verbs.read, _names(lambda _, t: t.role == "note")),
    "connect": _form("connect X to Y", verbs.connect, _connections),
    "disconnect": _form(
        "disconnect X",
        verbs.disconnect,
        _names(lambda w, t: any(t.name in wire for wire in w.wires)),
    ),
    "focus": _form("focus on X", verbs.focus, _focuses),
    "answer": _form("answer N", verbs.answer, lambda w: ((text,) for text in w.answers)),
}

_BY_VERB = {
    verb: [name for name, form in FORMS.items() if form.shown.split()[0] == verb]
    for verb in {form.shown.split()[0] for form in FORMS.values()}
}

MOVING = ("look", "inventory", "wait", "go", "open", "close", "pick")
"""Forms that every kind of task has."""


def act(world: World, action: str, forms: tuple[str, ...]) -> str:
    """Do what a text says, let a turn pass, and return what the agent sees.

    `world.events` then holds what happened. Text that is none of the forms is answered with them.
    """
    world.events = []
    said = _answer(world, " ".join(action[:200].lower().split()).removesuffix("."), forms)
    return f"{said} {tick(world)}".strip()


def _answer(world: World, text: str, forms: tuple[str, ...]) -> str:
    for name in _BY_VERB.get(text.partition(" ")[0], ()):
        match = FORMS[name].pattern.fullmatch(text) if name in forms else None
        if match is not None:
            return FORMS[name].act(world, *(_bare(part) for part in match.groups()))
    shown = [FORMS[name].shown for name in forms]
    return f"Not an action{nearest(text[:40], shown)}. Say one of: {', '.join(shown)}."


def _bare(name: str) -> str:
    return name.strip().removeprefix("the ")


def actions_now(world: World, forms: tuple[str, ...]) -> list[str]:
    """Return every action that does something now."""
    spoken: list[str] = []
    for name in forms:
        form = FORMS[name]
        spoken += [form.says.format(*arguments) for arguments in form.now(world)]
    return spoken
