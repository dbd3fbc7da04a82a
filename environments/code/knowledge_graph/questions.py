"""Questions of a given number of hops, and the calls that answer them."""

import random
from collections.abc import Mapping
from typing import Any

from environments.code.knowledge_graph.graph import ATTRIBUTES, INVERSE, Graph

KINDS = ("path", "count", "most", "both")
ATTEMPTS = 500


def draw_question(graph: Graph, chance: random.Random, kind: str, hops: int) -> dict[str, Any]:
    """Draw a question whose paths have `hops` hops in all.

    path    which entities a path leads to
    count   how many
    most    which of them has the largest or smallest value
    both    which entities two paths lead to

    The last three end in a relation to many; with too few hops for that, the kind is `path`.
    Raises `LookupError` if none is found: never for the graphs of `make_graph`.
    """
    least = {"path": 1, "count": 1, "most": 1, "both": 2}[kind]
    if hops < least:
        kind = "path"
    for _ in range(ATTEMPTS):
        found = _DRAW[kind](graph, chance, hops)
        if found is not None:
            return {"kind": kind, **found}
    raise LookupError(f"no question of kind {kind!r} with {hops} hops")


def walk(graph: Graph, chance: random.Random, hops: int) -> tuple[str, list[str], str]:
    """Return a start, a path of relations to one entity each, and its end; it visits no entity
    twice, so no shorter part of the path leads there."""
    entities = list(graph.types)
    while True:
        start = here = chance.choice(entities)
        path: list[str] = []
        seen = {start}
        for _ in range(hops):
            choices = [step for step in graph.steps[here] if step[1] not in seen]
            if not choices:
                break
            relation, here = chance.choice(choices)
            path.append(relation)
            seen.add(here)
        else:
            return start, path, here


def _path(graph: Graph, chance: random.Random, hops: int) -> dict[str, Any] | None:
    start, path, _ = walk(graph, chance, hops)
    return {"paths": [[start, path]]}


def walk_to_many(
    graph: Graph, chance: random.Random, hops: int, least: int
) -> tuple[str, list[str], tuple[str, ...]] | None:
    """Return a walk whose last hop leads to at least `least` entities."""
    start, path, end = walk(graph, chance, hops - 1)
    relations = [r for r in INVERSE.get(graph.types[end], {}) if len(graph.edges[end, r]) >= least]
    if not relations:
        return None
    relation = chance.choice(relations)
    return start, [*path, relation], graph.edges[end, relation]


def _count(graph: Graph, chance: random.Random, hops: int) -> dict[str, Any] | None:
    found = walk_to_many(graph, chance, hops, 2)
    return found and {"paths": [[found[0], found[1]]]}


def _most(graph: Graph, chance: random.Random, hops: int) -> dict[str, Any] | None:
    found = walk_to_many(graph, chance, hops, 2)
    if found is None:
        return None
    attribute = chance.choice(list(ATTRIBUTES[graph.types[found[2][0]]]))
    largest = chance.random() < 0.5
    if len(graph.best(found[2], attribute, largest)) != 1:
        return None
    return {"paths": [[found[0], found[1]]], "attribute": attribute, "largest": largest}


def _both(graph: Graph, chance: random.Random, hops: int) -> dict[str, Any] | None:
    first_hops = hops // 2
    first = walk_to_many(graph, chance, first_hops, 2)
    if first is None:
        return None
    shared = chance.choice(first[2])
    kind = graph.types[shared]
    relation, single = chance.choice(
        [
            (relation, single)
            for inverse in INVERSE.values()
            for relation, (source, single) in inverse.items()
            if source == kind
        ]
    )
    end = graph.edges[shared, single][0]
    back = _walk_back(graph, chance, end, hops - first_hops - 1)
    second = graph.edges[end, relation]
    common = set(first[2]) & set(second)
    if back is None or common in (set(first[2]), set(second)):
        return None
    return {"paths": [[first[0], first[1]], [back[0], [*back[1], relation]]]}


def _walk_back(
    graph: Graph, chance: random.Random, end: str, hops: int
) -> tuple[str, list[str]] | None:
    """Return a start from which `hops` single relations lead to `end`; None if none is found."""
    for _ in range(20):
        here, path, seen = end, [], {end}
        for _ in range(hops):
            choices = [(e, r) for e, r in graph.sources[here] if e not in seen]
            if not choices:
                break
            here, relation = chance.choice(choices)
            path.insert(0, relation)
            seen.add(here)
        else:
            return here, path
    return None


_DRAW = {"path": _path, "count": _count, "most": _most, "both": _both}


def gold(graph: Graph, data: Mapping[str, Any]) -> tuple[str, ...] | int:
    """Return the answer: entities, or a number."""
    sets = [graph.follow(start, path) for start, path in data["paths"]]
    if data["kind"] == "count":
        return len(sets[0])
    if data["kind"] == "most":
        return graph.best(sets[0], data["attribute"], data["largest"])
    if data["kind"] == "both":
        return tuple(sorted(set(sets[0]) & set(sets[1])))
    return sets[0]


def ask(data: Mapping[str, Any]) -> str:
    """Return the question in words."""
    named = [_name(start, path) for start, path in data["paths"]]
    if data["kind"] == "count":
        return f"How many are {named[0]}?"
    if data["kind"] == "most":
        size = "largest" if data["largest"] else "smallest"
        return f"Which of {named[0]} has the {size} {data['attribute']}?"
    if data["kind"] == "both":
        return f"Which are both {named[0]} and {named[1]}?"
    return f"Which is {named[0]}?"


def _name(start: str, path: list[str]) -> str:
    return "".join(f"the {relation} of " for relation in reversed(path)) + start


def plan(data: Mapping[str, Any]) -> list[str]:
    """Return the calls that answer the question; variables are numbered from #0."""
    calls: list[str] = []
    ends: list[str] = []
    for start, path in data["paths"]:
        here = start
        for relation in path:
            calls.append(f"get_neighbors({here}, {relation})")
            here = f"#{len(calls) - 1}"
        ends.append(here)
    if data["kind"] == "count":
        calls.append(f"count({ends[0]})")
    if data["kind"] == "most":
        name = "argmax" if data["largest"] else "argmin"
        calls.append(f"{name}({ends[0]}, {data['attribute']})")
    if data["kind"] == "both":
        calls.append(f"intersection({ends[0]}, {ends[1]})")
    return [*calls, f"answer(#{len(calls) - 1})"]
