"""TextWorld games as files: a task id names a game, which is generated once and kept.

A game depends on its spec only: it is generated in a process of its own with a fixed hash seed,
because TextWorld writes some rules in the order of a Python set.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

GENERATOR = "environments.game.textworld.generate"
GENERATE_TIMEOUT_S = 600.0  # of one batch
BATCH = 8  # games of one generating process
FORMAT = 1  # of what is generated here: raised when the same spec would give other bytes


@dataclass(frozen=True, slots=True)
class GameSpec:
    """What a game is made from."""

    family: str  # coin | cooking
    settings: Mapping[str, Any]  # JSON values, as `generate` reads them
    seed: int


def seed_of(name: str) -> int:
    """Return the seed that belongs to a name, the same everywhere. In [0, 2**31)."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1


def cache_folder() -> Path:
    """Return the folder of kept games; `SCALINGINTER_CACHE` moves it."""
    base = os.environ.get("SCALINGINTER_CACHE") or "~/.cache/scalinginter"
    return Path(base).expanduser() / "textworld" / f"{version('textworld')}-{FORMAT}"


def game_file(spec: GameSpec) -> Path:
    """Return where the compiled game is or will be; `game.json` lies beside it."""
    content = json.dumps(asdict(spec), sort_keys=True)
    return (
        cache_folder() / spec.family / hashlib.sha256(content.encode()).hexdigest()[:24] / "game.z8"
    )


def ensure(specs: Iterable[GameSpec]) -> int:
    """Generate the games that are missing; return how many were made.

    Safe for processes at once: a game appears when it is whole, and who asks for the same games
    waits for who was first.
    Raises `RuntimeError` with TextWorld's own words if a game cannot be made.
    """
    specs = list(specs)
    if all(game_file(spec).exists() for spec in specs):
        return 0
    locks = cache_folder() / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    made = 0
    for start in range(0, len(specs), BATCH):
        batch = specs[start : start + BATCH]
        with (locks / game_file(batch[0]).parent.name).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            missing = [spec for spec in batch if not game_file(spec).exists()]
            if missing:
                _generate(missing)
            made += len(missing)
    return made


def _generate(specs: Sequence[GameSpec]) -> None:
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".new-") as aside:
        request = {"folder": aside, "specs": [asdict(spec) for spec in specs]}
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        child = subprocess.run(
            [sys.executable, "-m", GENERATOR],
            input=json.dumps(request),
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=GENERATE_TIMEOUT_S,
        )
        if child.returncode:
            raise RuntimeError(f"TextWorld made no game: {child.stderr.strip()[-600:]}")
        for index, spec in enumerate(specs):
            _publish(Path(aside) / str(index), game_file(spec).parent)


def _publish(made: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        made.rename(place)
    except OSError:  # another batch made the same game meanwhile: same spec, same bytes
        if not place.exists():
            raise
        shutil.rmtree(made)
