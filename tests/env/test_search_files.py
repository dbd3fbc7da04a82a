"""Search: questions and documents of the user."""

import gzip
import json

import pytest

from environments.search.env import Search
from environments.search.files import load_documents, load_questions, parse_document
from environments.search.index import Document
from scalinginter.env.check import check_env
from scalinginter.errors import UserError


def _lines(path, rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return str(path)


def _questions(number: int) -> list[dict]:
    return [
        {
            "id": i,
            "question": f"What colour is animal {i}?",
            "answer": f"colour{i}",
            "searches": [f"animal {i}"],
        }
        for i in range(number)
    ]


@pytest.fixture
def own(tmp_path):
    """Forty questions and documents of a user."""
    documents = [{"id": f"d{i}", "title": f"Animal {i}", "text": f"colour{i}"} for i in range(40)]
    return {
        "questions": _lines(tmp_path / "q.jsonl", _questions(40)),
        "documents": _lines(tmp_path / "d.jsonl", documents),
    }


def test_questions_and_documents_of_the_user_keep_the_contract(own):
    report = check_env("search", own)
    assert report.ok, report


def test_the_hash_of_the_id_decides_the_split(tmp_path):
    both = [
        load_questions((("", _lines(tmp_path / f"{i}.jsonl", rows)),))
        for i, rows in enumerate([_questions(200), _questions(200)[::-1]])
    ]
    ids = [{s: sorted(t.id for t in tasks) for s, tasks in found.items()} for found in both]
    assert ids[0] == ids[1]
    assert [len(tasks) for tasks in both[0].values()] == pytest.approx([160, 20, 20], abs=15)


def test_a_file_per_split_is_taken_whole(tmp_path):
    rows = _questions(9)
    train, test = (
        _lines(tmp_path / f"{i}.jsonl", part) for i, part in ((0, rows[:6]), (1, rows[6:]))
    )
    env = Search(questions={"train": train, "test": test})
    assert [len(env.tasks(split)) for split in ("train", "validation", "test")] == [6, 0, 3]


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        (
            {"id": "nq_1", "golden_answers": ["14 December 1972", "1972"]},
            ["14 December 1972", "1972"],
        ),
        ({"_id": "5a8b", "answer": "yes", "supporting_facts": [["X", 0]]}, ["yes"]),
        (
            {
                "question_id": "tc_1",
                "answer": {"value": "Sinclair", "aliases": ["S. Lewis", "Sinclair"]},
            },
            ["Sinclair", "S. Lewis"],
        ),
        ({"id": 7, "answers": ["a"]}, ["a"]),
    ],
    ids=["nq", "hotpotqa", "triviaqa", "plain"],
)
def test_public_formats_of_questions_are_read(tmp_path, row, answers):
    path = _lines(tmp_path / "q.jsonl", [{"question": "Who?", "split": "test"} | row])
    (task,) = load_questions((("", path),))["test"]
    assert task.data["answers"] == answers


@pytest.mark.parametrize(
    ("row", "document"),
    [
        (
            {"id": "1", "contents": '"Paris"\nA city.\nBig.'},
            Document("1", "Paris", "A city.\nBig."),
        ),
        ({"id": 2, "title": "Paris", "text": "A city."}, Document("2", "Paris", "A city.")),
        ({"contents": "No title."}, Document("", "", "No title.")),
        ({"text": "No title."}, Document("", "", "No title.")),
        ({"text": " "}, None),
        ({"text": 3}, None),
        ({"title": "T"}, None),
    ],
)
def test_public_formats_of_documents_are_read(row, document):
    assert parse_document(row) == document


def test_a_compressed_corpus_is_read(tmp_path):
    path = tmp_path / "d.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "one"}\n\n{"text": "two"}\n'))
    assert [d.id for d in load_documents(str(path))] == ["0", "1"]


GOOD = {"id": 1, "question": "Who?", "answer": "me"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{oops", r"q.jsonl:2: not JSON"),
        ("[1]", r"q.jsonl:2: a JSON array"),
        ("3", r"q.jsonl:2: must be a JSON object"),
        ({"id": 2, "qestion": "Who?"}, r"q.jsonl:2: needs 'question'.*did you mean 'qestion'"),
        ({"question": "Who?", "answer": "x"}, r"q.jsonl:2: needs 'id'"),
        ({"id": 2, "question": "Who?"}, r"q.jsonl:2: needs one of golden_answers, answers, answer"),
        ({"id": 2, "question": "Who?", "answer": [3]}, r"q.jsonl:2: 'answer' must be"),
        ({"id": 2, "question": "Who?", "answers": []}, r"q.jsonl:2: 'answers' must be"),
        (GOOD, r"q.jsonl:2: the id '1' occurs twice, first in .*q.jsonl:1"),
        (GOOD | {"id": 2, "split": "tests"}, r"q.jsonl:2: unknown split 'tests'.*'test'"),
        (GOOD | {"id": 2, "searches": "x"}, r"q.jsonl:2: 'searches' must be a list"),
    ],
)
def test_a_malformed_question_is_named_with_its_line(tmp_path, line, said):
    with pytest.raises(UserError, match=said):
        load_questions((("", _lines(tmp_path / "q.jsonl", [GOOD, line])),))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["", {"id": 1}], r"d.jsonl:2: needs 'text' or 'contents'.*it has: id"),
        ([{"id": 1, "text": "a"}, {"id": "1", "text": "b"}], r"d.jsonl:2: the id '1' occurs twice"),
        ([""], r"holds no documents"),
    ],
)
def test_a_malformed_document_is_named_with_its_line(tmp_path, lines, said):
    with pytest.raises(UserError, match=said):
        load_documents(_lines(tmp_path / "d.jsonl", lines))


def test_a_missing_file_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="no file"):
        Search(questions=str(tmp_path / "none.jsonl")).tasks("train")


def test_questions_without_searches_have_no_expert(tmp_path):
    path = _lines(tmp_path / "q.jsonl", [GOOD | {"split": "train"}])
    env = Search(questions=path)
    env.reset()
    assert (env.expert_plan(), env.admissible_actions()) == (None, None)
