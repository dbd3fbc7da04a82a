"""The atlas: countries, cities and airports, what links them, and documents about them."""

import gzip
import json
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from environments.search.index import Document, Index
from environments.search.relations import RELATIONS, Relation

ATLAS = Path(__file__).parent / "atlas.json.gz"

World = Literal["atlas", "countries", "cities"]
WORLDS: tuple[World, ...] = ("atlas", "countries", "cities")


class Fact(NamedTuple):
    """One relation of an entity and its value."""

    relation: Relation
    value: str  # an entity's title, or plain text
    is_entity: bool


@dataclass(frozen=True, slots=True)
class Entity:
    """A country, a city or an airport."""

    title: str
    kind: str
    aliases: tuple[str, ...]  # other spellings
    facts: tuple[Fact, ...]

    @property
    def text(self) -> str:
        """The document in sentences."""
        said = [f.relation.sentence.format(title=self.title, value=f.value) for f in self.facts]
        return " ".join(said)

    def told(self, relations: Container[str]) -> list[Fact]:
        """Return the facts of these relations (keys)."""
        return [fact for fact in self.facts if fact.relation.key in relations]


def brief(facts: Iterable[Fact]) -> str:
    """Return facts in few words."""
    return " . ".join(f"{fact.relation.key} {fact.value}" for fact in facts)


class Atlas:
    """The entities of a world, in a fixed order."""

    def __init__(self, name: World, rows: list[list[Any]], inside: list[int]) -> None:
        """Take the rows of `atlas.json.gz` (kind, title, other spellings, a value per relation:
        text, or the position of another row) and the positions of those that are in this world."""
        self.name = name
        self._rows = rows
        self._inside = set(inside)
        self._places = {rows[i][1]: i for i in inside}
        self._known: dict[str, Entity] = {}

    @property
    def titles(self) -> list[str]:
        """The titles of all entities."""
        return list(self._places)

    def get(self, title: str) -> Entity | None:
        """Return the entity of this title, or None."""
        place = self._places.get(title)
        if place is None:
            return None
        if title not in self._known:
            self._known[title] = self._entity(*self._rows[place])
        return self._known[title]

    def _entity(self, kind: str, title: str, aliases: list[str], values: list[Any]) -> Entity:
        facts = []
        for relation, value in zip(RELATIONS[kind], values, strict=True):
            if isinstance(value, str):
                facts.append(Fact(relation, value, False))
            elif value in self._inside:  # neither missing nor outside of this world
                facts.append(Fact(relation, self._rows[value][1], True))
        return Entity(title, kind, tuple(aliases), tuple(facts))

    def documents(self) -> list[Document]:
        """Return one document per entity."""
        entities = (self._entity(*self._rows[place]) for place in self._places.values())
        return [Document(f"{self.name}/{i}", e.title, e.text) for i, e in enumerate(entities)]


@lru_cache(maxsize=3)
def load_atlas(name: World) -> Atlas:
    """Read a world. `countries`: the countries, their capitals and two largest cities, and the
    airports nearest to those; links that lead outside are left out. `cities`: those of at least
    1.5 million, "nearest" among themselves."""
    worlds = json.loads(gzip.decompress(ATLAS.read_bytes()))
    rows = worlds["cities" if name == "cities" else "atlas"]
    inside = _near_countries(rows) if name == "countries" else list(range(len(rows)))
    return Atlas(name, rows, inside)


def _near_countries(rows: list[list[Any]]) -> list[int]:
    countries = [i for i, row in enumerate(rows) if row[0] == "country"]
    keys = [relation.key for relation in RELATIONS["country"]]
    places = [keys.index(key) for key in ("capital", "largest", "second")]
    cities = {rows[i][3][place] for i in countries for place in places} - {None}
    airport = [relation.key for relation in RELATIONS["city"]].index("airport")
    return sorted({*countries, *cities} | ({rows[i][3][airport] for i in cities} - {None}))


@lru_cache(maxsize=3)
def atlas_index(name: World) -> Index:
    """Return the index over a world, one for all environments of this process."""
    return Index(load_atlas(name).documents())
