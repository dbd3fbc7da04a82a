"""Documents and the in-process BM25 index over them (tantivy)."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import tantivy

from scalinginter.errors import UserError

MAX_QUERY_CHARS = 1000
TITLE_BOOST = 3.0
NAME_SCORE = 1000.0  # per word of a title; more than any sum of word scores
MAX_TITLE_WORDS = 8
MAX_NAME_QUERY_WORDS = 48  # of a query, in which titles are looked for
_MIN_HEAP, _MAX_HEAP = 64_000_000, 4_000_000_000  # bytes; tantivy refuses more
_LETTERS = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "æ": "ae", "Æ": "Ae"}
    | {"œ": "oe", "Œ": "Oe", "ı": "i", "ð": "d", "þ": "th", "Þ": "Th", "ə": "a", "Ə": "A"}
)
_QUOTES = str.maketrans("", "", "'’‘ʼʻ`")  # "O'Hare" is one word
_SIGNS = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Document:
    """A passage that can be found."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that was found, with its BM25 score."""

    document: Document
    score: float


class Retriever(Protocol):
    """What the environment searches with."""

    def search(self, query: str, topk: int) -> list[Hit]:
        """Return at most `topk` documents, best first."""
        ...


def fold(text: str, *, keep_signs: bool = False) -> str:
    """Return the text without accents; unless `keep_signs`, also in lower case and with one space
    in place of whatever is neither letter nor digit."""
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text.translate(_LETTERS))
        text = "".join(c for c in text if not unicodedata.combining(c))
    return text if keep_signs else _SIGNS.sub(" ", text.translate(_QUOTES).lower()).strip()


class Index:
    """A BM25 index in memory. The same documents and query give the same hits in the same order.

    Words of the title count three times. A query that holds a whole title finds that document
    first, of several titles the one with most words ("north of New York": New York, not York).
    Words are stemmed (English) and compared without case and accents.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        """Index the documents. Raises `UserError` for more text than fits one segment (some 2 GB):
        their order within ties would not be defined."""
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("title", tokenizer_name="en_stem")
        builder.add_text_field("text", tokenizer_name="en_stem")
        builder.add_text_field("name", tokenizer_name="raw")  # the whole title
        self._documents = documents
        self._index = tantivy.Index(builder.build())
        size = sum(len(d.title) + len(d.text) for d in documents)
        heap = min(max(_MIN_HEAP, 4 * size), _MAX_HEAP)
        writer = self._index.writer(heap_size=heap, num_threads=1)  # one thread: one segment
        for document in documents:
            title = fold(document.title)
            writer.add_document(tantivy.Document(title=title, text=fold(document.text), name=title))
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()
        if self._searcher.num_segments > 1:
            raise UserError(
                f"{len(documents)} documents of {size} characters are too many for an index in "
                "memory; serve them with a retrieval server and set retriever: URL"
            )

    def __len__(self) -> int:
        return len(self._documents)

    def search(self, query: str, topk: int) -> list[Hit]:
        """Return at most `topk` documents that share a word with the query, by falling score;
        equal scores in the order of the documents. Signs in the query mean nothing."""
        words = fold(query[:MAX_QUERY_CHARS])
        if not words:
            return []
        asked = self._asked(words)
        # Within ties tantivy keeps the lower address; in one segment that is the number.
        found = self._searcher.search(asked, topk, count=False).hits
        ranked = sorted((-score, address.doc) for score, address in found)
        return [Hit(self._documents[number], -negative) for negative, number in ranked]

    def _asked(self, folded: str) -> tantivy.Query:
        """Ask for the words, and for each run of them as a whole title, longer ones first."""
        by_words = self._index.parse_query(
            folded, ["title", "text"], field_boosts={"title": TITLE_BOOST}
        )
        words = folded.split()[:MAX_NAME_QUERY_WORDS]
        either = [(tantivy.Occur.Should, by_words)]
        for start in range(len(words)):
            for end in range(start + 1, min(start + MAX_TITLE_WORDS, len(words)) + 1):
                term = tantivy.Query.term_query(
                    self._index.schema, "name", " ".join(words[start:end])
                )
                score = NAME_SCORE * (end - start)
                either.append((tantivy.Occur.Should, tantivy.Query.const_score_query(term, score)))
        return tantivy.Query.boolean_query(either)
