"""WebArena's task files: reading, choosing, and filling in where the sites are."""

import json
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from environments.web.webarena.helpers import FUNCTION, HELPERS
from scalinginter.errors import UserError, nearest

Config = dict[str, Any]
"""A task as WebArena writes it (arXiv 2307.13854): intent, start_url, sites, eval and more."""

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "wikipedia", "map", "homepage")


def variable(site: str) -> str:
    """Return the environment variable that holds a site's address."""
    return f"WA_{site.upper()}"


def read(path: str | None) -> list[Config]:
    """Return the tasks of a JSON file, by default the 812 of the package `libwebarena`.

    Raises `UserError` if there is no such file or it is no list of tasks.
    """
    file = Path(path) if path else _packaged()
    if file is None or not file.is_file():
        raise UserError(
            f"webarena finds no tasks: {file or 'the package libwebarena is not installed'}; "
            "pip install --no-deps libwebarena, or give `tasks` the path of a JSON file"
        )
    found = json.loads(file.read_text(encoding="utf-8"))
    needed = ("task_id", "intent", "start_url", "sites", "eval")
    if not isinstance(found, list) or any(key not in task for task in found for key in needed):
        raise UserError(f"{file} must be a list of tasks with {', '.join(needed)}")
    for task in found:
        _check_helpers(task)
    return found


def _packaged() -> Path | None:
    spec = find_spec("webarena")  # it is not imported: it would ask for its sites
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) / "test.raw.json" if places else None


def _check_helpers(task: Config) -> None:
    for target in task["eval"].get("program_html") or ():
        for text in (target["url"], target["locator"]):
            call = FUNCTION.fullmatch(text)
            if text.startswith("func:") and (call is None or call[1] not in HELPERS):
                raise UserError(
                    f"task {task['task_id']} wants {text!r} of its judge; known functions: "
                    f"{', '.join(HELPERS)}"
                )


def needs_judge(task: Config) -> bool:
    """Does judging need a model? (An `N/A` can be judged without.)"""
    wanted = (task["eval"].get("reference_answers") or {}).get("fuzzy_match")
    return wanted is not None and wanted != "N/A"


def addresses(given: Mapping[str, str], used: Sequence[str]) -> dict[str, str]:
    """Return `site -> address` without a slash at the end, from a mapping or the environment.

    Raises `UserError` that names every variable that is missing for the sites in use.
    """
    for site in given:
        if site not in SITES:
            raise UserError(
                f"unknown site {site!r}{nearest(site, SITES)}; sites: {', '.join(SITES)}"
            )
    found = {site: given.get(site) or os.environ.get(variable(site), "") for site in SITES}
    missing = [site for site in SITES if site in used and not found[site]]
    if missing:
        raise UserError(
            f"webarena needs the addresses of its sites; missing: "
            f"{', '.join(map(variable, missing))}; set them to the addresses of your WebArena "
            "servers, give the parameter `urls`, or choose tasks by the parameter `sites`"
        )
    return {site: address.rstrip("/") for site, address in found.items() if address}


def fill(value: Any, urls: Mapping[str, str]) -> Any:
    """Return a JSON value with `__SHOPPING__` and so on replaced by addresses."""
    if isinstance(value, str):
        for site, address in urls.items():
            value = value.replace(f"__{site.upper()}__", address)
        return value
    if isinstance(value, list):
        return [fill(item, urls) for item in value]
    return (
        {key: fill(item, urls) for key, item in value.items()} if isinstance(value, dict) else value
    )
