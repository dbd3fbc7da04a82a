"""The view in words, and the names of things in an agent's words."""

from typing import Any

from environments.embodied.babyai.macros import door_state
from environments.embodied.babyai.world import VIEW, Sighting, World
from scalinginter.errors import nearest

COLORS = ("blue", "green", "grey", "purple", "red", "yellow")
KINDS = ("ball", "box", "door", "key")
_ARTICLES = {"the", "a", "an"}
_STATES = {"open", "closed", "locked"}
_SIDE = VIEW // 2


def steps(amount: int, where: str) -> str:
    """`(2, "to the left")` -> `"2 steps to the left"`."""
    return f"{amount} {'step' if amount == 1 else 'steps'} {where}"


def place(forward: int, right: int) -> str:
    """Return where something is, seen from the agent."""
    parts = []
    if forward:
        parts.append(steps(forward, "forward"))
    if right:
        parts.append(steps(abs(right), "to the right" if right > 0 else "to the left"))
    return " and ".join(parts)


def label(thing: Any, name: str) -> str:
    """Return the name, and of a door its state too."""
    return f"{name} ({door_state(thing)})" if thing.type == "door" else name


def describe(world: World) -> str:
    """Return what is in view: things, the nearest wall on three sides, and what is carried."""
    seen = "; ".join(
        f"{label(s.thing, s.name)}: {place(s.forward, s.right)}" for s in world.in_view
    )
    walls = _walls(world)
    held = world.carrying
    return (
        f"You see {seen or 'nothing but the floor'}. "
        + (f"A wall is {walls}. " if walls else "No wall in view. ")
        + f"You carry {world.name(held) if held else 'nothing'}."
    )


def _walls(world: World) -> str:
    lines = (
        [(forward, 0) for forward in range(1, VIEW)],
        [(0, -right) for right in range(1, _SIDE + 1)],
        [(0, right) for right in range(1, _SIDE + 1)],
    )
    nearest_walls = (next((cell for cell in line if cell in world.walls), None) for line in lines)
    return ", ".join(place(*cell) for cell in nearest_walls if cell)


def find(world: World, text: str) -> Sighting | str:
    """Return the thing in view that `text` names, or a sentence that says why there is none.

    Articles and the state of a door do not matter; without a number it is the nearest such thing.
    """
    words = text.replace("(", " ").replace(")", " ").split()
    name = " ".join(w for w in words if w not in _ARTICLES and w not in _STATES)
    for sighting in world.in_view:  # the nearest first
        if name in (sighting.name, sighting.name.rpartition(" ")[0]):
            return sighting
    names = [sighting.name for sighting in world.in_view]
    return f"There is no {name[:40]} in view{nearest(name[:40], names)}."
