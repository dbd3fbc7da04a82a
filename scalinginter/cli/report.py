"""`report DIR`: write the report of a comparison again from its journals."""

import argparse
from pathlib import Path

from scalinginter.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="folder of a comparison")


def run(options: argparse.Namespace) -> int:
    """Write report.md and its plots."""
    from scalinginter.compare.report import write_report

    try:
        print(write_report(Path(options.folder)))
    except OSError as error:
        raise UserError(
            f"{options.folder}: the report cannot be written: {error.strerror}; make room, or make "
            "the folder writable"
        ) from None
    return 0
