"""A database in memory, and the guard that bounds what a statement may do.

Statements are the agent's text. Sqlite's authorizer refuses everything but reading (and, for
`execute`, changing rows), its progress handler ends what takes long, and its limits bound texts.
"""

import re
import sqlite3
from collections.abc import Sequence
from typing import Literal

from environments.code.knowledge_graph.graph import ATTRIBUTES, SINGLE, SIZES, Graph

TABLES = {
    "person": "people",
    "team": "teams",
    "project": "projects",
    "company": "companies",
    "city": "cities",
    "country": "countries",
}
MAX_STEPS = 400_000  # of sqlite's machine: tens of milliseconds
STEPS_PER_LOOK = 1_000
MAX_CHANGED = 200  # rows that one statement may change
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 5_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 60,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 60,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 10,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 20_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 16,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
}
# Functions without chance, clock, files or code. What is not listed does not exist.
_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        "abs avg char coalesce count glob group_concat ifnull iif instr length like lower ltrim "
        "max min nullif replace round row_number rank dense_rank rtrim sign substr substring sum "
        "total trim typeof unicode upper",
    )
)
_READING = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION}
)
_CHANGING = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
Mode = Literal["own", "query", "change"]
Rows = list[tuple[object, ...]]


def column(name: str) -> str:
    """Return the column's name of a relation or an attribute."""
    return name.replace(" ", "_")


def columns(kind: str) -> list[str]:
    """Return the columns of a type's table, `name` first."""
    return ["name", *map(column, SINGLE[kind]), *map(column, ATTRIBUTES[kind])]


def schema() -> str:
    """Return a line per table."""
    return "\n".join(f"{TABLES[kind]}({', '.join(columns(kind))})" for kind in SIZES)


class Refused(Exception):  # noqa: N818 (an answer for the agent)
    """The statement is not run, or was ended; the text says why."""


class Database:
    """The tables of one world, in memory.

    Args:
        graph: the world.
        one_table: refuse statements that read more than one table, or one table twice.
    """

    def __init__(self, graph: Graph, one_table: bool) -> None:
        self._one_table = one_table
        self._mode: Mode = "own"
        self._looks = 0
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for kind in SIZES:
            self._fill(graph, kind)
        for limit, value in _LIMITS.items():
            self._db.setlimit(limit, value)
        self._db.set_authorizer(self._may)
        self._db.set_progress_handler(self._too_long, STEPS_PER_LOOK)

    def _fill(self, graph: Graph, kind: str) -> None:
        table = TABLES[kind]
        declared = [f"{c} TEXT" for c in ("name", *map(column, SINGLE[kind]))]
        declared += [f"{column(a)} INTEGER" for a in ATTRIBUTES[kind]]
        self._db.execute(f"CREATE TABLE {table} ({', '.join(declared)})")
        rows = [
            (
                entity,
                *(graph.edges[entity, relation][0] for relation in SINGLE[kind]),
                *(graph.values[entity, attribute] for attribute in ATTRIBUTES[kind]),
            )
            for entity, its_kind in graph.types.items()
            if its_kind == kind
        ]
        marks = ", ".join("?" * len(declared))
        self._db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def _may(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if self._mode == "own":
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            return sqlite3.SQLITE_OK if second in _FUNCTIONS else sqlite3.SQLITE_DENY
        if action in _READING:
            return sqlite3.SQLITE_OK
        if action in _CHANGING and self._mode == "change" and first in TABLES.values():
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    def _too_long(self) -> bool:
        self._looks += 1
        return self._mode != "own" and self._looks * STEPS_PER_LOOK > MAX_STEPS

    def query(self, statement: str, max_rows: int) -> tuple[list[str], Rows]:
        """Return the columns and up to `max_rows + 1` rows of a SELECT.

        Raises `Refused` with what sqlite, or the guard, says.
        """
        return self._run(statement, "query", max_rows)

    def change(self, statement: str) -> int:
        """Run one INSERT, UPDATE or DELETE; return how many rows it changed. Raises `Refused`."""
        self._db.execute("SAVEPOINT before")
        try:
            before = self._db.total_changes
            self._run(statement, "change", 0)
            changed = self._db.total_changes - before
            if changed > MAX_CHANGED:
                raise Refused(f"it would change {changed} rows; at most {MAX_CHANGED} at a time")
        except Refused:
            self._db.execute("ROLLBACK TO before")
            raise
        finally:
            self._db.execute("RELEASE before")
        return changed

    def _run(self, statement: str, mode: Mode, max_rows: int) -> tuple[list[str], Rows]:
        self._mode, self._looks = mode, 0
        try:
            if self._one_table:
                self._check_one_table(statement)
            cursor = self._db.execute(statement)
            rows = cursor.fetchmany(max_rows + 1) if cursor.description else []
            names = [entry[0] for entry in cursor.description or ()]
            cursor.close()
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            raise Refused(_plain(str(error), mode)) from error
        finally:
            self._mode = "own"
        return names, rows

    def _check_one_table(self, statement: str) -> None:
        """Count the tables that sqlite's own plan of the statement opens."""
        opened = [row for row in self._db.execute(f"EXPLAIN {statement}") if row[1] in _OPENS]
        if len(opened) > 1:
            raise Refused("a statement may use one table only, and once: ask step by step")

    def contents(self) -> dict[str, Rows]:
        """Return all rows of all tables, sorted."""
        return {
            table: sorted(self._db.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in TABLES.values()
        }

    def close(self) -> None:
        """Free its memory."""
        self._db.close()


_OPENS = ("OpenRead", "OpenWrite")


def _plain(error: str, mode: Mode) -> str:
    if error == "interrupted":
        return "it takes too long and was ended"
    if error == "not authorized" or error.startswith("not authorized"):
        allowed = "SELECT" if mode == "query" else "INSERT, UPDATE and DELETE"
        return f"not allowed here: only {allowed}, and plain functions"
    return error[:300]


def table_text(names: Sequence[str], rows: Rows, max_rows: int) -> str:
    """Return rows as text, a line each."""
    if not rows:
        return "No rows."
    lines = [" | ".join(names)]
    lines += [" | ".join("NULL" if v is None else str(v) for v in row) for row in rows[:max_rows]]
    if len(rows) > max_rows:
        lines.append(f"[more than {max_rows} rows; only the first are shown]")
    return "\n".join(lines)
