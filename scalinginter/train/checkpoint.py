"""Checkpoints that are whole or not there.

A checkpoint is written into `<name>.tmp`, every file is synced, a manifest with sizes and SHA-256
sums comes last, then the folder is renamed. `kill -9` at any moment leaves the older ones intact.

    checkpoints/step-000050/
      policy/         weights, configuration and tokenizer, loads with AutoModelForCausalLM
      learner.pt      optimizer and learning-rate schedule
      state.json      counters, costs, horizon schedule, journal offsets
      manifest.json   sizes and SHA-256 sums of all the above
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from scalinginter.errors import CheckpointError, RunFailedError

_PREFIX = "step-"
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class Found:
    """The newest whole checkpoint, and what is wrong with those that are newer."""

    folder: Path
    passed_over: tuple[str, ...] = ()

    def __str__(self) -> str:
        """`step 50; passed over step-000060: learner.pt is missing`."""
        notes = "".join(f"; passed over {problem}" for problem in self.passed_over)
        return f"step {step_of(self.folder)}{notes}"


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self._keep = folder, keep

    def save(
        self,
        step: int,
        write: Callable[[Path], None],
        state: dict[str, Any],
        pinned: str | None = None,
    ) -> Path:
        """Write a checkpoint: `write(folder)` puts the heavy files there. Returns its folder.

        Older ones are dropped then, but for the newest `keep` and the one named `pinned`.
        Raises `RunFailedError` if it cannot be written; nothing of it is left then.
        """
        final = self.folder / f"{_PREFIX}{step:06d}"
        if final.exists() and not problem(final):
            return final
        shutil.rmtree(final, ignore_errors=True)
        draft = final.with_suffix(".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(parents=True)
            write(draft)
            _seal(draft, state)
            draft.rename(final)
        except (OSError, RuntimeError, SafetensorError) as error:  # torch says RuntimeError
            raise RunFailedError(
                f"the checkpoint of step {step} could not be written to {self.folder}: "
                f"{str(error).splitlines()[0]}; {self.standing()}. "
                "If the disk is full make room, then resume the run"
            ) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        _sync(self.folder)
        self._drop_old(pinned)
        return final

    def valid(self) -> list[Path]:
        """Return the whole checkpoints, newest first."""
        return [path for path in self._all() if not problem(path)]

    def standing(self) -> str:
        """Say which checkpoint a run can be continued from, without reading it."""
        found = self._all()
        if not found:
            return "no checkpoint was saved"
        return f"the checkpoint of step {step_of(found[0])} stands"

    def find(self) -> Found | None:
        """Return the newest whole checkpoint; None if none was ever saved.

        Raises `CheckpointError` if there are some and none is whole.
        """
        problems: list[str] = []
        for path in self._all():
            wrong = problem(path)
            if not wrong:
                return Found(path, tuple(problems))
            problems.append(f"{path.name}: {wrong}")
        if problems:
            raise CheckpointError(
                f"{self.folder}: none of its checkpoints is whole; {problems[0]}. "
                "Start again with another --output"
            )
        return None

    def latest(self) -> Path:
        """Return the newest whole checkpoint. Raises `CheckpointError` if there is none."""
        found = self.find()
        if found is None:
            raise CheckpointError(f"{self.folder}: no checkpoint there")
        return found.folder

    def _all(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        names = [p for p in self.folder.iterdir() if p.name.removeprefix(_PREFIX).isdigit()]
        return sorted(names, key=step_of, reverse=True)

    def _drop_old(self, pinned: str | None) -> None:
        for path in self._all()[self._keep :]:
            if path.name != pinned:
                shutil.rmtree(path)
        for path in self.folder.glob(f"{_PREFIX}*.tmp"):
            shutil.rmtree(path)


def step_of(folder: Path) -> int:
    """Return the step of a checkpoint from its folder's name."""
    return int(folder.name.removeprefix(_PREFIX))


def problem(folder: Path) -> str:
    """Return what is wrong with a checkpoint, or an empty string."""
    manifest_path = folder / "manifest.json"
    if not manifest_path.is_file():
        return "it has no manifest.json"
    try:
        manifest = json.loads(manifest_path.read_text())
    except ValueError:
        return "its manifest.json is not JSON"
    if not isinstance(manifest, dict) or "state.json" not in manifest:
        return "its manifest.json is not a list of its files"
    for name, entry in manifest.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if _entry(path) != entry:
            return f"{name} is damaged: its SHA-256 sum is not the one that was saved"
    return ""


def read_state(folder: Path) -> dict[str, Any]:
    """Return the counters of a checkpoint."""
    return json.loads((folder / "state.json").read_text())


def _seal(draft: Path, state: dict[str, Any]) -> None:
    """Write the small files, the manifest last, and bring everything to the disk."""
    (draft / "state.json").write_text(json.dumps(state, indent=1))
    files = sorted(p for p in draft.rglob("*") if p.is_file())
    manifest = {str(p.relative_to(draft)): _entry(p) for p in files}
    (draft / "manifest.json").write_text(json.dumps(manifest, indent=1))
    for path in [*draft.rglob("*"), draft]:
        _sync(path)


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
