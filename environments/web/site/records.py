"""The rows of the database: one class per table, its fields are the columns."""

from typing import NamedTuple


class User(NamedTuple):
    id: int
    name: str
    password: str
    email: str
    street: str
    city: str


class Category(NamedTuple):
    id: int
    name: str


class Product(NamedTuple):
    id: int
    category_id: int
    name: str
    brand: str
    cents: int
    colour: str
    material: str
    grams: int
    warranty: int  # years
    in_stock: int


class Review(NamedTuple):
    id: int
    product_id: int
    user_id: int
    rating: int  # 1 to 5
    title: str
    text: str


class CartLine(NamedTuple):
    id: int
    user_id: int
    product_id: int
    quantity: int


class Order(NamedTuple):
    id: int
    user_id: int
    day: str
    status: str
    street: str
    city: str
    shipping: str
    gift: int


class OrderLine(NamedTuple):
    id: int
    order_id: int
    product_id: int
    quantity: int
    cents: int  # of one piece


class Wish(NamedTuple):
    id: int
    user_id: int
    product_id: int


class Board(NamedTuple):
    id: int
    name: str


class Thread(NamedTuple):
    id: int
    board_id: int
    user_id: int
    title: str
    text: str


class Reply(NamedTuple):
    id: int
    thread_id: int
    user_id: int
    text: str


class Vote(NamedTuple):
    id: int
    thread_id: int
    user_id: int
    value: int  # 1 or -1


class Article(NamedTuple):
    id: int
    title: str
    kind: str  # town, person, river, company
    summary: str


class Fact(NamedTuple):
    id: int
    article_id: int
    name: str
    value: str
    target_id: int  # article that the value names, 0 for none


class Project(NamedTuple):
    id: int
    name: str
    summary: str
    language: str


class Issue(NamedTuple):
    id: int
    project_id: int
    number: int
    title: str
    text: str
    author_id: int
    assignee_id: int  # 0: nobody
    state: str  # open, closed


class IssueLabel(NamedTuple):
    id: int
    issue_id: int
    label: str


class Comment(NamedTuple):
    id: int
    issue_id: int
    user_id: int
    text: str


class Merge(NamedTuple):
    id: int
    project_id: int
    number: int
    title: str
    author_id: int
    state: str  # open, merged, closed


class File(NamedTuple):
    id: int
    project_id: int
    path: str
    text: str


TABLES: dict[str, type] = {
    "users": User,
    "categories": Category,
    "products": Product,
    "reviews": Review,
    "cart_lines": CartLine,
    "orders": Order,
    "order_lines": OrderLine,
    "wishes": Wish,
    "boards": Board,
    "threads": Thread,
    "replies": Reply,
    "votes": Vote,
    "articles": Article,
    "facts": Fact,
    "projects": Project,
    "issues": Issue,
    "issue_labels": IssueLabel,
    "comments": Comment,
    "merges": Merge,
    "files": File,
}
