"""`describe-env ID`: the measured part of an environment's card."""

import argparse

from scalinginter.cli.options import add_environment, at_least, parameters
from scalinginter.env.registry import check_id


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_environment(parser)
    parser.add_argument("--num-tasks", type=int, default=64, help="test tasks that are played")
    parser.add_argument("--example", action="store_true", help="an episode of the expert, too")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    at_least("--num-tasks", options.num_tasks)
    params = parameters(options.param, "--param")
    check_id(options.id)
    from scalinginter.env.check import make_subject
    from scalinginter.env.describe import describe, example

    subject = make_subject(options.id, params, num_tasks=options.num_tasks)
    for line in describe(subject):
        print(line)
    if options.example:
        tasks = sorted(subject.env.tasks("test"), key=lambda task: task.required_turns or 0)
        print("\n```")
        for line in example(subject, tasks[len(tasks) // 4]):
            print(line)
        print("```")
    return 0
