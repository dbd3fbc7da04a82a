"""From a recipe file, its parents and `--set` overrides to a validated `Recipe`."""

import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from scalinginter.config.schema import Recipe
from scalinginter.config.yaml_strict import parse, read_mapping
from scalinginter.errors import ConfigError, nearest

BUNDLED = Path(__file__).parent.parent / "_schedules"  # where the wheel keeps schedules/


def load_recipe(
    path: str | Path, overrides: Sequence[str] = (), option: str = "--schedule"
) -> Recipe:
    """Load a recipe file, apply `a.b=c` overrides, validate.

    `option`: what the user gave the path to, for messages.
    Raises `ConfigError` that lists every problem at once, each with its path.
    """
    data = resolve(find_recipe(path, option))
    apply_overrides(data, overrides)
    return validate(data, source=str(path))


def find_recipe(path: str | Path, option: str = "--schedule") -> Path:
    """Find a recipe as a path, or among the recipes that ship with the package."""
    given = Path(path)
    relative = Path(*given.parts[1:]) if given.parts[:1] == ("schedules",) else given
    for candidate in (given, BUNDLED / relative):
        if candidate.is_file():
            return candidate
    if given.is_dir():
        names = sorted(p.name for p in given.glob("*.yaml"))
        hint = f"it is a folder; name one of its recipes: {', '.join(names) or 'it has none'}"
    elif given.exists():
        hint = "it is a device or a pipe; name a recipe file"
    else:
        near = [str(p) for p in given.parent.glob("*.yaml")] if given.parent.is_dir() else []
        near += [f"schedules/{p.relative_to(BUNDLED)}" for p in BUNDLED.glob("*/*.yaml")]
        hint = f"no such file{nearest(str(given), near)}"
    raise ConfigError(f"{option} {path}: {hint}")


def resolve(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a recipe and merge it over the one that it `extends` (relative to its own folder)."""
    path = path.resolve()
    if path in seen:
        chain = " -> ".join(p.name for p in (*seen, path))
        raise ConfigError(f"{path}: extends itself: {chain}")
    data = read_mapping(path)
    parent = data.pop("extends", None)
    data.setdefault("name", path.stem)
    if parent is None:
        return data
    if not isinstance(parent, str):
        raise ConfigError(f"{path}: extends must name one file, got {parent!r}")
    parent_path = path.parent / parent
    if not parent_path.is_file():
        raise ConfigError(f"{path}: extends {parent}: no such file")
    return merge(resolve(parent_path, (*seen, path)), data)


def merge(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Merge mappings key by key.

    A block that names its `kind`, or another `id`, replaces the whole block below it.
    """
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        replaces = both and ("kind" in value or value.get("id", below.get("id")) != below.get("id"))
        merged[key] = merge(below, value) if both and not replaces else value
    return merged


def apply_overrides(data: dict[str, Any], overrides: Sequence[str]) -> None:
    """Apply `a.b.0=value` in place; values are YAML. Raises `ConfigError` for malformed ones."""
    problems = []
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            problems.append(f"--set {override}: must look like path.to.key=value")
            continue
        problem = _assign(data, key.strip().split("."), parse(text, f"--set {override}"))
        if problem:
            problems.append(f"--set {override}: {problem}")
    if problems:
        raise ConfigError("\n".join(problems))


def _assign(data: dict[str, Any], path: list[str], value: Any) -> str | None:
    node: Any = data
    for depth, key in enumerate(path):
        last = depth == len(path) - 1
        where = ".".join(path[:depth])
        if isinstance(node, dict):
            if last:
                node[key] = value
            else:
                if node.get(key) is None:  # missing, or null: there is nothing below yet
                    node[key] = {}
                node = node[key]
        elif isinstance(node, list):
            if not key.isdigit() or int(key) >= len(node):
                return f"{where} is a list of {len(node)}; '{key}' is not one of its indices"
            if last:
                node[int(key)] = value
            else:
                node = node[int(key)]
        else:
            return f"{where} is {node!r}, it has no part '{key}'"
    return None


def validate(data: dict[str, Any], source: str) -> Recipe:
    """Validate a resolved mapping. Raises `ConfigError` with every problem."""
    from scalinginter.env.registry import check_id

    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        lines = [f"  {_describe(item)}" for item in error.errors()]
        count = f"{len(lines)} problem{'s' if len(lines) > 1 else ''}"
        raise ConfigError(f"{source}: {count} in the recipe\n" + "\n".join(lines)) from None
    for family in recipe.families:
        check_id(family.id)
    return recipe


def recipe_dict(recipe: Recipe) -> dict[str, Any]:
    """Return the resolved recipe as plain data, defaults included."""
    return recipe.model_dump(mode="json")


def dump(recipe: Recipe) -> str:
    """Return the resolved recipe as YAML; `load_recipe` reads it back to an equal recipe."""
    return yaml.safe_dump(recipe_dict(recipe), sort_keys=False, allow_unicode=True)


def differences(a: dict[str, Any], b: dict[str, Any], prefix: str = "") -> dict[str, tuple]:
    """Return `{path: (value in a, value in b)}` for every leaf that differs."""
    found: dict[str, tuple] = {}
    for key in [*a, *(k for k in b if k not in a)]:
        left, right = a.get(key), b.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            found |= differences(left, right, f"{prefix}{key}.")
        elif left != right:
            found[f"{prefix}{key}"] = (left, right)
    return found


def _describe(item: Any) -> str:
    """One pydantic error as `path: what, got, allowed`."""
    location, fields = _walk(item["loc"])
    path = ".".join(location) or "recipe"
    kind, got = item["type"], item.get("input")
    match kind:
        case "extra_forbidden":
            allowed = ", ".join(fields)
            return f"{path}: unknown key{nearest(location[-1], fields)}; allowed here: {allowed}"
        case "missing":
            return f"{path}: missing; it has no default, set it"
        case "literal_error" | "union_tag_invalid":
            context = item["ctx"]
            allowed = context.get("expected") or context.get("expected_tags", "")
            value = got.get("kind") if isinstance(got, dict) else got
            names = [a.strip("' ") for a in allowed.replace(" or ", ", ").split(",")]
            tail = ".kind" if kind == "union_tag_invalid" else ""
            return f"{path}{tail}: got {value!r}, allowed: {allowed}{nearest(str(value), names)}"
        case "union_tag_not_found":
            return f"{path}.kind: missing; allowed: fixed, staged, linear, success_gated"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{path}: must be a block of keys with values, got {got!r}"
        case "value_error":
            return f"{path}: {item['ctx']['error']}"
        case _:
            return f"{path}: {item['msg'][0].lower()}{item['msg'][1:]}, got {got!r}"


def _walk(loc: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """Return the readable path of a pydantic location and the field names at its last level."""
    path: list[str] = []
    model: Any = Recipe
    fields: list[str] = []
    for part in loc:
        models = _models(model)
        tagged = [m for m in models if part in _tags(m)]
        if tagged and len(models) > 1:
            model = tagged[0]  # the tag of a union is not part of the user's path
            continue
        path.append(str(part))
        fields = list(models[0].model_fields) if models else []
        field = models[0].model_fields.get(str(part)) if models else None
        model = field.annotation if field else _entry_of(model)
    return path, fields


def _entry_of(annotation: Any) -> Any:
    """Return the type of a list's or a mapping's entries; None for anything else."""
    arguments = typing.get_args(annotation)
    return arguments[-1] if typing.get_origin(annotation) in (list, dict) else None


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return [m for arg in typing.get_args(annotation) for m in _models(arg)]
    return []


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return typing.get_args(field.annotation) if field else ()
