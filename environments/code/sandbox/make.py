"""Choosing a sandbox."""

from environments.code.sandbox.base import Limits, Sandbox
from environments.code.sandbox.levels import LEVELS
from scalinginter.errors import UserError, nearest


def make_sandbox(
    limits: Limits | None = None, *, level: str = "auto", url: str | None = None
) -> Sandbox:
    """Return the sandbox of this machine, or a SandboxFusion server's if `url` is given.

    `level`: `auto`, `bubblewrap`, `setpriv` or `rlimit` (see `levels.py`).
    Raises `UserError` for an unknown level and for one that does not work here.
    """
    allowed = ("auto", *LEVELS)
    if level not in allowed:
        raise UserError(
            f"unknown sandbox level {level!r}{nearest(level, allowed)}; one of {', '.join(allowed)}"
        )
    if url is not None:
        from environments.code.sandbox.fusion import FusionSandbox

        return FusionSandbox(url, limits)
    from environments.code.sandbox.local import LocalSandbox

    return LocalSandbox(limits, level)
