"""Questions of k hops: chains of relations through the atlas, in splits that share no start and no
final fact."""

import hashlib
import random
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from environments.search.atlas import Atlas, Entity, Fact, World, load_atlas
from environments.search.grade import normalize
from scalinginter.env.base import SPLITS, Split
from scalinginter.errors import UserError
from scalinginter.types import Task

MAX_HOPS = 40
SHARES = (14, 17, 20)  # of 20: the first 14 are training, then 3 validation, 3 test
_MAX_TRIES = 400  # walks per question that is wanted


class Chain(NamedTuple):
    """Facts that lead from a start to an answer: the value of each is the subject of the next."""

    start: str
    facts: tuple[Fact, ...]

    @property
    def answer(self) -> str:
        return self.facts[-1].value

    @property
    def subjects(self) -> list[str]:
        """The entities whose documents hold the facts."""
        return [self.start, *(fact.value for fact in self.facts[:-1])]

    @property
    def question(self) -> str:
        """What is the capital of the largest neighbour of France?"""
        text = self.start
        for fact in self.facts:
            text = fact.relation.phrase.format(text)
        return f"What is {text}?"

    @property
    def brief(self) -> str:
        """start France : 1 wide . 2 capital . 1 ?

        The number at the end is that of the relation to follow; documents end with the next one."""
        steps = (f"{i} {fact.relation.key}" for i, fact in enumerate(self.facts, 1))
        return f"start {self.start} : {' . '.join(steps)} . 1 ?"


def split_of(title: str) -> Split:
    """Return the split in which an entity may start a chain, or be asked about at its end."""
    place = hashlib.sha256(title.encode()).digest()[0] * 20 // 256
    return next(split for split, share in zip(SPLITS, SHARES, strict=True) if place < share)


@lru_cache(maxsize=8)
def make_tasks(
    world: World,
    relations: tuple[str, ...],
    hops: tuple[int, int],
    sizes: tuple[int, int, int],
    seed: int,
) -> dict[Split, tuple[Task, ...]]:
    """Return the tasks of each split, the numbers of hops in turn.

    Only `relations` (keys) are asked about. A chain visits no entity twice, and only the document
    of its last one holds the answer, of those on its way. Its first entity, and the last one that
    is asked about, both belong to the split: so no other split has a question with that start, nor
    one that ends with that fact. Raises `UserError` if there are not that many questions.
    """
    atlas = load_atlas(world)
    tasks: dict[Split, tuple[Task, ...]] = {}
    for split, size in zip(SPLITS, sizes, strict=True):
        chains = _chains(atlas, relations, split, hops, size, seed)
        tasks[split] = tuple(_task(atlas, split, i, chain) for i, chain in enumerate(chains))
    return tasks


def _chains(
    atlas: Atlas,
    relations: tuple[str, ...],
    split: Split,
    hops: tuple[int, int],
    size: int,
    seed: int,
) -> Iterator[Chain]:
    starts = [title for title in atlas.titles if split_of(title) == split]
    chance = random.Random(f"search/{seed}/{split}")
    seen: set[str] = set()
    for number in range(size):
        length = hops[0] + number % (hops[1] - hops[0] + 1)
        for _ in range(_MAX_TRIES):
            chain = _walk(atlas, relations, chance.choice(starts), length, chance)
            if chain is None or split_of(chain.subjects[-1]) != split or chain.brief in seen:
                continue
            seen.add(chain.brief)
            yield chain
            break
        else:
            raise UserError(
                f"the world {atlas.name!r} has no {size} {split} questions of {hops[0]} to "
                f"{hops[1]} hops, only {number}; ask for fewer (num_{split}), for fewer hops, or "
                "for more relations, or set world: atlas"
            )


def _walk(
    atlas: Atlas, relations: tuple[str, ...], start: str, length: int, chance: random.Random
) -> Chain | None:
    """Walk at random; None if the walk ends too early, or if its answer could be read before its
    last document, or in the question."""
    visited, read = {start}, {start}
    facts: list[Fact] = []
    here = start
    for left in range(length - 1, -1, -1):
        entity = atlas.get(here)
        if entity is None:
            return None
        choices = [
            fact
            for fact in entity.told(relations)
            if fact.value not in visited and (fact.is_entity or not left)
        ]
        if not choices:
            return None
        fact = chance.choice(choices)
        if not left and fact.value in read:
            return None
        read |= {f.value for f in entity.facts}
        facts.append(fact)
        here = fact.value
        visited.add(here)
    chain = Chain(start, tuple(facts))
    answers = {normalize(name) for name in names(atlas, chain.answer)}
    return None if answers & {normalize(name) for name in names(atlas, start)} else chain


def names(atlas: Atlas, title: str) -> list[str]:
    """Return the title and other spellings of an entity; of plain text, itself."""
    entity: Entity | None = atlas.get(title)
    return [title, *(entity.aliases if entity else ())]


def _task(atlas: Atlas, split: Split, number: int, chain: Chain) -> Task:
    hops = len(chain.facts)
    answers = [chain.answer]
    if chain.facts[-1].is_entity:
        answers = names(atlas, chain.answer)
    data = {
        "question": chain.question,
        "brief": chain.brief,
        "start": chain.start,
        "answers": answers,
        "searches": chain.subjects,
        "relations": [fact.relation.key for fact in chain.facts],
    }
    return Task(f"{split}/k{hops:02}/{number:06}", "search", data, required_turns=hops + 1)
