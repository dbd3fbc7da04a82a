"""The simulator in its JVM."""

import json
from pathlib import Path
from typing import Any

from environments.game.textworld_express.levels import FOLD, LEVELS
from environments.java import JavaSimulator
from scalinginter.env.base import Split


def _jar() -> str:
    from textworld_express.constants import JAR_PATH

    return JAR_PATH


def _folder() -> Path:
    """The package's own folder: the simulator reads its tables from the working directory."""
    return Path(_jar()).parent


JAVA = JavaSimulator("textworld_express", "game", _jar, _folder)


class Simulator:
    """One game at a time."""

    def __init__(self, heap_mb: int) -> None:
        self._java = JAVA.jvm(heap_mb).textworldexpress.runtime.PythonInterface()
        self._level = ""

    def start(self, level: str, split: Split, seed: int, gold: bool = False) -> dict[str, Any]:
        """Generate a game; return its first state. Raises `RuntimeError` if it cannot be."""
        if level != self._level:
            problem = self._java.load(*LEVELS[level])
            if problem:
                raise RuntimeError(f"level {level!r}: {problem}")
            self._level = level
        return json.loads(self._java.generateNewGameJSON(seed, FOLD[split], gold))

    def step(self, action: str) -> dict[str, Any]:
        """Act; return the state."""
        return json.loads(self._java.stepJSON(action))

    def gold_path(self) -> list[str]:
        """Return a path that solves the game that was started with `gold`; another at each call."""
        return list(self._java.getGoldActionSequence())

    def description(self) -> str:
        """Return what there is to do."""
        return self._java.getTaskDescription()
