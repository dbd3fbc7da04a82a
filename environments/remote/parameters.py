"""What the clients have in common: the checks of their parameters."""

from typing import Any

from scalinginter.env.base import Split
from scalinginter.errors import UserError


def urls_of(url: Any) -> list[str]:
    """Return the addresses that a parameter `url` gives. Raises `UserError`."""
    urls = [url] if isinstance(url, str) else url
    if not isinstance(urls, list) or not urls or not all(isinstance(one, str) for one in urls):
        raise UserError(f"url must be an address or a list of addresses, got {url!r}")
    return urls


def check_timeouts(**timeouts_s: Any) -> None:
    """Raise `UserError` unless every time limit is a number above 0."""
    for name, value in timeouts_s.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise UserError(f"{name}_timeout_s must be above 0 seconds, got {value!r}")


def ranges_of(given: dict[Split, list[int] | None]) -> dict[str, range]:
    """Return the numbers of tasks of each split that is given, as [first, one past the last].

    Raises `UserError` for what is no such pair, and for splits that share a task.
    """
    found: dict[str, range] = {}
    for split, bounds in given.items():
        if bounds is None:
            continue
        numbers = isinstance(bounds, list) and [type(b) for b in bounds] == [int, int]
        if not numbers or not 0 <= bounds[0] < bounds[1]:
            raise UserError(f"{split} must be [first, one past the last], got {bounds!r}")
        mine = range(*bounds)
        for other, theirs in found.items():
            if mine.start < theirs.stop and theirs.start < mine.stop:
                raise UserError(
                    f"{split} and {other} share tasks: {bounds} and [{theirs.start}, {theirs.stop}]"
                )
        found[split] = mine
    return found
