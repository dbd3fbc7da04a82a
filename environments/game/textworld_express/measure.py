"""Make the plans of every level: python -m environments.game.textworld_express.measure

The simulator's gold path looks around; in one game it also goes astray, each time in another way.
There the shortest of some attempts is kept, without the detours that can be left out.
"""

import gzip
import json
import statistics
from pathlib import Path

from environments.game.textworld_express.levels import FIRST_SEED, LEVELS, MEASURED
from environments.game.textworld_express.simulator import JAVA, Simulator
from scalinginter.env.base import Split

ATTEMPTS = {"coin": 6}  # of games whose path goes astray
_IDLE = ("look around", "inventory", "task")  # actions that change nothing

Game = tuple[str, Split, int]


def plan(simulator: Simulator, game: Game) -> list[str]:
    """Return a short plan that solves the game. Raises `RuntimeError` if no attempt does."""
    attempts: list[list[str]] = []
    tries = ATTEMPTS.get(LEVELS[game[0]].game, 1)
    for _ in range(tries):
        simulator.start(*game, gold=True)
        path = simulator.gold_path()
        short = [action for action in path if action not in _IDLE]
        states = _states(simulator, game, short) or _states(simulator, game, path)
        if states and tries > 1:
            states = _without_detours(simulator, game, states)
        if states:
            attempts.append([action for _, action in states])
    if not attempts:
        raise RuntimeError(f"{game}: not solved by its gold path")
    return min(attempts, key=len)


def _states(simulator: Simulator, game: Game, actions: list[str]) -> list[tuple[str, str]]:
    """Return what is seen before each action and the action, up to success; empty without it."""
    state = simulator.start(*game)
    seen: list[tuple[str, str]] = []
    for action in actions:
        seen.append((state["look"] + state["inventory"], action))
        state = simulator.step(action)
        if state["tasksuccess"]:
            return seen
        if state["taskfailure"]:
            break
    return []


def _without_detours(
    simulator: Simulator, game: Game, states: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Leave out, longest first, stretches that end where they began, if the rest still solves."""
    start = 0
    while start < len(states):
        for end in range(len(states) - 1, start, -1):
            if states[end][0] == states[start][0]:
                rest = [action for _, action in states[:start] + states[end:]]
                shorter = _states(simulator, game, rest)
                if shorter:
                    states = shorter
                    break
        else:
            start += 1
    return states


def main() -> None:
    """Write `plans.json.gz`, and say how long they are."""
    JAVA.require()
    simulator = Simulator(heap_mb=384)
    table: dict[str, dict[str, list[list[str]]]] = {}
    for level in LEVELS:
        table[level] = {
            split: [plan(simulator, (level, split, FIRST_SEED[split] + i)) for i in range(count)]
            for split, count in MEASURED.items()
        }
        turns = [len(actions) for split in table[level].values() for actions in split]
        print(f"{level}: {min(turns)} to {max(turns)} turns, median {statistics.median(turns):g}")
    packed = gzip.compress(json.dumps(table).encode(), mtime=0)
    Path(__file__).with_name("plans.json.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
