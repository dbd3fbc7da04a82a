"""Questions about a sqlite database, and changes to it, one statement a turn."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from environments.code.knowledge_graph.graph import ATTRIBUTES, INVERSE, SINGLE, make_graph
from environments.code.seeded import Drawn, SeededEnv, check_int
from environments.code.sql.database import Database, Refused, Rows, schema, table_text
from environments.code.sql.questions import (
    KINDS,
    ask,
    count_of,
    draw_question,
    gold,
    look_up,
    most_of,
    plan,
    update_of,
    whole_plan,
)
from scalinginter.errors import UserError, nearest
from scalinginter.types import Task, Tool

RULES = """\
Answer a question about a database, or change it as you are told. It is sqlite, with these tables; \
names are unique over all of them, and a column such as boss or home holds the name of a row:
{schema}
{extra}A change is done when the database is as it should be. A wrong answer ends the episode."""
ONE_TABLE = "A statement may use one table only, and once: no joins and no subqueries.\n"
GRAMMAR = """
Every turn you answer with one action:
sql QUERY - run one SELECT and see its first {max_rows} rows.
execute STATEMENT - run one INSERT, UPDATE or DELETE.
answer VALUE - give the answer to the question: a number or a name."""
VERBS = ("sql", "execute", "answer")
HELP = "Not an action{hint}. Say sql and a SELECT, execute and a change, or answer and a value."


def _tool(name: str, description: str, argument: str, about: str) -> Tool:
    schema = {argument: {"type": "string", "description": about}}
    parameters = {"type": "object", "properties": schema, "required": [argument]}
    return Tool(name, description, parameters, f"{name} {{{argument}}}")


TOOLS = (
    _tool("sql", "Run one SELECT and see its rows.", "query", "the query"),
    _tool("execute", "Run one INSERT, UPDATE or DELETE.", "statement", "the statement"),
    _tool("answer", "Give the answer to the question.", "answer", "a number or a name"),
)


class Sql(SeededEnv):
    """Ask or change a database; reward 1 for the right answer or the right change, which ends it.

    Args:
        min_hops, max_hops: columns that lead from row to row before the last statement.
        kinds: of tasks: `value`, `count`, `most`, `change`.
        one_table: refuse joins and subqueries, so that a task takes a turn per hop; false: the
            whole of SQL, and `required_turns` is 2 (one query and the answer) or the number of
            changes.
        max_rows: rows that an observation shows.
        num_databases: different worlds over the task list.
        num_train, num_validation, num_test: tasks per split.
        task_seed: which tasks.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "inline"
    env_id: ClassVar[str] = "sql"

    def __init__(
        self,
        *,
        min_hops: int = 0,
        max_hops: int = 40,
        kinds: Sequence[str] = KINDS,
        one_table: bool = True,
        max_rows: int = 10,
        num_databases: int = 8,
        num_train: int = 2048,
        num_validation: int = 128,
        num_test: int = 256,
        task_seed: int = 0,
    ) -> None:
        super().__init__(num_train, num_validation, num_test, task_seed)
        check_int("min_hops", min_hops, 0, 60)
        check_int("max_hops", max_hops, min_hops, 60)
        check_int("max_rows", max_rows, 1, 1000)
        check_int("num_databases", num_databases, 1, 1000)
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown or not kinds:
            got = repr(unknown[0]) + nearest(unknown[0], KINDS) if unknown else "none"
            raise UserError(f"kinds: unknown kind {got}; there are: {', '.join(KINDS)}")
        if type(one_table) is not bool:
            raise UserError(f"one_table must be true or false, got {one_table!r}")
        self._hops, self._kinds = (min_hops, max_hops), list(kinds)
        self._one_table, self._max_rows = one_table, max_rows
        self._num_databases = num_databases
        self._database: Database | None = None
        self.instructions = self.rules + GRAMMAR.format(max_rows=max_rows)

    @property
    def rules(self) -> str:
        return RULES.format(schema=schema(), extra=ONE_TABLE if self._one_table else "")

    def tools(self) -> Sequence[Tool]:
        return TOOLS

    def _draw(self, chance: random.Random, index: int) -> Drawn:
        low, high = self._hops
        hops = low + index % (high - low + 1)
        kind = self._kinds[index // (high - low + 1) % len(self._kinds)]
        world = self._task_seed * 1000 + chance.randrange(self._num_databases)
        data = {**draw_question(make_graph(world), chance, kind, hops), "world": world}
        turns = hops + (1 if kind == "change" else 2)
        turns = turns if self._one_table else len(self._plan(data))
        return data, turns, f"{kind}{hops}"

    def _plan(self, data: Mapping[str, Any]) -> list[str]:
        graph = make_graph(data["world"])
        return plan(graph, data) if self._one_table else whole_plan(graph, data)

    def _begin(self, task: Task) -> str:
        self.close()
        self._data = task.data
        self._graph = make_graph(self._data["world"])
        self._database = Database(self._graph, self._one_table)
        self._wanted = None if "path" in self._data else self._changed()
        self._seen: list[str] = []  # values of the newest result
        return ask(self._data)

    def _changed(self) -> dict[str, Rows]:
        """Return the rows as they should be at the end."""
        copy = Database(self._graph, False)
        for action in plan(self._graph, self._data):
            verb, _, statement = action.partition(" ")
            if verb == "execute":
                copy.change(statement)
        rows = copy.contents()
        copy.close()
        return rows

    @property
    def _db(self) -> Database:
        assert self._database is not None  # `step` has checked that an episode runs
        return self._database

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        words = action[:6000].split(None, 1)
        verb, rest = (
            (words[0].lower().rstrip(":"), words[1].strip()) if len(words) == 2 else ("", "")
        )
        if verb == "sql":
            return self._query(rest), 0.0, False, False
        if verb == "execute":
            return self._execute(rest)
        if verb == "answer":
            return self._answer(rest)
        hint = nearest(words[0].lower()[:20], VERBS) if words else ""
        return HELP.format(hint=hint), 0.0, False, False

    def _query(self, statement: str) -> str:
        try:
            names, rows = self._db.query(statement, self._max_rows)
        except Refused as refused:
            return f"Error: {refused}"
        self._seen = [str(row[0]) for row in rows[: self._max_rows] if row[0] is not None]
        return table_text(names, rows, self._max_rows)

    def _execute(self, statement: str) -> tuple[str, float, bool, bool]:
        try:
            changed = self._db.change(statement)
        except Refused as refused:
            return f"Error: {refused}", 0.0, False, False
        text = f"{changed} {'row' if changed == 1 else 'rows'} changed."
        done = self._wanted is not None and self._db.contents() == self._wanted
        return f"{text} The database is as it should be." if done else text, float(done), done, done

    def _answer(self, text: str) -> tuple[str, float, bool, bool]:
        if self._wanted is not None:
            return "There is no question: change the database as told.", 0.0, False, False
        given = text.strip().strip("'\".;").lower()
        right = given == gold(self._graph, self._data)
        return ("Right." if right else "Wrong. The episode is over."), float(right), True, right

    def admissible_actions(self) -> list[str] | None:
        """Return statements of the expert's kind about the entities that the task names or the
        newest result shows, and the newest values as answers; None where joins are allowed."""
        if not self._one_table:
            return None
        tasks = self._data.get("changes", [self._data])
        types = self._graph.types
        known = [*(task["start"] for task in tasks), *(v for v in self._seen if v in types)]
        actions: dict[str, None] = {}
        for entity in dict.fromkeys(known):
            actions.update(dict.fromkeys(self._templates(entity, tasks)))
        if self._wanted is None:
            actions.update(dict.fromkeys(f"answer {value}" for value in self._seen))
        return list(actions)

    def _templates(self, entity: str, tasks: Sequence[Mapping[str, Any]]) -> list[str]:
        graph, kind = self._graph, self._graph.types[entity]
        actions = [look_up(graph, entity, c) for c in (*SINGLE[kind], *ATTRIBUTES[kind])]
        if self._wanted is not None:
            values = [(t["attribute"], t["value"]) for t in tasks]
            return actions + [
                update_of(graph, entity, a, v) for a, v in values if a in ATTRIBUTES[kind]
            ]
        for relation, (source, _) in INVERSE.get(kind, {}).items():
            actions.append(count_of(graph, entity, relation))
            actions += [
                most_of(graph, entity, relation, attribute, largest)
                for attribute in ATTRIBUTES[source]
                for largest in (True, False)
            ]
        return actions

    def expert_plan(self) -> list[str] | None:
        return self._plan(self._data)

    def close(self) -> None:
        """Free the database of the episode."""
        if self._database:
            self._database.close()
            self._database = None
