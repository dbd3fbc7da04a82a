"""What the atlas says about a country, a city, an airport: in prose, in a question, in brief.

A relation has one value for an entity, so a chain of relations has one answer.
"""

from typing import NamedTuple


class Relation(NamedTuple):
    """One fact of a kind of entity."""

    key: str  # one word, used by the brief texts
    phrase: str  # inside a question: "the capital of {}"
    sentence: str  # in a document; {title} and {value}


COUNTRY = (
    Relation("continent", "the continent of {}", "{title} is a country in {value}."),
    Relation("capital", "the capital of {}", "Its capital is {value}."),
    Relation("largest", "the most populous city of {}", "Its most populous city is {value}."),
    Relation("second", "the second city by population of {}", "The second is {value}."),
    Relation(
        "populous",
        "the most populous neighbour of {}",
        "Of the countries that border it, {value} has the most people,",
    ),
    Relation("sparse", "the least populous neighbour of {}", "{value} has the fewest,"),
    Relation("wide", "the neighbour with the largest area of {}", "{value} has the largest area,"),
    Relation(
        "narrow", "the neighbour with the smallest area of {}", "and {value} has the smallest."
    ),
    Relation("currency", "the currency of {}", "The currency is the {value}."),
    Relation("phone", "the calling code of {}", "Its calling code is {value}."),
    Relation("domain", "the internet domain of {}", "Its internet domain is {value}."),
)

CITY = (
    Relation("country", "the country of {}", "{title} is a city in {value}."),
    Relation("north", "the nearest city north of {}", "The nearest city north of it is {value}."),
    Relation("east", "the nearest city east of {}", "The nearest city east of it is {value}."),
    Relation("south", "the nearest city south of {}", "The nearest city south of it is {value}."),
    Relation("west", "the nearest city west of {}", "The nearest city west of it is {value}."),
    Relation(
        "larger",
        "the nearest larger city to {}",
        "The nearest city with more inhabitants is {value}.",
    ),
    Relation("airport", "the airport nearest to {}", "The nearest airport is {value}."),
    Relation("population", "the population of {}", "It has {value} inhabitants."),
    Relation("zone", "the time zone of {}", "Its time zone is {value}."),
)

AIRPORT = (
    Relation("country", "the country of {}", "{title} is an airport in {value}."),
    Relation("city", "the city nearest to {}", "The nearest city is {value}."),
    Relation("next", "the airport nearest to {}", "The nearest other airport is {value}."),
    Relation("iata", "the IATA code of {}", "Its IATA code is {value}."),
    Relation("icao", "the ICAO code of {}", "Its ICAO code is {value}."),
    Relation("elevation", "the elevation in feet of {}", "It lies {value} feet above the sea."),
)

RELATIONS: dict[str, tuple[Relation, ...]] = {
    "country": COUNTRY,
    "city": CITY,
    "airport": AIRPORT,
}

KEYS = tuple(dict.fromkeys(relation.key for kind in RELATIONS.values() for relation in kind))
"""Of all relations; a key may stand for one relation of each kind of entity."""
