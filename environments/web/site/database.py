"""A world as an sqlite database in memory, copies of it, and what changed in a copy."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from environments.web.site.data import CACHED_WORLDS, make_world
from environments.web.site.records import TABLES

Row = Mapping[str, Any]

_INDEXES = (
    "reviews(product_id)",
    "threads(board_id)",
    "replies(thread_id)",
    "votes(thread_id)",
    "facts(article_id)",
    "issues(project_id, number)",
    "issue_labels(issue_id)",
    "comments(issue_id)",
)


def columns(table: str) -> tuple[str, ...]:
    """Return a table's columns, `id` first."""
    return TABLES[table]._fields


def connect() -> sqlite3.Connection:
    """Open an empty database in memory whose rows are read by column name."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    db.row_factory = sqlite3.Row
    return db


@lru_cache(maxsize=CACHED_WORLDS)
def _image(seed: int) -> bytes:
    """Return the database file of a world."""
    world = make_world(seed)
    db = connect()
    for table, record in TABLES.items():
        rest = ", ".join(
            f"{name} {'INTEGER' if record.__annotations__[name] is int else 'TEXT'} NOT NULL"
            for name in columns(table)[1:]
        )
        db.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {rest})")
        marks = ", ".join("?" * len(columns(table)))
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", getattr(world, table))
    for index in _INDEXES:
        db.execute(f"CREATE INDEX {index.partition('(')[0]}_index ON {index}")
    image = db.serialize()
    db.close()
    return image


def open_copy(seed: int) -> sqlite3.Connection:
    """Return a fresh copy of a world's database."""
    db = connect()
    db.deserialize(_image(seed))
    return db


def insert(db: sqlite3.Connection, table: str, **values: Any) -> int:
    """Add a row and return its id. Table and column names are ours; values are parameters."""
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    row = db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))
    assert row.lastrowid is not None
    return row.lastrowid


def update(db: sqlite3.Connection, table: str, id: int, **values: Any) -> None:
    """Change columns of one row."""
    sets = ", ".join(f"{name} = ?" for name in values)
    db.execute(f"UPDATE {table} SET {sets} WHERE id = ?", (*values.values(), id))


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that is not as it was: `old` None for a new row, `new` None for one that is gone."""

    table: str
    id: int
    old: Row | None
    new: Row | None


def differences(db: sqlite3.Connection, seed: int) -> list[Difference]:
    """Return what changed in a copy since the start, table by table, by id."""
    world = make_world(seed)
    cursor = db.cursor()
    cursor.row_factory = None  # plain tuples, equal to the world's records
    found: list[Difference] = []
    for table in TABLES:
        start = getattr(world, table)
        rows = cursor.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
        if rows == start:
            continue
        names = columns(table)
        before, now = {row[0]: row for row in start}, {row[0]: row for row in rows}
        for id in sorted(before.keys() | now.keys()):
            old, new = before.get(id), now.get(id)
            if old != new:
                as_row = [dict(zip(names, row, strict=True)) if row else None for row in (old, new)]
                found.append(Difference(table, id, *as_row))
    return found
