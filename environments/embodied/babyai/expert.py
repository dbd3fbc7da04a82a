"""The expert: minigrid's BabyAI bot, bounded, and its walk told in high-level actions."""

import functools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from environments.embodied.babyai.macros import PICK, Macro, Ways, expand, possible
from environments.embodied.babyai.world import (
    DONE,
    DROP,
    FORWARD,
    LEFT,
    PICK_UP,
    RIGHT,
    TOGGLE,
    Cell,
    World,
    is_free,
)

MOST_STEPS = 400  # of a walk; longer ones count as failed
MOST_PLANS = 200  # changes of the bot's plan before one step: it never ends on some seeds

TEXTS = {
    LEFT: "turn left",
    RIGHT: "turn right",
    FORWARD: "move forward",
    PICK_UP: "pick up",
    DROP: "drop",
    TOGGLE: "toggle",
    DONE: "done",
}

Option = tuple[str, int, Macro]  # verb, number of the thing, what that does
Pose = tuple[Cell, int, int | None]  # position, direction, number of the thing in hand


@dataclass(frozen=True, slots=True)
class Edge:
    """A high-level action that stands for a stretch of the walk."""

    after: int  # the pose it leads to
    verb: str
    thing: int  # its number
    exact: bool  # it does what the walk does, action by action


class ExpertError(Exception):
    """The bot gives no plan for this seed: it failed, or it went past its bounds."""


class _Plans(list[Any]):
    """The bot's stack of subgoals, with a bound. Every endless loop of the bot pushes for ever."""

    def __init__(self, plans: list[Any]) -> None:
        super().__init__(plans)
        self.left = MOST_PLANS

    def append(self, plan: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise ExpertError(f"more than {MOST_PLANS} changes of plan before one step")
        super().append(plan)


def walk(name: str, seed: int) -> list[int]:
    """Return the primitive actions with which the bot reaches the goal of a level.

    It sees what an agent sees, explores, and takes at most `MOST_STEPS` steps with `MOST_PLANS`
    changes of plan each, so it always ends. Raises `ExpertError` if it does not reach the goal.
    """
    from minigrid.utils.baby_ai_bot import DisappearedBoxError

    world = World(name, seed)
    taken: list[int] = []
    try:
        bot = bot_class()(world)
        bot.stack = plans = _Plans(bot.stack)
        while not world.over and len(taken) < MOST_STEPS:
            plans.left = MOST_PLANS
            taken.append(int(bot.replan()))
            world.step(taken[-1])
    except (AssertionError, DisappearedBoxError, TypeError, AttributeError, IndexError) as error:
        # What the bot raises where it is lost: its own assertions, or None where it found no cell.
        raise ExpertError(f"the bot raised {type(error).__name__} {error}".strip()) from error
    if not world.success:
        how = "ended the episode" if world.over else f"walked {MOST_STEPS} steps"
        raise ExpertError(f"the bot {how} without reaching the goal")
    return taken


@functools.cache
def bot_class() -> Any:
    """Return minigrid's bot with two of its methods made several times faster, to the same effect:
    what it sees comes from the `World`, and its search pops from a deque."""
    from minigrid.utils.baby_ai_bot import BabyAIBot

    class Bot(BabyAIBot):
        def __init__(self, world: World) -> None:
            self._world = world
            super().__init__(world.level)

        def _process_obs(self) -> None:
            for cell in self._world.lit:
                self.vis_mask[cell] = True

        def _breadth_first_search(
            self,
            initial_states: list[tuple[int, int, int, int]],
            accept_fn: Callable[[Cell, Any], bool],
            ignore_blockers: bool,
        ) -> Any:
            came: dict[Cell, Cell | None] = {}
            queue: deque[tuple[int, int, int, int, Cell | None]]
            queue = deque((*state, None) for state in initial_states)
            while queue:
                x, y, dx, dy, before = queue.popleft()
                if (x, y) in came:
                    continue
                came[x, y] = before
                thing = self._world.at((x, y))
                if accept_fn((x, y), thing):
                    return _way_back((x, y), came), (x, y), came
                blocks = thing is not None and not is_free(thing)
                if blocks and (thing.type in _FIXED or not ignore_blockers):
                    continue
                if (x, y) in self._world.seen:
                    for i, j in ((dx, dy), (dy, dx), (-dy, -dx), (-dx, -dy)):
                        queue.append((x + i, y + j, i, j, (x, y)))
            return None, None, came

    return Bot


_FIXED = ("wall", "door")  # what cannot be carried out of the way


def _way_back(cell: Cell, came: dict[Cell, Cell | None]) -> list[Cell]:
    way = [cell]
    while (before := came[way[-1]]) is not None:
        way.append(before)
    return way


def primitive_plan(taken: list[int]) -> list[str]:
    """Return a walk in words."""
    return [TEXTS[primitive] for primitive in taken]


@dataclass
class _Trace:
    """A walk with what high-level actions would do along it."""

    poses: list[Pose]
    edges: list[list[Edge]]  # per pose


def high_level_plan(name: str, seed: int, taken: list[int]) -> list[str]:
    """Return the walk `taken` in as few actions as possible.

    A stretch of the walk may be replaced by a high-level action that ends in the same place with
    the same thing in hand, by another way if need be. The plan is played to be sure: what turns out
    to differ is left out, and the search starts again. What is always right are the primitives.
    """
    trace = _trace(name, seed, taken)
    while True:
        plan, wrong = _play(name, seed, taken, trace)
        if wrong is None:
            return plan
        at, edge = wrong
        if edge is None:
            exact = [[e for e in edges if e.exact] for edges in trace.edges]
            trace.edges = exact if exact != trace.edges else [[] for _ in exact]
        else:
            trace.edges[at].remove(edge)


def _trace(name: str, seed: int, taken: list[int]) -> _Trace:
    world = World(name, seed)
    poses = [_pose(world)]
    options = [_options(world)]
    for primitive in taken:
        world.step(primitive)
        poses.append(_pose(world))
        options.append([] if world.over else _options(world))
    edges = [
        [edge for option in found for edge in _matches(at, option, poses, taken)]
        for at, found in enumerate(options)
    ]
    return _Trace(poses, edges)


def _matches(at: int, option: Option, poses: list[Pose], taken: list[int]) -> Iterator[Edge]:
    """Yield the stretches of the walk from pose `at` on that an option could stand for."""
    verb, thing, macro = option
    for arrival in range(at, len(poses)):
        if poses[arrival][2] != poses[at][2] or TOGGLE in taken[at:arrival]:
            return  # what happens before has to happen
        after = min(arrival + len(macro.tail), len(taken))  # the goal may be reached on the way
        rest = taken[arrival:after]
        if poses[arrival][:2] == macro.end and rest == list(macro.tail[: len(rest)]) and after > at:
            exact = taken[at:after] == list(macro.primitives[: after - at])
            yield Edge(after, verb, thing, exact)


def _options(world: World) -> list[Option]:
    number = {thing: n for n, thing in enumerate(world.things)}
    return [
        (verb, number[target.thing], macro)
        for verb, target, macro in possible(world)
        if target.thing in number
    ]


def _pose(world: World) -> Pose:
    held = world.carrying
    return world.position, world.direction, None if held is None else world.things.index(held)


def _shortest(taken: list[int], edges: list[list[Edge]]) -> list[Edge | None]:
    """Return for each pose the edge of a shortest plan to the end; None: the primitive action."""
    last = len(taken)
    cost = [0] * (last + 1)
    best: list[Edge | None] = [None] * last
    for at in reversed(range(last)):
        cost[at] = 1 + cost[at + 1]
        for edge in edges[at]:
            if 1 + cost[edge.after] < cost[at]:
                cost[at], best[at] = 1 + cost[edge.after], edge
    return best


def _play(
    name: str, seed: int, taken: list[int], trace: _Trace
) -> tuple[list[str], tuple[int, Edge | None] | None]:
    """Play the shortest plan; return it, and where it first differs from the walk: the pose and the
    edge, or no edge if the goal is missed for a reason that lies further back."""
    world = World(name, seed)
    best = _shortest(taken, trace.edges)
    plan: list[str] = []
    at = 0
    while not world.over and at < len(taken):
        edge = best[at]
        if edge is None:
            plan.append(_primitive_text(world, taken[at]))
            world.step(taken[at])
            at += 1
            continue
        thing = world.things[edge.thing]
        target = next((s for s in world.in_view if s.thing is thing), None)
        if target is None:
            return plan, (at, edge)
        macro = expand(world, Ways(world), edge.verb, target)
        if isinstance(macro, str):
            return plan, (at, edge)
        plan.append(f"{edge.verb} {target.name}")
        for primitive in macro.primitives:
            world.step(primitive)
        if not world.success and (world.over or _pose(world) != trace.poses[edge.after]):
            return plan, (at, edge)
        at = edge.after
    return plan, None if world.success else (0, None)


def _primitive_text(world: World, primitive: int) -> str:
    """Return a primitive action in the words of the high-level set."""
    if primitive == PICK_UP and world.front is not None:
        return f"{PICK} {world.name(world.front)}"
    return TEXTS[primitive]
