"""A made-up world: people, teams, projects, companies, cities, countries and how they relate."""

import functools
import random
from collections.abc import Iterable
from dataclasses import dataclass

SIZES = {"person": 120, "team": 24, "project": 36, "company": 24, "city": 36, "country": 12}

# type -> relation -> type of what it leads to; each entity has exactly one
SINGLE = {
    "person": {"boss": "person", "team": "team", "home": "city", "mentor": "person"},
    "team": {"lead": "person", "main project": "project", "rival": "team"},
    "project": {"owner": "person", "sponsor": "company", "successor": "project"},
    "company": {"seat": "city", "founder": "person", "supplier": "company"},
    "city": {"mayor": "person", "twin": "city", "country": "country"},
    "country": {"capital": "city", "ally": "country", "largest company": "company"},
}
# type -> relation -> (type, the single relation that it turns round)
INVERSE = {
    "person": {"students": ("person", "mentor"), "reports": ("person", "boss")},
    "team": {"members": ("person", "team")},
    "company": {"sponsored projects": ("project", "sponsor")},
    "city": {"residents": ("person", "home"), "company seats": ("company", "seat")},
    "country": {"cities": ("city", "country")},
}
ATTRIBUTES = {
    "person": {"year of birth": (1940, 2005)},
    "team": {"floor": (1, 40)},
    "project": {"budget": (10, 9_999)},
    "company": {"staff": (5, 50_000)},
    "city": {"population": (1_000, 9_000_000)},
    "country": {"area": (1_000, 2_000_000)},
}
_STARTS = [c + v for c in "bdghklmnp" for v in "aeio"]
_ENDS = [c + v + e for c in "rstv" for v, e in ("an", "el", "in", "or")]


@dataclass(frozen=True, slots=True)
class Graph:
    """The world. Entities are names; every relation maps an entity to a sorted tuple of them."""

    types: dict[str, str]
    edges: dict[tuple[str, str], tuple[str, ...]]  # (entity, relation) -> entities
    values: dict[tuple[str, str], int]  # (entity, attribute) -> number
    sources: dict[str, list[tuple[str, str]]]  # entity -> (entity, single relation) that lead there
    steps: dict[str, list[tuple[str, str]]]  # entity -> (single relation, entity that it leads to)

    def relations(self, entity: str) -> list[str]:
        """Return the relations of an entity's type."""
        kind = self.types[entity]
        return [*SINGLE[kind], *INVERSE.get(kind, {})]

    def neighbors(self, entities: Iterable[str], relation: str) -> tuple[str, ...]:
        """Return what the relation leads to from any of the entities, sorted."""
        found = {name for entity in entities for name in self.edges.get((entity, relation), ())}
        return tuple(sorted(found))

    def follow(self, start: str, path: Iterable[str]) -> tuple[str, ...]:
        """Return what a path of relations leads to."""
        here: tuple[str, ...] = (start,)
        for relation in path:
            here = self.neighbors(here, relation)
        return here

    def best(self, entities: Iterable[str], attribute: str, largest: bool) -> tuple[str, ...]:
        """Return the entities with the largest (or smallest) value."""
        known = {e: v for e in entities if (v := self.values.get((e, attribute))) is not None}
        wanted = (max if largest else min)(known.values(), default=None)
        return tuple(sorted(entity for entity, value in known.items() if value == wanted))


@functools.lru_cache(maxsize=64)
def make_graph(seed: int) -> Graph:
    """Return the world of a seed: 252 entities."""
    chance = random.Random(f"knowledge graph {seed}")
    names = [start + end for start in _STARTS for end in _ENDS]
    chance.shuffle(names)
    members: dict[str, list[str]] = {}
    for kind, size in SIZES.items():
        members[kind] = sorted(names[:size])
        names = names[size:]
    types = {entity: kind for kind, entities in members.items() for entity in entities}
    edges: dict[tuple[str, str], tuple[str, ...]] = {}
    values: dict[tuple[str, str], int] = {}
    for entity, kind in types.items():
        for relation, target in SINGLE[kind].items():
            other = chance.choice(members[target])
            while other == entity:
                other = chance.choice(members[target])
            edges[entity, relation] = (other,)
        for attribute, (low, high) in ATTRIBUTES[kind].items():
            values[entity, attribute] = chance.randint(low, high)
    sources: dict[str, list[tuple[str, str]]] = {entity: [] for entity in types}
    for (entity, relation), (target,) in edges.items():
        sources[target].append((entity, relation))
    steps = {entity: [(r, edges[entity, r][0]) for r in SINGLE[k]] for entity, k in types.items()}
    for kind, inverse in INVERSE.items():
        for relation, (source, single) in inverse.items():
            for entity in members[kind]:
                found = [e for e, r in sources[entity] if r == single and types[e] == source]
                edges[entity, relation] = tuple(sorted(found))
    return Graph(types, edges, values, sources, steps)
