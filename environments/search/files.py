"""Questions and documents of the user, one JSON object a line."""

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from environments.search.index import Document, Index
from scalinginter.env.base import SPLITS, Split
from scalinginter.errors import UserError, nearest
from scalinginter.types import Task

ANSWER_FIELDS = ("golden_answers", "answers", "answer")
_PERCENT = {"train": 80, "validation": 90, "test": 100}  # of the hash of the id, up to


def read_lines(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `("path:line", object)` of a JSONL file (`.gz` too); empty lines do not count.

    Raises `UserError` with the line's number for a line that is no JSON object.
    """
    if not Path(path).is_file():
        raise UserError(f"no file {path!r}; paths are relative to where the command runs")
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                value = json.loads(line)
            except ValueError as error:
                raise UserError(f"{where}: not JSON ({error}); one object a line") from None
            if isinstance(value, list):
                raise UserError(f"{where}: a JSON array; write one object a line (JSONL)")
            if not isinstance(value, dict):
                raise UserError(f"{where}: must be a JSON object, got {str(value)[:40]!r}")
            yield where, value


def load_documents(path: str) -> list[Document]:
    """Read documents: `text` with `title`, or `contents` whose first line is the title (in quotes,
    as Search-R1's corpus has it); `id`, by default the number of the document.

    Raises `UserError` for a missing text, an id that occurs twice, or a file without documents.
    """
    documents: dict[str, Document] = {}
    for where, row in read_lines(path):
        document = parse_document(row, str(len(documents)))
        if document is None:
            raise UserError(
                f"{where}: needs 'text' or 'contents', a text that is not empty; it has: "
                f"{', '.join(map(str, row)) or 'nothing'}"
            )
        if document.id in documents:
            raise UserError(f"{where}: the id {document.id!r} occurs twice")
        documents[document.id] = document
    if not documents:
        raise UserError(f"{path}: holds no documents")
    return list(documents.values())


@lru_cache(maxsize=2)
def index_of(path: str) -> Index:
    """Return the index over a file of documents, one for all environments of this process."""
    return Index(load_documents(path))


def parse_document(row: Mapping[str, Any], number: str = "") -> Document | None:
    """Return the document of a JSON object, or None if it holds no text."""
    title, text = row.get("title"), row.get("text")
    contents = row.get("contents")
    if text is None and isinstance(contents, str):
        head, newline, rest = contents.partition("\n")
        if title is None and newline:
            title, text = head.strip(), rest
            if len(title) > 1 and title[0] == title[-1] == '"':
                title = title[1:-1]
        else:
            text = contents
    if not isinstance(text, str) or not isinstance(title, str | None):
        return None
    if not (text.strip() or (title or "").strip()):
        return None
    return Document(str(row.get("id", number)), " ".join((title or "").split()), text)


@lru_cache(maxsize=4)
def load_questions(key: tuple[tuple[str, str], ...]) -> dict[Split, tuple[Task, ...]]:
    """Read tasks from `((split or "", path), ...)`. Where no split is given, a line's `split` says
    it, or else the hash of its id: 80, 10, 10 in a hundred.

    Raises `UserError` for a line without question, id or answer, and for an id that occurs twice.
    """
    tasks: dict[Split, list[Task]] = {split: [] for split in SPLITS}
    seen: dict[str, str] = {}
    for given, path in key:
        for where, row in read_lines(path):
            name, data = _question(where, row)
            if name in seen:
                raise UserError(f"{where}: the id {name!r} occurs twice, first in {seen[name]}")
            seen[name] = where
            split = _split(where, given or row.get("split"), name)
            turns = len(data["searches"]) + 1 if data["searches"] else None
            tasks[split].append(Task(f"{split}/{name}", "search", data, required_turns=turns))
    empty = [split for split in SPLITS if not tasks[split]]
    if len(empty) == len(SPLITS):
        raise UserError(f"{', '.join(path for _, path in key)}: no questions")
    return {split: tuple(found) for split, found in tasks.items()}


def _question(where: str, row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    question = row.get("question")
    if not isinstance(question, str) or not question.strip():
        raise UserError(
            f"{where}: needs 'question', a text{nearest('question', map(str, row))}; it has: "
            f"{', '.join(map(str, row)) or 'nothing'}"
        )
    name = row.get("id", row.get("_id", row.get("question_id")))
    if not isinstance(name, str | int) or not str(name):
        raise UserError(f"{where}: needs 'id' (or '_id', 'question_id'), a text or a number")
    searches = row.get("searches", [])
    if not isinstance(searches, list) or not all(isinstance(s, str) and s for s in searches):
        raise UserError(f"{where}: 'searches' must be a list of queries, got {searches!r:.60}")
    data = {"question": question.strip(), "answers": _answers(where, row), "searches": searches}
    return str(name), data


def _answers(where: str, row: Mapping[str, Any]) -> list[str]:
    field = next((name for name in ANSWER_FIELDS if row.get(name) is not None), None)
    if field is None:
        raise UserError(f"{where}: needs one of {', '.join(ANSWER_FIELDS)}")
    value = row[field]
    if isinstance(value, dict):  # TriviaQA: the answer and its other spellings
        value = [value.get("value"), *(value.get("aliases") or [])]
    answers = value if isinstance(value, list) else [value]
    if not answers or not all(isinstance(a, str) and a.strip() for a in answers):
        raise UserError(f"{where}: {field!r} must be a text or a list of texts, got {value!r:.60}")
    return list(dict.fromkeys(a.strip() for a in answers))


def _split(where: str, given: Any, name: str) -> Split:
    if given is None:
        place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) % 100
        return next(split for split in SPLITS if place < _PERCENT[split])
    for split in SPLITS:
        if given == split:
            return split
    raise UserError(f"{where}: unknown split {given!r}{nearest(str(given), SPLITS)}; of {SPLITS}")
