"""Questions and changes of a given number of hops, and the statements that do them."""

import random
from collections.abc import Mapping
from typing import Any

from environments.code.knowledge_graph.graph import ATTRIBUTES, INVERSE, Graph
from environments.code.knowledge_graph.questions import walk, walk_to_many
from environments.code.sql.database import TABLES, column

KINDS = ("value", "count", "most", "change")
ATTEMPTS = 500


def draw_question(graph: Graph, chance: random.Random, kind: str, hops: int) -> dict[str, Any]:
    """Draw a task whose paths have `hops` hops in all.

    value   a number of what the path leads to
    count   how many lead there
    most    which of those has the largest or smallest number
    change  set numbers of what one or more paths lead to
    """
    for _ in range(ATTEMPTS):
        found = _DRAW[kind](graph, chance, hops)
        if found is not None:
            return {"kind": kind, **found}
    raise LookupError(f"no task of kind {kind!r} with {hops} hops")


def _value(graph: Graph, chance: random.Random, hops: int) -> dict[str, Any]:
    start, path, end = walk(graph, chance, hops)
    attribute = chance.choice(list(ATTRIBUTES[graph.types[end]]))
    return {"start": start, "path": path, "attribute": attribute}


def _count(graph: Graph, chance: random.Random, hops: int) -> dict[str, Any] | None:
    found = walk_to_many(graph, chance, hops + 1, 2)
    return found and {"start": found[0], "path": found[1]}


def _most(graph: Graph, chance: random.Random, hops: int) -> dict[str, Any] | None:
    found = walk_to_many(graph, chance, hops + 1, 2)
    if found is None:
        return None
    start, path, entities = found
    attribute = chance.choice(list(ATTRIBUTES[graph.types[entities[0]]]))
    largest = chance.random() < 0.5
    if len(graph.best(entities, attribute, largest)) != 1:
        return None
    return {"start": start, "path": path, "attribute": attribute, "largest": largest}


def _change(graph: Graph, chance: random.Random, hops: int) -> dict[str, Any] | None:
    changes, ends = [], set()
    while hops >= 0:
        part = min(hops, chance.randint(1, 4)) if hops > 4 else hops
        start, path, end = walk(graph, chance, part)
        attribute = chance.choice(list(ATTRIBUTES[graph.types[end]]))
        low, high = ATTRIBUTES[graph.types[end]][attribute]
        value = chance.randint(low, high)
        if end in ends or value == graph.values[end, attribute]:
            return None
        ends.add(end)
        changes.append({"start": start, "path": path, "attribute": attribute, "value": value})
        hops -= part + 1
    return {"changes": changes}


_DRAW = {"value": _value, "count": _count, "most": _most, "change": _change}


def _name(start: str, path: list[str]) -> str:
    return "".join(f"the {relation} of " for relation in reversed(path)) + start


def ask(data: Mapping[str, Any]) -> str:
    """Return the task in words."""
    if data["kind"] == "change":
        parts = [
            f"Set the {c['attribute']} of {_name(c['start'], c['path'])} to {c['value']}."
            for c in data["changes"]
        ]
        return "Change the database and leave the rest as it is. " + " ".join(parts)
    named = _name(data["start"], data["path"])
    if data["kind"] == "count":
        return f"How many are {named}?"
    if data["kind"] == "most":
        size = "largest" if data["largest"] else "smallest"
        return f"Which of {named} has the {size} {data['attribute']}?"
    return f"What is the {data['attribute']} of {named}?"


def look_up(graph: Graph, entity: str, relation: str) -> str:
    """Return the query for one column of one entity."""
    return (
        f"sql SELECT {column(relation)} FROM {TABLES[graph.types[entity]]} WHERE name = '{entity}'"
    )


def count_of(graph: Graph, entity: str, relation: str) -> str:
    """Return the query for how many rows a relation to many leads to."""
    source, single = INVERSE[graph.types[entity]][relation]
    return f"sql SELECT COUNT(*) FROM {TABLES[source]} WHERE {column(single)} = '{entity}'"


def most_of(graph: Graph, entity: str, relation: str, attribute: str, largest: bool) -> str:
    """Return the query for the one with the largest or smallest number."""
    source, single = INVERSE[graph.types[entity]][relation]
    order = "DESC" if largest else "ASC"
    return (
        f"sql SELECT name FROM {TABLES[source]} WHERE {column(single)} = '{entity}' "
        f"ORDER BY {column(attribute)} {order} LIMIT 1"
    )


def update_of(graph: Graph, entity: str, attribute: str, value: int) -> str:
    """Return the change of one number of one entity."""
    table = TABLES[graph.types[entity]]
    return f"execute UPDATE {table} SET {column(attribute)} = {value} WHERE name = '{entity}'"


def _hops(graph: Graph, start: str, path: list[str]) -> tuple[list[str], str]:
    """Return a query per hop, and the entity at the end."""
    queries, here = [], start
    for relation in path:
        queries.append(look_up(graph, here, relation))
        here = graph.edges[here, relation][0]
    return queries, here


def plan(graph: Graph, data: Mapping[str, Any]) -> list[str]:
    """Return the actions that solve the task, one table at a time."""
    if data["kind"] == "change":
        actions: list[str] = []
        for change in data["changes"]:
            queries, end = _hops(graph, change["start"], change["path"])
            update = update_of(graph, end, change["attribute"], change["value"])
            actions += [*queries, update]
        return actions
    one_by_one = data["kind"] == "value"
    path = data["path"] if one_by_one else data["path"][:-1]
    queries, end = _hops(graph, data["start"], path)
    if data["kind"] == "value":
        queries.append(look_up(graph, end, data["attribute"]))
    elif data["kind"] == "count":
        queries.append(count_of(graph, end, data["path"][-1]))
    else:
        queries.append(most_of(graph, end, data["path"][-1], data["attribute"], data["largest"]))
    return [*queries, f"answer {gold(graph, data)}"]


def whole_plan(graph: Graph, data: Mapping[str, Any]) -> list[str]:
    """Return the actions that solve the task with nested statements, one per question or change."""
    if data["kind"] == "change":
        return [_nested_update(graph, change) for change in data["changes"]]
    path = data["path"] if data["kind"] == "value" else data["path"][:-1]
    last = plan(graph, data)[-2]
    head, _, _ = last.rpartition(" = '")
    tail = last.rpartition("'")[2]
    return [f"{head} = ({_nested(graph, data['start'], path)}){tail}", plan(graph, data)[-1]]


def gold(graph: Graph, data: Mapping[str, Any]) -> str:
    """Return the answer of a question, as text."""
    found = graph.follow(data["start"], data["path"])
    if data["kind"] == "count":
        return str(len(found))
    if data["kind"] == "most":
        return graph.best(found, data["attribute"], data["largest"])[0]
    return str(graph.values[found[0], data["attribute"]])


def _nested_update(graph: Graph, change: Mapping[str, Any]) -> str:
    end = graph.follow(change["start"], change["path"])[0]
    update = update_of(graph, end, change["attribute"], change["value"])
    head, _, _ = update.rpartition(" = '")
    return f"{head} = ({_nested(graph, change['start'], change['path'])})"


def _nested(graph: Graph, start: str, path: list[str]) -> str:
    """Return a value or a query for the entity that the path leads to."""
    here, text = start, f"'{start}'"
    for relation in path:
        table = TABLES[graph.types[here]]
        text = f"SELECT {column(relation)} FROM {table} WHERE name = ({text})"
        here = graph.edges[here, relation][0]
    return text
