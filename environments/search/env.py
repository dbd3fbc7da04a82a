"""Search: answer a question of several hops by searching a corpus, one query a turn.

Actions and scoring follow Search-R1 (arXiv 2503.09516); our questions and corpus are our own.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import gymnasium

from environments.search.atlas import WORLDS, Entity, Fact, World, atlas_index, brief, load_atlas
from environments.search.files import index_of, load_questions
from environments.search.grade import exact_match, f1
from environments.search.index import Document, Retriever
from environments.search.questions import MAX_HOPS, make_tasks
from environments.search.relations import KEYS
from environments.search.remote import RemoteRetriever
from scalinginter.env.base import SPLITS, Isolation, Split, TextEnv, check_split
from scalinginter.errors import UserError, nearest
from scalinginter.types import Task, Tool

MAX_TOPK = 20
MAX_ACTION_CHARS = 2000
_ACTION = re.compile(r"\s*(search|answer)\s*\[(.*)\][\s.]*", re.IGNORECASE | re.DOTALL)

RULES = """\
You answer a question with the help of a search engine. Every search finds up to {topk} documents. \
The answer may take several searches: what one document says tells you what to search for next.
You can answer once. The answer ends the episode, right or wrong. Give a name, a number or a few \
words, without a sentence around it."""
GRAMMAR = """
Every turn you answer with one action:
search[query] - search for documents
answer[text] - give the answer"""
BRIEF_RULES = "follow the question from its start ."
BRIEF_GRAMMAR = " search[ relation of name ] or answer[ name ] ."

HINT = "Not an action. Say search[query] or answer[text]."
BRIEF_HINT = "say search[ relation of name ] or answer[ name ] ."
NOTHING = "No document found."
BRIEF_NOTHING = "nothing found"
OVER = "Answer given."
BRIEF_OVER = "over"


def _tool(name: str, description: str, field: str, meaning: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {field: {"type": "string", "description": meaning}},
        "required": [field],
    }
    return Tool(name, description, schema, f"{name}[{{{field}}}]")


class Search(TextEnv):
    """Answer a question by searching. Reward when the answer is given, which ends the episode.

    Args:
        world: `atlas` (16,264 documents) or `countries` (1,076 of them, the same facts).
        min_hops, max_hops: searches that our questions take, 1 to 40.
        relations: keys of the relations that our questions ask about (`relations.py`); None: all.
            With `brief` the documents say nothing else.
        num_train, num_validation, num_test: our questions per split.
        task_seed: which of our questions.
        topk: documents that a search finds.
        snippet_chars: of a document's text that are shown; no text of ours is longer than 600.
        score: `em` (1 for an exact match) or `f1` (the F1 of words); both normalised as SQuAD's.
        brief: few words a turn, for very small models; our questions only. Documents show the
            relations that the query names.
        questions: a JSONL file of questions in place of ours, or a mapping of splits to files.
        documents: a JSONL file of documents in place of ours.
        retriever: URL of a server of Search-R1's retrieval protocol, in place of documents.
        retriever_timeout_s: within which the server has to answer.
    """

    isolation: ClassVar[Isolation] = "inline"

    def __init__(
        self,
        *,
        world: World = "atlas",
        min_hops: int = 1,
        max_hops: int = 12,
        relations: list[str] | None = None,
        num_train: int = 1200,
        num_validation: int = 120,
        num_test: int = 120,
        task_seed: int = 0,
        topk: int = 3,
        snippet_chars: int = 600,
        score: Literal["em", "f1"] = "em",
        brief: bool = False,
        questions: str | dict[str, str] | None = None,
        documents: str | None = None,
        retriever: str | None = None,
        retriever_timeout_s: float = 20.0,
    ) -> None:
        _check_choice("world", world, WORLDS)
        _check_choice("score", score, ("em", "f1"))
        _check_int("min_hops", min_hops, 1, MAX_HOPS)
        _check_int("max_hops", max_hops, min_hops, MAX_HOPS)
        _check_int("topk", topk, 1, MAX_TOPK)
        _check_int("snippet_chars", snippet_chars, 20, 100_000)
        _check_int("task_seed", task_seed, 0, 2**31)
        sizes = {"num_train": num_train, "num_validation": num_validation, "num_test": num_test}
        for name, size in sizes.items():
            _check_int(name, size, 1, 100_000)
        if type(brief) is not bool:
            raise UserError(f"brief must be true or false, got {brief!r}")
        if brief and questions is not None:
            raise UserError("brief is for our own questions; leave out brief, or questions")
        if documents is not None and (questions is None or retriever is not None):
            raise UserError("documents needs questions about them, and no retriever beside it")
        if type(retriever_timeout_s) not in (int, float) or not 0 < retriever_timeout_s < 3600:
            raise UserError(f"retriever_timeout_s must be above 0, got {retriever_timeout_s!r}")
        self._world: World = world
        self._relations = _relations(relations)
        self._key = (world, self._relations, (min_hops, max_hops), tuple(sizes.values()), task_seed)
        self._questions = None if questions is None else _files(questions)
        self._documents = documents
        self._remote = RemoteRetriever(retriever, retriever_timeout_s) if retriever else None
        self._topk, self._snippet, self._score, self._brief = topk, snippet_chars, score, brief
        rules, grammar = (BRIEF_RULES, BRIEF_GRAMMAR) if brief else (RULES, GRAMMAR)
        self._rules = rules.format(topk=topk)
        self.instructions = self._rules + grammar
        self._over = True
        if self._remote:  # a call waits for the server: it must not hold up the event loop
            self.isolation = "thread"  # pyrefly: ignore[read-only]

    @property
    def rules(self) -> str:
        return self._rules

    def tools(self) -> Sequence[Tool]:
        return (
            _tool("search", f"Find up to {self._topk} documents.", "query", "what to look for"),
            _tool("answer", "Give the answer and end.", "answer", "the answer alone"),
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        check_split(split)
        if self._questions is not None:
            return load_questions(self._questions)[split]
        return make_tasks(*self._key)[split]

    def _retriever(self) -> Retriever:
        if self._remote:
            return self._remote
        return index_of(self._documents) if self._documents else atlas_index(self._world)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`. There is no chance in this environment: the seed changes
        nothing. The first reset of a process makes the index (a second or two)."""
        task: Task = (options or {}).get("task") or next(
            task for split in SPLITS for task in self.tasks(split)
        )
        self._task = task
        self._searched = self._retriever()
        self._facts: list[Fact] = []  # that the latest search showed
        self._num_searches = 0
        self._over = False
        question = task.data["brief" if self._brief else "question"]
        shown = question if self._brief else f"Question: {question}"
        return shown, {"task_id": task.id, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end of the episode, and
        `EnvironmentFailure` if the retrieval server fails."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        match = _ACTION.fullmatch(action[:MAX_ACTION_CHARS])
        text = " ".join(match[2].split()) if match else ""
        if not match or not text:
            return BRIEF_HINT if self._brief else HINT, 0.0, False, False, {"success": False}
        if match[1].lower() == "search":
            return self._search(text), 0.0, False, False, {"success": False}
        self._over = True
        success, reward = self._grade(text)
        # The same words for right and wrong: the answer is no oracle.
        said = BRIEF_OVER if self._brief else OVER
        return said, reward, True, False, {"success": success}

    def _search(self, query: str) -> str:
        documents = [hit.document for hit in self._searched.search(query, self._topk)]
        entities = [load_atlas(self._world).get(document.title) for document in documents]
        told = [self._told(entity, query) if entity else [] for entity in entities]
        self._facts = [fact for facts in told for fact in facts]
        self._num_searches += 1
        if self._brief:
            pairs = zip(documents, told, strict=True)
            shown = "\n".join(f"{document.title} : {brief(facts)}" for document, facts in pairs)
            return f"{shown or BRIEF_NOTHING} . {self._num_searches + 1} ?"
        shown = [self._shown(i, document) for i, document in enumerate(documents, 1)]
        return "\n".join(shown) or NOTHING

    def _told(self, entity: Entity, query: str = "") -> Sequence[Fact]:
        """Return what a document shows; brief ones, like a snippet, only the relations that the
        query names, if it names any."""
        if not self._brief:
            return entity.facts
        facts = entity.told(self._relations)
        words = query.lower().split()
        return [fact for fact in facts if fact.relation.key in words] or facts

    def _shown(self, number: int, document: Document) -> str:
        text = " ".join(document.text.split())
        cut = text if len(text) <= self._snippet else text[: self._snippet - 3] + "..."
        title = f" (title: {document.title[: self._snippet]})" if document.title else ""
        return f"Doc {number}{title} {cut}"

    def _grade(self, answer: str) -> tuple[bool, float]:
        accepted = self._task.data["answers"]
        success = exact_match(answer, accepted)
        if self._score == "em" or success:
            return success, float(success)
        return False, f1(answer, accepted)

    def admissible_actions(self) -> list[str] | None:
        """Return searches for, and answers of, what the latest documents name; a search for the
        question's start where they name nothing to search for.

        None for questions of the user: nobody knows what they name.
        """
        if self._questions is not None:
            return None
        named = [fact.value for fact in self._facts if fact.is_entity]
        titles = named or [self._task.data["start"]]
        queries = [query for title in titles for query in self._queries(title)]
        actions = [self._action("search", query) for query in queries]
        actions += [self._action("answer", fact.value) for fact in self._facts]
        return list(dict.fromkeys(actions))

    def _queries(self, title: str) -> list[str]:
        """Return the queries for an entity; brief ones name a relation, too."""
        entity = load_atlas(self._world).get(title)
        if not self._brief or entity is None:
            return [title]
        keys = [fact.relation.key for fact in entity.told(self._relations)]
        return [f"{key} of {title}" for key in keys]

    def _action(self, verb: str, text: str) -> str:
        # Brief: spaces make a name after the bracket the same word as in a document.
        return f"{verb}[ {text} ]" if self._brief else f"{verb}[{text}]"

    def expert_plan(self) -> list[str] | None:
        """Search for every entity of the chain, then answer; None where a question of the user
        names no `searches`."""
        data = self._task.data
        if not data["searches"]:
            return None
        queries = data["searches"]
        if self._brief:
            steps = zip(data["relations"], queries, strict=True)
            queries = [f"{key} of {title}" for key, title in steps]
        searches = [self._action("search", query) for query in queries]
        return [*searches, self._action("answer", data["answers"][0])]

    def corpus(self) -> list[str]:
        """Return every text that the environment can say: of our questions the words, of our
        documents all; of the user's questions all, of the documents those that experts find."""
        if self._questions is not None:
            return super().corpus() + [t.data["question"] for t in self.tasks("train")]
        atlas = load_atlas(self._world)
        entities = [e for title in atlas.titles if (e := atlas.get(title))]
        texts = [self.instructions, HINT, NOTHING, OVER]
        if self._brief:
            counts = " ".join(map(str, range(100)))
            texts = [self.instructions, BRIEF_HINT, BRIEF_NOTHING, BRIEF_OVER, counts]
        for split in SPLITS:
            texts += [t.data["brief" if self._brief else "question"] for t in self.tasks(split)]
        for entity in entities:
            facts = self._told(entity)
            texts.append(f"{entity.title} : {brief(facts)}" if self._brief else entity.text)
            texts += [self._action("search", query) for query in self._queries(entity.title)]
            texts += [self._action("answer", fact.value) for fact in facts]
        return texts


def _relations(keys: Any) -> tuple[str, ...]:
    if keys is None:
        return KEYS
    if not isinstance(keys, list) or not keys:
        raise UserError(f"relations must be a list of keys, got {keys!r:.60}")
    for key in keys:
        _check_choice("relations", key, KEYS)
    return tuple(dict.fromkeys(keys))


def _files(questions: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(questions, str):
        return (("", questions),)
    if not isinstance(questions, Mapping) or not questions:
        raise UserError(f"questions must be a file, or files by split, got {questions!r:.80}")
    for split, path in questions.items():
        if split not in SPLITS or not isinstance(path, str):
            raise UserError(
                f"questions.{split}: unknown split{nearest(str(split), SPLITS)} or no path; "
                f"splits are {', '.join(SPLITS)}"
            )
    return tuple(questions.items())


def _check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UserError(
            f"{name} must be one of {', '.join(allowed)}, got {value!r}"
            f"{nearest(str(value), allowed)}"
        )


def _check_int(name: str, value: Any, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
