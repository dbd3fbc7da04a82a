"""Worlds: the data of a site, a pure function of a seed."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from environments.web.site import words
from environments.web.site.dice import Dice
from environments.web.site.records import (
    Article,
    Board,
    Category,
    Comment,
    Fact,
    File,
    Issue,
    IssueLabel,
    Merge,
    Order,
    OrderLine,
    Product,
    Project,
    Reply,
    Review,
    Thread,
    User,
    Vote,
)

CACHED_WORLDS = 64
ME = 1  # id of the user that the agent is
PRODUCTS_PER_CATEGORY = 14


@dataclass
class World:
    """The rows of every table at the start of an episode. Never changed once it is made."""

    seed: int
    users: list[User] = field(default_factory=list)
    categories: list[Category] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)
    cart_lines: list[Any] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    order_lines: list[OrderLine] = field(default_factory=list)
    wishes: list[Any] = field(default_factory=list)
    boards: list[Board] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    votes: list[Vote] = field(default_factory=list)
    articles: list[Article] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    projects: list[Project] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    issue_labels: list[IssueLabel] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    files: list[File] = field(default_factory=list)

    @property
    def me(self) -> User:
        """The user that the agent is."""
        return self.users[ME - 1]

    def fact(self, article_id: int, name: str) -> Fact:
        """Return a fact of an article. Raises `StopIteration` if it has none of that name."""
        return next(f for f in self.facts if f.article_id == article_id and f.name == name)

    def articles_of(self, kind: str) -> list[Article]:
        return [article for article in self.articles if article.kind == kind]

    def labels_of(self, issue_id: int) -> list[str]:
        return [row.label for row in self.issue_labels if row.issue_id == issue_id]


@lru_cache(maxsize=CACHED_WORLDS)
def make_world(seed: int) -> World:
    """Make the world of a seed."""
    world = World(seed)
    for part in (_people, _shop, _orders, _forum, _wiki, _code, _work):
        part(world, Dice("web_site", seed, part.__name__))
    return world


def _people(world: World, dice: Dice) -> None:
    for name in dice.some(words.USERS, 20):
        street = f"{dice.between(1, 99)} {dice.pick(words.STREETS)}"
        password = f"{dice.pick(words.COLOURS)}{dice.between(100, 999)}"
        email = f"{name}@example.org"
        row = (len(world.users) + 1, name, password, email, street, dice.pick(words.TOWNS))
        world.users.append(User(*row))


def _shop(world: World, dice: Dice) -> None:
    for name, nouns in words.CATEGORIES.items():
        category = Category(len(world.categories) + 1, name)
        world.categories.append(category)
        models = [(b, c, n) for n in nouns for c in words.COLOURS for b in words.BRANDS]
        prices = dice.some(range(5, 200), PRODUCTS_PER_CATEGORY)
        for (brand, colour, noun), price in zip(
            dice.some(models, PRODUCTS_PER_CATEGORY), prices, strict=True
        ):
            product = Product(
                id=len(world.products) + 1,
                category_id=category.id,
                name=f"{brand} {colour} {noun}",
                brand=brand,
                cents=100 * price + dice.pick((0, 50, 95)),
                colour=colour,
                material=dice.pick(words.MATERIALS),
                grams=50 * dice.between(2, 60),
                warranty=dice.between(1, 9),
                in_stock=int(dice.below(5) > 0),
            )
            world.products.append(product)
            _reviews(world, dice, product)


def _reviews(world: World, dice: Dice, product: Product) -> None:
    authors = dice.some(world.users[1:], dice.between(0, 7))
    for author in authors:
        rating = dice.between(1, 5)
        title, text = dice.pick(words.REVIEW_TITLES[rating]), dice.pick(words.REVIEW_TEXTS)
        row = (len(world.reviews) + 1, product.id, author.id, rating, title, text)
        world.reviews.append(Review(*row))


def _orders(world: World, dice: Dice) -> None:
    for user in [world.me] * 9 + dice.some(world.users[1:], 5):
        order = Order(
            id=1000 * (world.seed % 9 + 1) + len(world.orders) * 7 + dice.below(7),
            user_id=user.id,
            day=f"2026-{dice.between(1, 9):02d}-{dice.between(1, 28):02d}",
            status=dice.pick(words.STATUSES),
            street=user.street,
            city=user.city,
            shipping=dice.pick(words.SHIPPING),
            gift=dice.below(2),
        )
        world.orders.append(order)
        for product in dice.some(world.products, dice.between(1, 4)):
            number = len(world.order_lines) + 1
            line = OrderLine(number, order.id, product.id, dice.between(1, 4), product.cents)
            world.order_lines.append(line)


def _forum(world: World, dice: Dice) -> None:
    titles: list[tuple[int, str]] = []
    for name, topics in words.BOARDS.items():
        world.boards.append(Board(len(world.boards) + 1, name))
        pairs = [f"{opening} {topic}" for opening in words.OPENINGS for topic in topics]
        titles += [(len(world.boards), title) for title in dice.some(pairs, 10)]
    for board_id, title in dice.shuffled(titles):
        number = len(world.threads) + 1
        author = world.me if number % 12 == 0 else dice.pick(world.users[1:])
        world.threads.append(Thread(number, board_id, author.id, title, dice.pick(words.POSTS)))
        for _ in range(dice.between(0, 9)):
            row = (number, dice.pick(world.users[1:]).id, dice.pick(words.REPLIES))
            world.replies.append(Reply(len(world.replies) + 1, *row))
        for voter in dice.some(world.users[1:], dice.between(0, 9)):
            value = 1 if dice.below(4) else -1
            world.votes.append(Vote(len(world.votes) + 1, number, voter.id, value))


def _article(world: World, title: str, kind: str, summary: str) -> int:
    world.articles.append(Article(len(world.articles) + 1, title, kind, summary))
    return len(world.articles)


def _wiki(world: World, dice: Dice) -> None:
    towns = dice.some(words.TOWNS, 20)
    names = [f"{first} {last}" for first in words.FIRST_NAMES for last in words.LAST_NAMES]
    ids: dict[str, int] = {}
    for town in towns:
        ids[town] = _article(world, town, "town", f"{town} is a town.")
    rivers = dice.some(words.RIVERS, 6)
    for river in rivers:
        ids[river] = _article(world, f"River {river}", "river", f"The {river} is a river.")
    people = dice.some(names, 20)
    for person in people:
        ids[person] = _article(world, person, "person", f"{person} has an article here.")
    for brand in words.BRANDS:
        ids[brand] = _article(world, brand, "company", f"{brand} makes goods for the shop.")

    def tell(title: str, name: str, value: str) -> None:
        target = ids.get(value, 0)
        shown = world.articles[target - 1].title if target else value
        world.facts.append(Fact(len(world.facts) + 1, ids[title], name, shown, target))

    for town, north in zip(towns, [*towns[1:], towns[0]], strict=True):
        tell(town, "Region", dice.pick(words.REGIONS))
        tell(town, "River", dice.pick(rivers))
        tell(town, "North road", north)
        tell(town, "Mayor", dice.pick(people))
        tell(town, "Population", str(100 * dice.between(12, 990)))
        tell(town, "Founded", str(dice.between(900, 1890)))
        tell(town, "Festival", dice.pick(words.MONTHS))
    for river in rivers:
        tell(river, "Length", f"{dice.between(40, 900)} km")
        tell(river, "Mouth", dice.pick(towns))
    for person in people:
        tell(person, "Born in", dice.pick(towns))
        tell(person, "Year of birth", str(dice.between(1900, 1999)))
        tell(person, "Occupation", dice.pick(words.JOBS))
    for brand, founder in zip(words.BRANDS, dice.some(people, len(words.BRANDS)), strict=True):
        tell(brand, "Founder", founder)
        tell(brand, "Seat", dice.pick(towns))
        tell(brand, "Founded", str(dice.between(1850, 2015)))


def _code(world: World, dice: Dice) -> None:
    purposes = dice.some(words.PURPOSES, 6)
    for name, purpose in zip(dice.some(words.PROJECTS, 6), purposes, strict=True):
        project = Project(len(world.projects) + 1, name, f"{purpose}.", dice.pick(words.LANGUAGES))
        world.projects.append(project)
        version = ".".join(str(dice.below(10)) for _ in range(3))
        for path, text in (
            ("README.md", f"{name}\n{purpose}.\nmaintainer: {dice.pick(world.users[1:]).name}"),
            (
                "config.toml",
                f"name = {name}\nversion = {version}\nlicence = {dice.pick(words.LICENCES)}",
            ),
            ("limits.toml", f"timeout = {dice.between(5, 90)}\nretries = {dice.between(1, 9)}"),
        ):
            world.files.append(File(len(world.files) + 1, project.id, path, text))


def _work(world: World, dice: Dice) -> None:
    """Issues, comments and merge requests."""
    topics = [f"{problem} in the {part}" for problem in words.PROBLEMS for part in words.PARTS]
    changes = [f"{change} the {part}" for change in words.CHANGES for part in words.PARTS]
    for project in world.projects:
        for number, title in enumerate(dice.some(topics, 16), 1):
            issue = Issue(
                id=len(world.issues) + 1,
                project_id=project.id,
                number=number,
                title=title,
                text=dice.pick(words.ISSUE_TEXTS),
                author_id=dice.pick(world.users).id,
                assignee_id=dice.pick((0, 0, *(u.id for u in world.users[:6]))),
                state="closed" if dice.below(4) == 0 else "open",
            )
            world.issues.append(issue)
            for label in dice.some(words.LABELS, dice.pick((0, 1, 1, 2))):
                row = (len(world.issue_labels) + 1, issue.id, label)
                world.issue_labels.append(IssueLabel(*row))
            for _ in range(dice.below(3)):
                row = (issue.id, dice.pick(world.users[1:]).id, dice.pick(words.COMMENTS))
                world.comments.append(Comment(len(world.comments) + 1, *row))
        for number, title in enumerate(dice.some(changes, 6), 1):
            state = dice.pick(("open", "open", "merged"))
            row = (project.id, number, title, dice.pick(world.users[1:]).id, state)
            world.merges.append(Merge(len(world.merges) + 1, *row))
