"""ScienceWorld's simulators in the JVM of this process."""

from pathlib import Path
from typing import Any

from environments.java import JavaSimulator
from environments.science.scienceworld.gold import cache_folder


def _jar() -> str:
    from scienceworld.constants import JAR_PATH

    return JAR_PATH


def _folder() -> Path:
    """A folder that may be written: the simulator leaves a table in its working directory."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


JAVA = JavaSimulator("scienceworld", "science", _jar, _folder)


def new_simulator(heap_mb: int) -> Any:
    """Return a simulator without a task; see `JavaSimulator.jvm` for the heap."""
    return JAVA.jvm(heap_mb).scienceworld.runtime.pythonapi.PythonInterface()
