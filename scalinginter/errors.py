"""Errors a user can cause. The command line prints them as one block and exits with code 2."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """The user can mend it: it says what was wrong, what was got, what is allowed, what to do."""


class ConfigError(UserError):
    """One or more problems in a recipe, each on its own line with its path."""


class CheckpointError(UserError):
    """A checkpoint or run folder that cannot be used."""


class RunFailedError(Exception):
    """A run that cannot go on: the command line prints it and exits with code 1."""


class EnvironmentFailure(Exception):  # noqa: N818 (data about an episode)
    """The environment crashed, hung or broke its contract: a failure of the infrastructure.

    It ends one episode with `StopReason.ENV_ERROR` or `TIMEOUT`; it never ends the run.
    `collateral`: the episode did nothing wrong, another one took its worker process along.
    """

    def __init__(self, message: str, *, timeout: bool = False, collateral: bool = False) -> None:
        super().__init__(message)
        self.timeout = timeout
        self.collateral = collateral


class EngineFailure(Exception):  # noqa: N818 (data about an episode)
    """The engine could not answer a request; ends one episode with `StopReason.ENGINE_ERROR`."""


def nearest(got: str, allowed: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the allowed name closest to `got`, or an empty string."""
    matches = difflib.get_close_matches(got, list(allowed), n=1, cutoff=0.5)
    return f" (did you mean '{matches[0]}'?)" if matches else ""
