"""What environments there are, told from their source: nothing of theirs is imported.

Importing them all takes many seconds, and fails where a package is missing; their source has the
description (first line of the class) and the packages (its imports, and those of its neighbours).
"""

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from scalinginter.env.registry import environment_locations

_OURS = ("environments", "scalinginter")


@dataclass(frozen=True, slots=True)
class Listing:
    """One environment as a list shows it."""

    env_id: str
    family: str  # folder in `environments/`, "toy", or "plugin" for those of other packages
    description: str
    missing: tuple[str, ...]  # packages it imports that are not installed
    extras: tuple[str, ...]  # of this package, that bring them


def list_environments() -> list[Listing]:
    """Return every environment, family by family, each in alphabetical order."""
    found = [_listing(env_id, place) for env_id, place in environment_locations().items()]
    return sorted(found, key=lambda item: (item.family in ("toy", "plugin"), item.family))


def _listing(env_id: str, location: str) -> Listing:
    module, _, class_name = location.partition(":")
    source = _source(module)
    if source is None:
        return Listing(env_id, "plugin", f"{location} cannot be found", (), ())
    missing = tuple(sorted(p for p in _packages(module, set()) if not _installed(p)))
    extras = {extra for package in missing for extra in _extras().get(_normal(package), ())}
    return Listing(
        env_id, _family(module), _first_line(source, class_name), missing, tuple(sorted(extras))
    )


def _family(module: str) -> str:
    top, *rest = module.split(".")
    if top == "environments":
        return rest[0]
    return "toy" if top == "scalinginter" else "plugin"


def _source(module: str) -> Path | None:
    """Return the file of a module; `find_spec` would import the packages above it."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin else None
    for folder in spec.submodule_search_locations or ():
        path = Path(folder, *rest)
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None


@cache
def _tree(source: Path) -> ast.Module:
    return ast.parse(source.read_text())


def _first_line(source: Path, class_name: str) -> str:
    for node in _tree(source).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def _packages(module: str, seen: set[str]) -> set[str]:
    """Return the top-level packages outside that a module and its neighbours import anywhere."""
    seen.add(module)
    source = _source(module)
    if source is None or source.suffix != ".py":
        return set()
    found: set[str] = set()
    for name in _imports(source):
        top = name.partition(".")[0]
        if name.startswith("environments.") and name not in seen:
            found |= _packages(name, seen)
        elif top not in _OURS and top not in sys.stdlib_module_names:
            found.add(top)
    return found


def _imports(source: Path) -> Iterator[str]:
    for node in ast.walk(_tree(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _extras() -> dict[str, list[str]]:
    """Return the extras of this package by the normalised name of what they install."""
    found: dict[str, list[str]] = {}
    for line in metadata.requires("scalinginter") or ():
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        name = re.match(r"[\w.-]+", requirement.strip())
        if extra and name:
            found.setdefault(_normal(name[0]), []).append(extra[1])
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
