"""Checks of the task list and of determinism."""

import json
import os
import random

import numpy as np

from scalinginter.env.base import SPLITS
from scalinginter.env.check_subject import Subject, require
from scalinginter.env.fingerprint import fingerprint, in_another_process, play
from scalinginter.types import Task


def tasks_are_sound(subject: Subject) -> str:
    """Every split has tasks, and their data are JSON."""
    counts = {split: len(subject.env.tasks(split)) for split in SPLITS}
    require(all(counts.values()), f"a split is empty: {counts}")
    for task in (task for split in SPLITS for task in subject.env.tasks(split)):
        require(isinstance(task, Task), f"{task!r} is not a scalinginter.types.Task")
        round_trip = json.loads(json.dumps(dict(task.data), allow_nan=False))
        require(round_trip == dict(task.data), f"{task.id}: data changes in JSON")
        needs = task.required_turns
        require(needs is None or needs >= 1, f"{task.id}: required_turns is {needs}")
    return f"JSON, {counts}"


def ids_are_unique(subject: Subject) -> str:
    """No id occurs twice, and a second instance lists the same ones."""
    ids = [task.id for split in SPLITS for task in subject.env.tasks(split)]
    twice = sorted({i for i in ids if ids.count(i) > 1}) if len(set(ids)) < len(ids) else []
    require(not twice, f"{len(twice)} ids occur twice, {twice[0] if twice else ''!r} first")
    again = [task.id for split in SPLITS for task in subject.make().tasks(split)]
    require(ids == again, "a second instance lists other ids")
    return f"{len(ids)} ids, the same in a second instance"


def splits_are_disjoint(subject: Subject) -> str:
    """No data occur in two splits (and none under two ids of one)."""
    seen: dict[str, tuple[str, str]] = {}
    for split in SPLITS:
        for task in subject.env.tasks(split):
            content = json.dumps(dict(task.data), sort_keys=True)
            other, other_id = seen.setdefault(content, (split, task.id))
            require(other == split, f"{task.id} has the same data as {other_id}")
    return f"{len(seen)} different contents"


def same_in_two_processes(subject: Subject) -> str:
    """The same seed gives the same bytes in a process with another hash seed."""
    how = {"num_tasks": subject.num_tasks, "seed": subject.seed, "turns": subject.horizon or 20}
    hash_seed = 2 if os.environ.get("PYTHONHASHSEED") == "1" else 1
    there = in_another_process(subject.cls, subject.params, hash_seed=hash_seed, **how)
    here = fingerprint(subject.make(), **how)
    differing = sorted(k for k in here.keys() | there.keys() if here.get(k) != there.get(k))
    require(
        not differing, f"{len(differing)} differ, the {differing[0] if differing else ''} first"
    )
    return f"{len(here)} digests, here and with PYTHONHASHSEED={hash_seed}"


def reset_leaks_nothing(subject: Subject) -> str:
    """An episode on a used instance equals the one on a fresh instance."""
    tasks = subject.played if len(subject.played) > 1 else [*subject.played, *subject.played]
    used = subject.make()
    for before, task in zip(tasks, [*tasks[1:], tasks[0]], strict=True):
        play(used, before, seed=subject.seed + 1, turns=subject.turns(before) // 2)
        second = play(used, task, seed=subject.seed, turns=subject.turns(task))
        fresh = play(subject.make(), task, seed=subject.seed, turns=subject.turns(task))
        require(second == fresh, f"{task.id} differs after {before.id} was played")
    return f"{len(tasks)} tasks after others on one instance"


def _numpys_state() -> bytes:
    state = np.random.get_state(legacy=False)["state"]
    return state["key"].tobytes() + bytes(str(state["pos"]), "ascii")


def global_random_state_is_left_alone(subject: Subject) -> str:
    """Playing neither uses nor seeds the random state that everybody shares."""
    mine, numpys = random.getstate(), np.random.get_state()
    random.seed("a state that no environment would seed")
    np.random.seed(987_654_321)
    before = random.getstate(), _numpys_state()
    for task in subject.played:
        play(subject.env, task, seed=subject.seed, turns=subject.turns(task))
    after = random.getstate(), _numpys_state()
    random.setstate(mine)
    np.random.set_state(numpys)
    require(before[0] == after[0], "the module `random` was used or seeded; make a Random")
    require(before[1] == after[1], "`numpy.random` was used or seeded; make a Generator")
    return "random and numpy.random"
