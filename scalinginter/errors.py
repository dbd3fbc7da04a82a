"""Errors a user can cause. The command line prints them as one block and exits with code 2."""

import difflib
import sys
from collections.abc import Iterable


class UserError(ValueError):
    """The user can mend it: it says what was wrong, what was got, what is allowed, what to do."""

    quiet = False  # another process of the run tells it


class ConfigError(UserError):
    """One or more problems in a recipe, each on its own line with its path."""


class CheckpointError(UserError):
    """A checkpoint or run folder that cannot be used."""


class RunFailedError(Exception):
    """A run that cannot go on: the command line prints it and exits with code 1."""

    quiet = False  # another process of the run tells it
    exit_code = 1


class AgreedFailureError(RunFailedError):
    """Every process of the run raised it at the same point: they can still save together."""


class LostProcessError(RunFailedError):
    """Another process of the run ended, or did not answer in time."""

    exit_code = 76  # the one that failed has a better one


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


class ContextFull(EngineFailure):
    """A conversation no longer fits a model that counts its tokens itself: `StopReason.CONTEXT`."""


def nearest(got: str, allowed: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the allowed name closest to `got`, or an empty string."""
    matches = difflib.get_close_matches(got, list(allowed), n=1, cutoff=0.5)
    return f" (did you mean '{matches[0]}'?)" if matches else ""


def tell(error: UserError | RunFailedError) -> None:
    """Print an error for the user, unless another process of the run does."""
    if not error.quiet:
        print(f"error: {error}", file=sys.stderr, flush=True)
