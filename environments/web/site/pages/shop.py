"""The shop: categories, search, products, reviews, wish list."""

from environments.web.site.database import insert
from environments.web.site.html import (
    Html,
    button,
    dots,
    el,
    form,
    join,
    link,
    money,
    pager,
    plural,
    search_form,
    select,
    table,
    textarea,
    textbox,
)
from environments.web.site.web import Page, Redirect, Reply, Request, Routes, listing

SORTS = {"name": "name", "price": "cents", "weight": "grams"}
REVIEWS_PER_PAGE = 3


def register(routes: Routes) -> None:
    routes.get("/shop")(front)
    routes.get("/shop/search")(search)
    routes.get(r"/shop/category/(\d+)")(category)
    routes.get(r"/shop/product/(\d+)")(product)
    routes.get(r"/shop/review/(\d+)", login=True)(review_form)
    routes.post(r"/shop/review/(\d+)")(review)
    routes.get("/shop/wishes", login=True)(wishes)
    routes.post(r"/shop/wish/(\d+)")(wish)
    routes.post(r"/shop/unwish/(\d+)")(unwish)


def front(request: Request) -> Page:
    rows = request.rows("SELECT * FROM categories ORDER BY id")
    entries = [link(row["name"], f"/shop/category/{row['id']}") for row in rows]
    return Page("Shop", join((search_form("/shop/search"), listing(entries))))


def _entries(request: Request, where: str, *values: object, order: str = "name") -> Html:
    """Products as a list with pages. `where` and `order` are ours, the values are parameters."""
    total = request.row(f"SELECT COUNT(*) FROM products WHERE {where}", *values)[0]
    page, pages, offset = request.page(total)
    rows = request.rows(
        f"SELECT * FROM products WHERE {where} ORDER BY {order}, id LIMIT 8 OFFSET ?",
        *values,
        offset,
    )
    entries = [
        join((link(row["name"], f"/shop/product/{row['id']}"), " ", money(row["cents"])))
        for row in rows
    ]
    kept = {key: request.query[key] for key in ("q", "sort") if key in request.query}
    body = listing(entries, "No products found.")
    return join((body, pager(request.path, page, pages, **kept)))


def like(query: str) -> str:
    """Return the pattern of `LIKE ... ESCAPE '!'` for texts that hold this one."""
    for sign in "!%_":
        query = query.replace(sign, f"!{sign}")
    return f"%{query}%"


def search(request: Request) -> Page:
    query = request.query.get("q", "").strip()
    body = _entries(request, "name LIKE ? ESCAPE '!'", like(query))
    return Page("Search results", join((search_form("/shop/search", query), body)))


def category(request: Request) -> Page:
    row = request.row("SELECT * FROM categories WHERE id = ?", request.arg(0))
    sort = request.query.get("sort", "name")
    sort = sort if sort in SORTS else "name"
    choice = form(
        request.path,
        select("Sort by", "sort", [(key, key) for key in SORTS], sort),
        button("Sort"),
        method="get",
    )
    body = _entries(request, "category_id = ?", row["id"], order=SORTS[sort])
    return Page(row["name"], join((choice, body)))


def product(request: Request) -> Page:
    row = request.row("SELECT * FROM products WHERE id = ?", request.arg(0))
    facts = table(
        ("Price", money(row["cents"])),
        ("Brand", row["brand"]),
        ("Colour", row["colour"]),
        ("Material", row["material"]),
        ("Weight", f"{row['grams']} g"),
        ("Warranty", plural(row["warranty"], "year")),
        ("Availability", "in stock" if row["in_stock"] else "sold out"),
    )
    buy = form(
        "/shop/cart/add",
        textbox("Quantity", "quantity", 1, required=True),
        button("Add to cart"),
        product=row["id"],
    )
    keep = form(f"/shop/wish/{row['id']}", button("Add to wish list"))
    write = link("Write a review", f"/shop/review/{row['id']}")
    return Page(row["name"], join((facts, buy, keep, write, _reviews(request, row["id"]))))


def _reviews(request: Request, product_id: int) -> Html:
    total, mean = request.row(
        "SELECT COUNT(*), AVG(rating) FROM reviews WHERE product_id = ?", product_id
    )
    if not total:
        return el("h2", "No reviews")
    page, pages, offset = request.page(total, REVIEWS_PER_PAGE)
    rows = request.rows(
        "SELECT reviews.*, users.name FROM reviews JOIN users ON users.id = user_id "
        "WHERE product_id = ? ORDER BY reviews.id LIMIT ? OFFSET ?",
        product_id,
        REVIEWS_PER_PAGE,
        offset,
    )
    entries = [dots(plural(r["rating"], "star"), r["title"], r["text"], r["name"]) for r in rows]
    heading = el("h2", f"{plural(total, 'review')}, {mean:.1f} stars")
    return join((heading, listing(entries), pager(request.path, page, pages)))


def review_form(request: Request) -> Page:
    row = request.row("SELECT * FROM products WHERE id = ?", request.arg(0))
    stars = [(n, plural(n, "star")) for n in range(1, 6)]
    fields = form(
        request.path,
        select("Rating", "rating", stars, 3),
        textbox("Title", "title", required=True),
        textarea("Text", "text"),
        button("Send review"),
    )
    return Page(f"Review of {row['name']}", fields)


def review(request: Request) -> Reply:
    row = request.row("SELECT * FROM products WHERE id = ?", request.arg(0))
    rating, title = request.number("rating"), request.text("title")
    if not 1 <= rating <= 5 or not title:
        return Redirect(request.path)
    insert(
        request.db,
        "reviews",
        product_id=row["id"],
        user_id=request.user_id,
        rating=rating,
        title=title,
        text=request.text("text"),
    )
    return Redirect(f"/shop/product/{row['id']}")


def wishes(request: Request) -> Page:
    rows = request.rows(
        "SELECT products.* FROM wishes JOIN products ON products.id = product_id "
        "WHERE user_id = ? ORDER BY wishes.id",
        request.user_id,
    )
    entries = [
        join(
            (
                link(row["name"], f"/shop/product/{row['id']}"),
                form(f"/shop/unwish/{row['id']}", button(f"Remove {row['name']}")),
            )
        )
        for row in rows
    ]
    return Page("Wish list", listing(entries, "Your wish list is empty."))


def wish(request: Request) -> Reply:
    product_id = request.row("SELECT id FROM products WHERE id = ?", request.arg(0))["id"]
    mine = (request.user_id, product_id)
    if not request.rows("SELECT id FROM wishes WHERE user_id = ? AND product_id = ?", *mine):
        insert(request.db, "wishes", user_id=request.user_id, product_id=product_id)
    return Redirect("/shop/wishes")


def unwish(request: Request) -> Reply:
    values = (request.user_id, request.arg(0))
    request.db.execute("DELETE FROM wishes WHERE user_id = ? AND product_id = ?", values)
    return Redirect("/shop/wishes")
