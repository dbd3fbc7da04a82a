"""`describe-env` prints what was measured."""

from scalinginter.cli.main import main
from scalinginter.env.check import make_subject
from scalinginter.env.describe import describe, example, length_table
from scalinginter.types import Task


def test_tasks_are_counted_by_their_required_turns():
    tasks = [Task(str(n), "toy", required_turns=n) for n in (1, 2, 3, 41)]
    assert (
        list(length_table({"test": tasks}))[-1] == "| test | 4 | 2 | 1 | 0 | 0 | 0 | 1 | 2.5 | 41 |"
    )


def test_tasks_of_unknown_length_are_said_to_be_unknown():
    assert "unknown" in list(length_table({"test": [Task("a", "toy")]}))[-1]


def test_the_expert_of_the_corridor_always_succeeds():
    lines = list(describe(make_subject("toy_corridor", num_tasks=4)))
    assert any(line.startswith("| expert | success 1.00, mean reward 1.00") for line in lines)


def test_an_example_shows_actions_and_the_reward():
    subject = make_subject("toy_corridor")
    lines = list(example(subject, subject.env.tasks("test")[1]))
    assert lines[1] == "> right"
    assert lines[-1].endswith("(reward 1)")


def test_the_command_prints_a_table_and_an_example(capsys):
    main(["describe-env", "toy_corridor", "--example", "--param", "max_length=2"])
    printed = capsys.readouterr().out
    assert ("| split | tasks |" in printed, "> right" in printed) == (True, True)
