"""The text form of actions: what is understood, what can be done now, and the tools."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from environments.embodied.household import verbs
from environments.embodied.household.catalogue import APPLIANCES
from environments.embodied.household.world import World
from scalinginter.errors import nearest
from scalinginter.types import Tool

Arguments = Iterator[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Form:
    """One form of action.

    `template` is what the prompt says, arguments in braces; `now` yields the arguments with which
    the action is accepted now.
    """

    template: str
    does: str
    act: Callable[..., str]
    now: Callable[[World], Arguments]
    pattern: re.Pattern[str]

    @property
    def shown(self) -> str:
        """The form as people read it: `take THING from RECEPTACLE`."""
        return re.sub(r"{(\w+)}", lambda match: match[1].upper(), self.template)

    @property
    def tool(self) -> Tool:
        """The function that stands for it: `take(thing, receptacle)`."""
        names = re.findall(r"{(\w+)}", self.template)
        properties = {name: {"type": "string", "description": EXAMPLES[name]} for name in names}
        schema = {"type": "object", "properties": properties, "required": names}
        name = re.sub(r" ?{\w+}.*", "", self.template).replace(" ", "_")
        return Tool(name, self.does, schema, self.template)


EXAMPLES = {
    "receptacle": "a receptacle with its number, e.g. cabinet 2",
    "thing": "a thing with its number, e.g. mug 1",
    "lamp": "a desklamp with its number, e.g. desklamp 1",
    "name": "a thing or receptacle with its number, e.g. mug 1",
    "microwave": "a microwave, e.g. microwave 1",
    "fridge": "a fridge, e.g. fridge 1",
    "sinkbasin": "a sinkbasin, e.g. sinkbasin 1",
}


def _form(
    template: str,
    does: str,
    act: Callable[..., str],
    now: Callable[[World], Arguments],
    pattern: str = "",
) -> Form:
    pattern = pattern or re.sub(r"{\w+}", "(.+?)", template)
    return Form(template, does, act, now, re.compile(pattern))


def _always(world: World) -> Arguments:
    yield ()


def _elsewhere(world: World) -> Arguments:
    return ((name,) for name in world.receptacles if name != world.at)


def _lids(is_open: bool) -> Callable[[World], Arguments]:
    def now(world: World) -> Arguments:
        here = world.here
        if here is not None and here.lid and here.is_open == is_open:
            yield (here.name,)

    return now


def _takes(world: World) -> Arguments:
    if world.held is None:
        yield from ((thing.name, world.at) for thing in world.seen())


def _puts(world: World) -> Arguments:
    held, here = world.held, world.here
    if held is not None and here is not None and here.is_open:
        yield held.name, here.name


def _treats(treatment: str) -> Callable[[World], Arguments]:
    def now(world: World) -> Arguments:
        held, here = world.held, world.here
        if held is not None and here is not None and here.kind == APPLIANCES[treatment]:
            yield held.name, here.name

    return now


def _lamps(world: World) -> Arguments:
    if world.held is not None:
        yield from ((lamp,) for lamp in world.lamps_here())


def _examined(world: World) -> Arguments:
    yield from ((thing.name,) for thing in world.seen())
    if world.held is not None:
        yield (world.held.name,)


FORMS: tuple[Form, ...] = (
    _form("go to {receptacle}", "Walk to a receptacle.", verbs.go, _elsewhere),
    _form("open {receptacle}", "Open the receptacle here.", verbs.open_, _lids(is_open=False)),
    _form("close {receptacle}", "Close the receptacle here.", verbs.close, _lids(is_open=True)),
    _form(
        "take {thing} from {receptacle}", "Take a thing from the receptacle here; one can be "
        "carried.", verbs.take, _takes,
    ),
    _form(
        "put {thing} in/on {receptacle}", "Put what you carry in or on the receptacle here.",
        verbs.put, _puts, r"(?:put|move) (.+?) (?:in/on|into|in|onto|on|to) (.+)",
    ),
    _form(
        "heat {thing} with {microwave}", "Heat what you carry.", verbs.heat, _treats("heat")
    ),
    _form("cool {thing} with {fridge}", "Cool what you carry.", verbs.cool, _treats("cool")),
    _form(
        "clean {thing} with {sinkbasin}", "Clean what you carry.", verbs.clean, _treats("clean")
    ),
    _form("use {lamp}", "Look at what you carry in the light of the lamp here.", verbs.use, _lamps),
    _form("examine {name}", "Look closely at what is here or carried.", verbs.examine, _examined),
    _form("look", "Look where you are.", verbs.look, _always, "look|look around"),
    _form("inventory", "Tell what you carry.", verbs.inventory, _always),
)  # fmt: skip

TOOLS: tuple[Tool, ...] = tuple(form.tool for form in FORMS)
SHOWN: tuple[str, ...] = tuple(form.shown for form in FORMS)

_BY_VERB = {form.shown.partition(" ")[0]: [form] for form in FORMS}
_BY_VERB["move"] = _BY_VERB["put"]


def act(world: World, action: str) -> str:
    """Do what a text says and return what the agent sees.

    Case, articles, extra spaces, a full stop and the space before a number do not matter. Text that
    is none of the forms is answered with them.
    """
    text = " ".join(re.sub(r"(?<=[a-z])(?=\d)", " ", action[:200].lower()).split())
    text = text.removesuffix(".").rstrip()
    for form in _BY_VERB.get(text.partition(" ")[0], ()):
        match = form.pattern.fullmatch(text)
        if match is not None:
            return form.act(world, *(_bare(part) for part in match.groups()))
    return (
        f"Not an action{nearest(text[:60], map(str.lower, SHOWN))}. Say one of: {', '.join(SHOWN)}."
    )


def _bare(name: str) -> str:
    return name.strip().removeprefix("the ").removeprefix("a ").strip()


def actions_now(world: World) -> list[str]:
    """Return every action that is accepted now, by form, then in the order of the home."""
    return [_say(form, arguments) for form in FORMS for arguments in form.now(world)]


def _say(form: Form, arguments: tuple[str, ...]) -> str:
    texts = iter(arguments)
    return re.sub(r"{\w+}", lambda _: next(texts), form.template)
