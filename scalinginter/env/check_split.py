"""The expert on every task of a split: `scalinginter check-env ID --all test`.

The other checks play some tasks; this one finds the task that nobody can solve.
"""

import math

from scalinginter.env.base import Split
from scalinginter.env.check import Check, CheckReport
from scalinginter.env.check_subject import Subject
from scalinginter.types import Task

_TOLERANCE = 1e-6  # on sums of rewards
_TOLD = 8  # faulty tasks that are named


def check_split(subject: Subject, split: Split) -> CheckReport:
    """Play the expert's plan of every task of a split, and collect what is wrong with any."""
    tasks = list(subject.env.tasks(split))
    lengths: list[int] = []
    faults: list[str] = []
    without = 0
    for task in tasks:
        try:
            turns, fault = _played(subject, task)
        except Exception as error:  # whatever the environment raises is the finding
            turns, fault = 0, f"raised {type(error).__name__}: {str(error)[:200]}"
        without += turns is None
        lengths += [turns] if turns else []
        faults += [f"{task.id}: {fault}"] if fault else []
    return CheckReport(subject.name, (_summary(split, len(tasks), without, lengths, faults),))


def _summary(split: str, count: int, without: int, lengths: list[int], faults: list[str]) -> Check:
    name = f"expert solves every task of {split}"
    if faults:
        more = f"; and {len(faults) - _TOLD} more" if len(faults) > _TOLD else ""
        told = "; ".join(faults[:_TOLD])
        return Check(name, False, f"{len(faults)} of {count} tasks: {told}{more}")
    if without == count:
        return Check(name, True, "no expert plan")
    some = f", {without} without a plan" if without else ""
    spread = f"in {min(lengths)} to {max(lengths)} turns"
    return Check(name, True, f"{len(lengths)} of {count} tasks {spread}{some}")


def _played(subject: Subject, task: Task) -> tuple[int | None, str]:
    """Return how many turns the plan took (None without one), and what is wrong."""
    moments = subject.expert(task)
    if moments is None:
        return None, ""
    count = len(moments)
    if not moments or not moments[-1].success:
        return count, f"not solved after {count} turns of the plan"
    total, needs = math.fsum(moment.reward for moment in moments), task.required_turns
    if not moments[-1].terminated:
        return count, "success does not terminate"
    if not -_TOLERANCE <= total <= 1 + _TOLERANCE or total <= 0:
        return count, f"the expert earns {total:g}"
    limit = subject.horizon or needs
    if limit is not None and count > limit:
        return count, f"{count} turns, allowed {limit}"
    return count, ""
