"""`check-env ID`: does an environment keep the contract?"""

import argparse

from scalinginter.cli.options import add_environment, at_least, parameters
from scalinginter.env.registry import check_id


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_environment(parser)
    parser.add_argument(
        "--num-tasks", type=int, default=8, help="tasks of each split that are played (default 8)"
    )
    parser.add_argument(
        "--all",
        nargs="?",
        const="test",
        metavar="SPLIT",
        help="instead: play the expert on every task of a split (default test)",
    )


def run(options: argparse.Namespace) -> int:
    """Run the checks; exit code 1 if one fails."""
    at_least("--num-tasks", options.num_tasks)
    params = parameters(options.param, "--param")
    check_id(options.id)
    from scalinginter.env import base, check, check_split

    if options.all is None:
        report = check.check_env(options.id, params, num_tasks=options.num_tasks)
    else:
        base.check_split(options.all)
        report = check_split.check_split(check.make_subject(options.id, params), options.all)
    for line in report.lines():
        print(line)
    return 0 if report.ok else 1
