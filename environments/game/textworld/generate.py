"""Generates games in a process of its own: reads a request on stdin, writes a folder per game.

python -m environments.game.textworld.generate < request.json, started by `games.ensure`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import textworld
from textworld.challenges.tw_coin_collector import coin_collector
from textworld.challenges.tw_cooking import cooking
from textworld.generator import GameMaker, compile_game
from textworld.generator.data import KnowledgeBase
from textworld.generator.game import Game, GameOptions

COIN_GOAL = "Find the coin and take it."  # TextWorld's own goal tells the whole way to the coin


def coin(settings: dict[str, Any], options: GameOptions) -> Game:
    """Make a chain of `level` rooms with the coin in the last one, and rooms beside the chain."""
    options.kb = KnowledgeBase.load(coin_collector.KB_PATH)
    options.grammar.allowed_variables_numbering = True
    options.quest_length = settings["level"]
    options.nb_rooms = settings["level"] * (1 + settings["distractors"])
    game = coin_collector.make_game(settings["mode"], options)
    game.objective = COIN_GOAL
    return game


def cook(settings: dict[str, Any], options: GameOptions) -> Game:
    """Make a cooking game out of TextWorld's own settings."""
    return cooking.make(settings, options)


MAKERS = {"coin": coin, "cooking": cook}


def generate(spec: dict[str, Any], folder: Path) -> None:
    """Write `game.z8`, `game.json` and the expert's `plan.json` of one spec into a new folder."""
    folder.mkdir()
    options = GameOptions()
    options.seeds = spec["seed"]
    options.path = str(folder / "game.z8")
    way: list[str] = []

    def set_walkthrough(self: GameMaker, commands: list[str]) -> None:
        way.extend(commands)

    # TextWorld's own would compile the game once more to play the walkthrough; `played` does it.
    GameMaker.set_walkthrough = set_walkthrough
    game = MAKERS[spec["family"]](spec["settings"], options)
    compile_game(game, options)
    (folder / "game.ni").unlink()  # the source: nobody reads it
    walkthrough = way or game.metadata["walkthrough"]  # with a small bag it is only there
    if not spec["settings"].get("drop"):
        walkthrough = without_idle_moves(walkthrough)
    (folder / "plan.json").write_text(json.dumps(played(options.path, walkthrough)))


def without_idle_moves(walkthrough: list[str]) -> list[str]:
    """Leave out what hands of any size make needless: putting the knife down, taking it again."""
    kept: list[str] = []
    for command in walkthrough:
        again = command.startswith("take knife") and any(c.startswith("take knife") for c in kept)
        if not again and command not in ("drop knife", "inventory"):
            kept.append(command)
    return kept


def played(path: str, walkthrough: list[str]) -> list[str]:
    """Play a walkthrough and return those of its commands that the game accepts at their turn.

    Raises `ValueError` if they do not win.
    """
    game = textworld.start(path, textworld.EnvInfos(won=True, admissible_commands=True))
    state = game.reset()
    plan = []
    for command in walkthrough:
        if command in (state.admissible_commands or []):  # else: to open an open door, say
            state, _, _ = game.step(command)
            plan.append(command)
    game.close()
    if not state.won:
        raise ValueError(f"the walkthrough does not win: {plan}")
    return plan


def main() -> None:
    """Serve the request on stdin."""
    textworld.g_rng.set_seed(0)  # nothing may draw from the clock
    request = json.loads(sys.stdin.read())
    for index, spec in enumerate(request["specs"]):
        generate(spec, Path(request["folder"]) / str(index))


if __name__ == "__main__":
    main()
