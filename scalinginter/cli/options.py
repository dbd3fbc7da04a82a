"""Options that several commands share, and their checks."""

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from scalinginter.config.yaml_strict import parse
from scalinginter.errors import UserError, nearest
from scalinginter.track.run_folder import make_folder, runs_below

_MOST_NAMED = 12
COST_UNITS = ("turns", "generated_tokens", "forward_tokens", "seconds", "steps")


def int_list(name: str, minimum: int) -> Any:
    """Return an argparse type for `1,2,3`: distinct whole numbers, each at least `minimum`."""

    def parse(text: str) -> list[int]:
        try:
            values = [int(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{name} takes whole numbers with commas between, e.g. 0,1,2; got {text!r}"
            ) from None
        if any(value < minimum for value in values):
            raise argparse.ArgumentTypeError(f"{name} must be at least {minimum}, got {text!r}")
        if len(set(values)) != len(values):
            raise argparse.ArgumentTypeError(f"{name} names a number twice: {text!r}")
        return values

    return parse


def add_environment(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name an environment: its id and its parameters."""
    parser.add_argument("id", help="registry id, or module:Class")
    parser.add_argument(
        "--param",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="an argument of the environment, e.g. bag=3",
    )


def at_least(option: str, value: int | None, minimum: int = 1) -> None:
    """Raise `UserError` if a number of an option is too small; None was not given."""
    if value is not None and value < minimum:
        raise UserError(f"{option} must be at least {minimum}, got {value}")


def budget_overrides(budgets: list[str]) -> list[str]:
    """Turn `turns=120000` into `train.budget.turns=120000`; checks the unit's name."""
    overrides = []
    for budget in budgets:
        unit, _, amount = budget.partition("=")
        if not amount.strip() or unit not in COST_UNITS:
            raise UserError(
                f"--budget {budget}: must be unit=amount, unit one of {', '.join(COST_UNITS)}"
                f"{nearest(unit, COST_UNITS)}"
            )
        overrides.append(f"train.budget.{unit}={_whole(amount)}")
    return overrides


def _whole(amount: str) -> str:
    """Write `1e3` as `1000`, for units that are counted; leave the rest to the schema."""
    try:
        number = float(amount)
    except ValueError:
        return amount
    return str(int(number)) if number.is_integer() else amount


def shown_command(command: str, *arguments: object) -> str:
    """Return a command line to print, quoted, that starts the program as it was started.

    `train.py` started as a script names itself and the `eval.py` beside it.
    """
    script = Path(sys.argv[0])
    words = ["scalinginter", command]
    if script.suffix == ".py":
        beside = script.with_name(f"{command}.py")
        here = beside.resolve().parent == Path.cwd()
        words = ["python", beside.name if here else str(beside)]
    return shlex.join([*words, *map(str, arguments)])


def check_writable(path: Path, option: str) -> None:
    """Raise `UserError` if no folder can be made at `path`; makes none."""
    try:
        nearest_there = next(folder for folder in (path, *path.parents) if folder.exists())
    except OSError as error:  # the name is too long, or leads over a loop
        raise UserError(
            f"{option} {str(path)[:80]}: cannot be made: {error.strerror}; choose another folder"
        ) from None
    if not nearest_there.is_dir():
        raise UserError(
            f"{option} {path}: cannot be made: {nearest_there} is not a folder; "
            "choose another folder"
        )
    if not os.access(nearest_there, os.W_OK | os.X_OK):
        raise UserError(f"{option} {path}: is not writable; choose another folder")


def writable_folder(path: str | Path, option: str) -> Path:
    """Make a folder and return it. Raises `UserError` if it cannot be made or written."""
    folder = Path(path)
    check_writable(folder, option)
    make_folder(folder)
    return folder


def refuse_comparison(folder: Path, option: str, instead: str = "") -> None:
    """Raise `UserError` that names the runs inside if the folder holds a comparison."""
    runs = runs_below(folder)
    if not runs:
        return
    lines = [f"  {option} {run}" for run in runs[:_MOST_NAMED]]
    if len(runs) > _MOST_NAMED:
        lines.append(f"  ... and {len(runs) - _MOST_NAMED} more")
    raise UserError(
        f"{option} {folder}: holds a comparison{instead}; name one of its runs:\n"
        + "\n".join(lines)
    )


def parameters(pairs: list[str], option: str) -> dict[str, Any]:
    """Turn `key=value` pairs into a mapping; values are YAML."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UserError(f"{option} {pair}: must look like key=value")
        found[key] = parse(text, f"{option} {pair}")
    return found
