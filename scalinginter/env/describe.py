"""What an environment is like, measured by playing it: lengths, latencies, memory, rewards."""

import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scalinginter.env.base import SPLITS, TextEnv
from scalinginter.env.check_subject import Subject
from scalinginter.env.fingerprint import spread
from scalinginter.types import Task

BUCKETS = ((1, 2), (3, 5), (6, 10), (11, 20), (21, 40), (41, None))
"""Ranges of required turns, in which tasks are counted."""


@dataclass(slots=True)
class Played:
    """What some episodes of one policy gave."""

    rewards: list[float] = field(default_factory=list)
    successes: list[bool] = field(default_factory=list)
    resets_s: list[float] = field(default_factory=list)
    steps_s: list[float] = field(default_factory=list)


def describe(subject: Subject) -> Iterator[str]:
    """Yield the lines of a card's measured part, in Markdown; `subject.num_tasks` test tasks are
    played by the expert and by random actions."""
    before = resident_mib()
    env = subject.env
    yield from length_table({split: env.tasks(split) for split in SPLITS})
    tasks = spread(env.tasks("test"), subject.num_tasks)
    expert = _play(subject, tasks, by_expert=True)
    chance = _play(subject, tasks, by_expert=False)
    memory = resident_mib() - before
    yield ""
    yield "| measured on the test split | |"
    yield "|---|---|"
    yield f"| reset | {_milliseconds(expert.resets_s + chance.resets_s)} |"
    yield f"| step | {_milliseconds(expert.steps_s + chance.steps_s)} |"
    yield f"| memory | {memory:.0f} MiB beside the interpreter, child processes included |"
    yield f"| expert | {_outcome(expert) if expert.rewards else 'none'} |"
    yield f"| random actions | {_outcome(chance)}, in at most twice the required turns |"


def length_table(tasks: dict[str, Sequence[Task]]) -> Iterator[str]:
    """Yield a table: how many tasks of each split need how many turns."""
    labels = [f"{low}-{high}" if high else f"{low}+" for low, high in BUCKETS]
    yield f"| split | tasks | {' | '.join(labels)} | median | most |"
    yield "|---|" + "---:|" * (len(BUCKETS) + 3)
    for split, listed in tasks.items():
        lengths = [task.required_turns for task in listed if task.required_turns]
        counts = [sum(low <= n <= (high or n) for n in lengths) for low, high in BUCKETS]
        middle = f"{statistics.median(lengths):g} | {max(lengths)}" if lengths else "unknown |"
        yield f"| {split} | {len(listed)} | {' | '.join(map(str, counts))} | {middle} |"


def example(subject: Subject, task: Task, width: int = 600) -> Iterator[str]:
    """Yield the expert's transcript of a task; observations are cut at `width` characters."""
    observation, _ = subject.start(task)
    yield _cut(observation, width)
    for action in subject.env.expert_plan() or []:
        observation, reward, terminated, _, _ = subject.env.step(action)
        yield f"> {action}"
        yield _cut(observation, width) + (f"   (reward {reward:g})" if reward else "")
        if terminated:
            break


def resident_mib() -> float:
    """Return the memory of this process and its children that is not shared, in MiB (Linux)."""
    return sum(map(_private_mib, _family(os.getpid())))


def _play(subject: Subject, tasks: Sequence[Task], *, by_expert: bool) -> Played:
    env, played = subject.env, Played()
    choice = random.Random(subject.seed)
    for task in tasks:
        start = time.perf_counter()
        subject.start(task)
        played.resets_s.append(time.perf_counter() - start)
        plan = env.expert_plan() if by_expert else None
        if by_expert and plan is None:
            return Played()
        total, success = 0.0, False
        for turn in range(len(plan) if plan is not None else subject.turns(task)):
            action = plan[turn] if plan is not None else _random_action(env, choice)
            start = time.perf_counter()
            _, reward, terminated, _, info = env.step(action)
            played.steps_s.append(time.perf_counter() - start)
            total, success = total + float(reward), bool(info.get("success", False))
            if terminated:
                break
        played.rewards.append(total)
        played.successes.append(success)
    return played


def _random_action(env: TextEnv, choice: random.Random) -> str:
    return choice.choice(env.admissible_actions() or ["look", "help", "wait"])


def _outcome(played: Played) -> str:
    return (
        f"success {statistics.fmean(played.successes):.2f}, "
        f"mean reward {statistics.fmean(played.rewards):.2f} ({len(played.rewards)} episodes)"
    )


def _milliseconds(seconds: Sequence[float]) -> str:
    ordered = sorted(1e3 * value for value in seconds)
    return f"{ordered[len(ordered) // 2]:.3g} ms, 95% below {ordered[int(0.95 * len(ordered))]:.3g}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[:width]} [...]"


def _family(pid: int) -> list[int]:
    below = _read(f"/proc/{pid}/task/{pid}/children").split()
    return [pid, *(member for child in below for member in _family(int(child)))]


def _private_mib(pid: int) -> float:
    lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()[1:]
    if not lines:
        return 0.0
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[key].split()[0]) for key in ("Private_Clean", "Private_Dirty")) / 1024


def _read(path: str) -> str:
    """The text of a file of a process that may have ended: then nothing."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
