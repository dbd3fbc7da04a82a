"""What the agent may say: the two sets of actions, how they are read, and what they do."""

import re
from collections.abc import Callable

from environments.embodied.babyai.expert import TEXTS
from environments.embodied.babyai.levels import ActionSet
from environments.embodied.babyai.macros import (
    GO_TO,
    OPEN_THROUGH,
    PICK,
    THROUGH,
    Ways,
    can_toggle,
    door_state,
    expand,
    possible,
)
from environments.embodied.babyai.words import COLORS, KINDS, find
from environments.embodied.babyai.world import (
    DONE,
    DROP,
    FORWARD,
    LEFT,
    PICK_UP,
    RIGHT,
    TOGGLE,
    World,
    is_free,
)
from scalinginter.errors import nearest
from scalinginter.types import Tool

RULES = """\
You are in a building of rooms with walls, doors and things. Reach the goal.
You see a square of seven by seven cells ahead of you; walls and closed doors block the view. \
Things keep their names. You can carry one thing."""

_ACTIONS: dict[ActionSet, str] = {
    "high_level": """\
turn left
turn right
move forward - one step.
go to THING - walk to a thing or door in view and face it: go to red ball 1
pick up THING - walk to it and pick it up: pick up red ball 1
go through DOOR - walk through an open door: go through grey door 1
toggle and go through DOOR - open a closed door, or unlock a locked one with the key of its colour \
in hand, and walk through it.
toggle - open or close the door ahead, unlock it with the key of its colour in hand, or open the \
box ahead.
drop - put down what you carry on the free floor ahead.
check available actions - ask what you can do now.""",
    "primitive": """\
turn left
turn right
move forward - one step.
pick up - take what is ahead of you.
drop - put down what you carry on the free floor ahead.
toggle - open or close the door ahead, unlock it with the key of its colour in hand, or open the \
box ahead.
done - do nothing.""",
}

INSTRUCTIONS: dict[ActionSet, str] = {
    actions: f"{RULES}\nEvery turn you answer with one action:\n{text}"
    for actions, text in _ACTIONS.items()
}

VOCABULARY = f"""\
Goal: go to put next pick up open the a an object, then and after you. in front of you behind you on
your left right. You see nothing but the floor. You carry nothing. {" ".join(COLORS)}
{" ".join(KINDS)} (open) (closed) (locked) {" ".join(map(str, range(41)))} step steps forward and to
the left right; wall. A wall is. No wall in view. There is no in view (did you mean '?'). You cannot
pick up go through is: you can go through it. Your hands are full: Your hands are empty. You know no
way to. carry a to unlock it. You cannot move forward: there. There is nothing ahead to pick up
toggle. There is no room ahead. The goal is not reached yet reached. That was wrong: the goal is out
of reach now. Not an action Say turn left, turn right, move forward, toggle, drop, done, check
available actions. You can: THING, DOOR or. You already face."""

_PLAIN: dict[ActionSet, tuple[int, ...]] = {
    "high_level": (LEFT, RIGHT, FORWARD, TOGGLE, DROP),
    "primitive": (LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE),
}
_ASK = "check available actions"
_VERBS = (GO_TO, PICK, OPEN_THROUGH, THROUGH)
_SAME = ((r"^pickup\b", PICK), (r"^goto\b", GO_TO), (r"^(go |step )?forward$", TEXTS[FORWARD]))
_DECORATION = str.maketrans("<>[]\"'`*", " " * 8)  # what models put around an action or a name


def act(world: World, text: str, actions: ActionSet) -> str:
    """Do what `text` says. Return what there is to say about it: nothing, or why it did nothing."""
    said = " ".join(text[:1000].translate(_DECORATION).lower().split()).rstrip(".!;, ")
    for pattern, meant in _SAME:
        said = re.sub(pattern, meant, said)
    plain = {TEXTS[primitive]: primitive for primitive in _PLAIN[actions]}
    if said in plain:
        return _do(world, plain[said])
    if actions == "high_level":
        if said == _ASK:
            return f"You can: {', '.join(admissible(world, actions))}."
        if said == PICK:  # of the primitive set; what it means is plain
            return _do(world, PICK_UP)
        for verb in _VERBS:
            if said.startswith(f"{verb} "):
                return _go(world, verb, said.removeprefix(f"{verb} "))
    forms = [*plain, *(_FORMS if actions == "high_level" else ())]
    hint = nearest(said[:60], [*forms, *admissible(world, actions)])
    return f"Not an action{hint}. Say {', '.join(forms[:-1])} or {forms[-1]}."


_FORMS = (
    _ASK,
    f"{GO_TO} THING",
    f"{PICK} THING",
    f"{THROUGH} DOOR",
    f"{OPEN_THROUGH} DOOR",
)


def _go(world: World, verb: str, name: str) -> str:
    target = find(world, name)
    if isinstance(target, str):
        return target
    macro = expand(world, Ways(world), verb, target)
    if isinstance(macro, str):
        return macro
    for primitive in macro.primitives:
        world.step(primitive)
    return "" if macro.primitives else f"You already face {target.name}."


def _do(world: World, primitive: int) -> str:
    problem = _PROBLEMS[primitive](world) if primitive in _PROBLEMS else ""
    world.step(primitive)  # a turn, even where it changes nothing
    return problem


def _blocked(world: World) -> str:
    thing = world.front
    if thing is None or is_free(thing):
        return ""
    return f"You cannot move forward: {_name(world, thing)} is there."


def _not_taken(world: World) -> str:
    thing = world.front
    if thing is None or not thing.can_pickup():
        return "There is nothing ahead to pick up."
    held = world.carrying
    return f"Your hands are full: you carry {world.name(held)}." if held is not None else ""


def _not_dropped(world: World) -> str:
    if world.carrying is None:
        return "Your hands are empty."
    return "" if world.front is None else "There is no room ahead."


def _not_toggled(world: World) -> str:
    thing = world.front
    if can_toggle(world):
        return ""
    if thing is not None and thing.type == "door":
        name = world.name(thing)
        return f"{name} is {door_state(thing)}: carry a {thing.color} key to unlock it."
    return "There is nothing ahead to toggle."


def _not_done(world: World) -> str:
    return "The goal is not reached yet."


_PROBLEMS: dict[int, Callable[[World], str]] = {
    FORWARD: _blocked,
    PICK_UP: _not_taken,
    DROP: _not_dropped,
    TOGGLE: _not_toggled,
    DONE: _not_done,
}


def _name(world: World, thing: object) -> str:
    return "a wall" if getattr(thing, "type", "") == "wall" else world.name(thing)


def admissible(world: World, actions: ActionSet) -> list[str]:
    """Return the actions that change something now, and the question for them."""
    idle = (DONE, *(p for p, problem in _PROBLEMS.items() if problem(world)))
    plain = [TEXTS[primitive] for primitive in _PLAIN[actions] if primitive not in idle]
    if actions == "primitive":
        return plain
    return [*plain, *(f"{verb} {target.name}" for verb, target, _ in possible(world)), _ASK]


def _tool(name: str, description: str, text: str, argument: str = "") -> Tool:
    properties = {
        argument: {"type": "string", "description": f"its name, e.g. {_EXAMPLE[argument]}"}
    }
    parameters = {
        "type": "object",
        "properties": properties if argument else {},
        "required": [argument] if argument else [],
    }
    return Tool(name, description, parameters, f"{text} {{{argument}}}" if argument else text)


_EXAMPLE = {"": "", "thing": "red ball 1", "door": "grey door 1"}

_TURN_AND_STEP = (
    _tool("turn_left", "Turn left.", TEXTS[LEFT]),
    _tool("turn_right", "Turn right.", TEXTS[RIGHT]),
    _tool("move_forward", "Take one step forward.", TEXTS[FORWARD]),
    _tool("drop", "Put down what you carry on the free floor ahead.", TEXTS[DROP]),
    _tool(
        "toggle",
        "Open or close the door ahead, unlock it with the key of its colour, or open a box.",
        TEXTS[TOGGLE],
    ),
)

TOOLS: dict[ActionSet, tuple[Tool, ...]] = {
    "high_level": (
        *_TURN_AND_STEP,
        _tool("go_to", "Walk to a thing or door in view and face it.", GO_TO, "thing"),
        _tool("pick_up", "Walk to a thing in view and pick it up.", PICK, "thing"),
        _tool("go_through", "Walk through an open door in view.", THROUGH, "door"),
        _tool(
            "toggle_and_go_through",
            "Open or unlock a door in view and walk through it.",
            OPEN_THROUGH,
            "door",
        ),
        _tool("check_available_actions", "Ask what you can do now.", _ASK),
    ),
    "primitive": (
        *_TURN_AND_STEP,
        _tool("pick_up", "Take what is ahead of you.", TEXTS[PICK_UP]),
        _tool("done", "Do nothing.", TEXTS[DONE]),
    ),
}
