"""Environment ids and where they live. Importing this module imports no environment.

Built-in environments are a static table. Other packages add theirs with an entry point:

    [project.entry-points."scalinginter.environments"]
    my_game = "my_package.my_game:MyGame"
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from importlib import metadata
from typing import TYPE_CHECKING, Any

from scalinginter.errors import UserError, nearest

if TYPE_CHECKING:
    from scalinginter.env.base import TextEnv

_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
ENTRY_POINT_GROUP = "scalinginter.environments"

BUILTIN: dict[str, str] = {
    "agentgym": "environments.remote.agentgym:AgentGymEnv",
    "agentrl": "environments.remote.agentrl:AgentRLEnv",
    "babyai": "environments.embodied.babyai.env:BabyAI",
    "browsergym": "environments.web.browsergym.env:BrowserGym",
    "household": "environments.embodied.household.env:Household",
    "knowledge_graph": "environments.code.knowledge_graph.env:KnowledgeGraph",
    "laboratory": "environments.science.laboratory.env:Laboratory",
    "miniwob": "environments.web.miniwob.env:MiniWob",
    "python_math": "environments.code.python_math.env:PythonMath",
    "python_programs": "environments.code.python_programs.env:PythonPrograms",
    "remote": "environments.remote.client:RemoteEnv",
    "scienceworld": "environments.science.scienceworld.env:ScienceWorld",
    "search": "environments.search.env:Search",
    "shell": "environments.code.shell.env:Shell",
    "sql": "environments.code.sql.env:Sql",
    "textcraft": "environments.game.textcraft.env:TextCraft",
    "textworld_coin": "environments.game.textworld.coin:CoinCollector",
    "textworld_cooking": "environments.game.textworld.cooking:Cooking",
    "textworld_express": "environments.game.textworld_express.env:TextWorldExpress",
    "toy_corridor": "scalinginter.env.toy:ToyCorridor",
    "toy_faulty": "scalinginter.env.toy:ToyFaulty",
    "toy_forced": "scalinginter.env.toy:ToyForced",
    "web_site": "environments.web.site.env:SiteEnv",
    "web_site_chromium": "environments.web.chromium.env:ChromiumSiteEnv",
    "webarena": "environments.web.webarena.env:WebArena",
}


def environment_locations() -> dict[str, str]:
    """Return `id -> "module:Class"` of every environment; a built-in id cannot be replaced."""
    plugins = {point.name: point.value for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    return dict(sorted((plugins | BUILTIN).items()))


def environment_ids() -> list[str]:
    """Return the ids of all environments, in alphabetical order."""
    return list(environment_locations())


def check_id(env_id: str) -> None:
    """Raise `UserError` if no environment has this id, and it is not "module:Class" either.

    Imports nothing: whether that class is there, `make` finds out.
    """
    if env_id in BUILTIN:  # spares the scan of installed packages
        return
    if ":" in env_id:
        if not all(part.isidentifier() for part in env_id.replace(":", ".", 1).split(".")):
            raise UserError(
                f"environment {env_id!r} must look like module:Class, e.g. my_game:MyGame"
            )
        return
    ids = environment_ids()
    if env_id not in ids:
        raise UserError(
            f"unknown environment {env_id!r}{nearest(env_id, ids)}; there are: {', '.join(ids)}; "
            "a class of your own is named by module:Class"
        )


def load_class(env_id: str) -> type[TextEnv]:
    """Import and return the class of an environment: a registry id, or "module:Class".

    Such a module may lie in the working folder, too. Raises `UserError` for an unknown id and for
    one whose package cannot be imported.
    """
    check_id(env_id)
    if ":" in env_id:
        if os.getcwd() not in sys.path:  # a file beside the recipe, as `python -m` would find it
            sys.path.append(os.getcwd())
        return load_location(env_id, f"environment {env_id!r}")
    location = BUILTIN.get(env_id) or environment_locations()[env_id]
    return load_location(location, f"environment {env_id!r}")


def load_location(location: str, what: str) -> type[TextEnv]:
    """Import `"module:Class"`; `what` names it in the error."""
    from scalinginter.env.base import TextEnv

    module_name, _, class_name = location.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except ImportError as error:
        raise UserError(
            f"{what} lives in {location!r}, which cannot be imported: {error}; "
            "install its package, or mend the entry point"
        ) from error
    except Exception as error:  # whatever a stranger's module does when it is imported
        raise UserError(
            f"{what} lives in {location!r}, which cannot be imported: {blame(error)}"
        ) from error
    if not (inspect.isclass(found) and issubclass(found, TextEnv)):
        raise UserError(
            f"{what} must be a subclass of scalinginter.env.base.TextEnv; {location!r} is {found!r}"
        )
    return found


def make(env_id: str, **params: Any) -> TextEnv:
    """Build an environment. Raises `UserError` for an unknown id, parameter or value."""
    return build(load_class(env_id), env_id, params)


def build(cls: type[TextEnv], name: str, params: dict[str, Any]) -> TextEnv:
    """Build `cls(**params)` after checking that it has these parameters.

    Raises `UserError` for those it has not, and for whatever the constructor raises.
    """
    signature, takes_any = _parameters(cls)
    allowed = list(signature)
    unknown = [] if takes_any else [key for key in params if key not in allowed]
    if unknown:
        key = unknown[0]
        raise UserError(
            f"environment {name!r} has no parameter {key!r}{nearest(key, allowed)}; "
            f"it has: {', '.join(allowed) or 'none'}"
        )
    needed = [k for k in allowed if signature[k].default is inspect.Parameter.empty]
    missing = [key for key in needed if key not in params]
    if missing:
        raise UserError(
            f"environment {name!r} needs the parameter {missing[0]!r}; it has: {', '.join(allowed)}"
        )
    try:
        return cls(**params)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"environment {name!r} cannot be built: {blame(error)}") from error


def _parameters(cls: type[TextEnv]) -> tuple[dict[str, inspect.Parameter], bool]:
    """Return what a constructor takes by name, and whether it takes any name.

    `**params` of a constructor stands for the parameters of the class above it, which it calls.
    """
    found: dict[str, inspect.Parameter] = {}
    takes_any = False
    for owner in cls.__mro__[:-1]:  # `object` is the last
        if "__init__" not in vars(owner):
            continue
        _, *taken = inspect.signature(owner.__init__).parameters.values()
        found |= {p.name: p for p in taken if p.kind not in _STARS and p.name not in found}
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken)
        if not takes_any:
            break
    return found, takes_any


def blame(error: BaseException) -> str:
    """Return what was raised and the innermost place, in one line."""
    message = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, SyntaxError):
        return message  # it names file and line itself
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{message} ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})"


def register_gymnasium() -> None:
    """Make `gymnasium.make("scalinginter/<id>-v0")` work for every environment.

    Importing `scalinginter.env.gym` calls it; older versions of gymnasium do so by themselves where
    the package is installed (entry point `gymnasium.envs`).
    """
    import gymnasium

    for env_id, location in environment_locations().items():
        name = f"scalinginter/{env_id}-v0"
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=location)
