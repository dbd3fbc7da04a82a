"""Packages that the web environments need."""

from typing import Any

from scalinginter.errors import UserError


def require_selectolax() -> Any:
    """Return selectolax's HTML parser. Raises `UserError` if the package is missing."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as error:
        raise UserError(
            f"web environments parse HTML with selectolax, which cannot be imported: {error}; "
            "pip install selectolax"
        ) from error
    return LexborHTMLParser
