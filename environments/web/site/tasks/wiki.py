"""Tasks in the wiki."""

from environments.web.site.data import World
from environments.web.site.dice import Dice
from environments.web.site.judge import Change, Wanted
from environments.web.site.records import Article, Fact
from environments.web.site.tasks.base import Draft, Template, Walker, mixed, the_only

START = "/wiki"


def _titles(world: World) -> list[str]:
    return [article.title for article in world.articles]


def fact(world: World, dice: Dice) -> Draft:
    found = dice.pick(world.facts)
    title = world.articles[found.article_id - 1].title

    def solve(walker: Walker) -> None:
        walker.open(title)
        walker.report(found.value)

    return Draft(
        f"What does the wiki give as '{found.name}' in the article {title}?",
        Wanted(answers=(found.value, found.value.removeprefix("River "))),
        solve,
        START,
        texts=mixed(dice, (title,), _titles(world)),
    )


def _north(world: World, town: Article, roads: int) -> list[Article]:
    """Return the towns on the way north, the first one included."""
    way = [town]
    for _ in range(roads):
        way.append(world.articles[world.fact(way[-1].id, "North road").target_id - 1])
    return way


def _road(least: int, most: int) -> Template:
    """Return the template that follows so many roads."""

    def road(world: World, dice: Dice) -> Draft:
        way = _north(world, dice.pick(world.articles_of("town")), dice.between(least, most))
        what = dice.pick(("Population", "Festival", "Founded", "Region"))
        answer = world.fact(way[-1].id, what).value

        def solve(walker: Walker) -> None:
            walker.open(way[0].title)
            walker.click(*(town.title for town in way[1:]))
            walker.report(answer)

        times = "once" if len(way) == 2 else f"{len(way) - 1} times"
        return Draft(
            f"In the wiki, start at the town {way[0].title} and follow 'North road' {times}. What "
            f"is '{what}' of the town that you reach?",
            Wanted(answers=(answer,)),
            solve,
            START,
            texts=mixed(dice, (way[0].title,), _titles(world)),
        )

    return road


_CHAINS: tuple[tuple[str, ...], ...] = (
    ("Founder", "Year of birth"),
    ("Seat", "Mayor"),
    ("Founder", "Born in", "Festival"),
    ("Seat", "River", "Length"),
    ("Founder", "Born in", "River", "Length"),
    ("Founder", "Born in", "Mayor", "Occupation"),
    ("Seat", "River", "Mouth", "Mayor", "Born in", "Population"),
)


def _follow(world: World, brand: Article, chain: tuple[str, ...]) -> list[Fact]:
    facts: list[Fact] = []
    article_id = brand.id
    for name in chain:
        facts.append(world.fact(article_id, name))
        article_id = facts[-1].target_id
    return facts


def chain(world: World, dice: Dice) -> Draft:
    brand, names = dice.pick(world.articles_of("company")), dice.pick(_CHAINS)
    facts = _follow(world, brand, names)
    answer = facts[-1].value

    def solve(walker: Walker) -> None:
        walker.open(brand.title)
        walker.click(*(one.value for one in facts[:-1]))
        walker.report(answer)

    asked = " of the ".join(f"'{name}'" for name in reversed(names))
    return Draft(
        f"In the wiki, what is the {asked} of the company {brand.title}?",
        Wanted(answers=(answer,)),
        solve,
        START,
        texts=mixed(dice, (brand.title,), _titles(world)),
    )


def largest(world: World, dice: Dice) -> Draft | None:
    towns = dice.some(world.articles_of("town"), dice.between(2, 8))
    people = {town.title: int(world.fact(town.id, "Population").value) for town in towns}
    top = the_only([title for title, n in people.items() if n == max(people.values())])
    if top is None:
        return None

    def solve(walker: Walker) -> None:
        for i, (town, population) in enumerate(people.items()):
            if i:
                walker.click("Wiki")
            walker.open(town)
            walker.look(str(population))
        walker.stop(top)

    return Draft(
        f"According to the wiki, which of these towns has the largest population: "
        f"{', '.join(people)}?",
        Wanted(answers=(top,)),
        solve,
        START,
        texts=mixed(dice, tuple(people), _titles(world)),
        answers=tuple(people),
    )


def _edit(least: int, most: int) -> Template:
    """Return the template that corrects so many articles."""

    def edit(world: World, dice: Dice) -> Draft:
        towns = dice.some(world.articles_of("town"), dice.between(least, most))
        facts = [world.fact(town.id, dice.pick(("Population", "Founded"))) for town in towns]
        values = [str(dice.between(1000, 1999)) for _ in towns]
        jobs = list(zip(towns, facts, values, strict=True))

        def solve(walker: Walker) -> None:
            for i, (town, found, value) in enumerate(jobs):
                if i:
                    walker.click("Wiki")
                walker.open(town.title)
                walker.click("Edit")
                walker.fill(found.name, value)
                walker.click("Save")
            walker.stop()

        if any(found.value == value for _, found, value in jobs):
            values = [f"2{value[1:]}" for value in values]
            jobs = list(zip(towns, facts, values, strict=True))
        todo = "; ".join(f"{found.name} of {town.title} is {value}" for town, found, value in jobs)
        right = (*(town.title for town in towns), *values)
        return Draft(
            f"Correct the wiki: {todo}.",
            Wanted(
                changes=tuple(Change("update", "facts", {"value": v}, f.id) for _, f, v in jobs)
            ),
            solve,
            START,
            texts=mixed(dice, right, _titles(world)),
        )

    return edit


TEMPLATES: dict[str, Template] = {
    "wiki_fact": fact,
    "wiki_road": _road(1, 4),
    "wiki_far_road": _road(5, 16),
    "wiki_chain": chain,
    "wiki_largest": largest,
    "wiki_edit": _edit(1, 1),
    "wiki_edits": _edit(2, 7),
}
