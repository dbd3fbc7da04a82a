"""Runs code that nobody trusts. `make_sandbox` is the way in."""

from environments.code.sandbox.base import Limits, Result, Sandbox, Session
from environments.code.sandbox.make import make_sandbox

__all__ = ["Limits", "Result", "Sandbox", "Session", "make_sandbox"]
