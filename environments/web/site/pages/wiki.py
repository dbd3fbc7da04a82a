"""The wiki: articles with facts and links, search, edit."""

from sqlite3 import Row

from environments.web.site.database import update
from environments.web.site.html import (
    Html,
    button,
    el,
    form,
    items,
    join,
    link,
    pager,
    search_form,
    textarea,
    textbox,
)
from environments.web.site.html import row as table_row
from environments.web.site.pages.shop import like
from environments.web.site.web import Page, Redirect, Reply, Request, Routes, listing

ARTICLES_PER_PAGE = 12
KINDS = {"town": "Towns", "river": "Rivers", "person": "People", "company": "Companies"}


def register(routes: Routes) -> None:
    routes.get("/wiki")(front)
    routes.get("/wiki/search")(search)
    routes.get(r"/wiki/kind/(\w+)")(kind)
    routes.get(r"/wiki/article/(\d+)")(article)
    routes.get(r"/wiki/edit/(\d+)", login=True)(edit_form)
    routes.post(r"/wiki/edit/(\d+)")(edit)


def front(request: Request) -> Page:
    entries = items(link(label, f"/wiki/kind/{key}") for key, label in KINDS.items())
    return Page("Wiki", join((search_form("/wiki/search"), entries)))


def _articles(request: Request, where: str, *values: object) -> Html:
    """Articles as a list with pages. `where` is ours, the values are parameters."""
    total = request.row(f"SELECT COUNT(*) FROM articles WHERE {where}", *values)[0]
    page, pages, offset = request.page(total, ARTICLES_PER_PAGE)
    rows = request.rows(
        f"SELECT * FROM articles WHERE {where} ORDER BY title LIMIT ? OFFSET ?",
        *values,
        ARTICLES_PER_PAGE,
        offset,
    )
    entries = [link(row["title"], f"/wiki/article/{row['id']}") for row in rows]
    kept = {"q": request.query["q"]} if "q" in request.query else {}
    body = listing(entries, "No articles found.")
    return join((body, pager(request.path, page, pages, **kept)))


def search(request: Request) -> Page:
    query = request.query.get("q", "").strip()
    body = _articles(request, "title LIKE ? ESCAPE '!'", like(query))
    return Page("Search results", join((search_form("/wiki/search", query), body)))


def kind(request: Request) -> Page:
    label = KINDS.get(request.args[0], "Articles")
    return Page(label, _articles(request, "kind = ?", request.args[0]))


def _facts(request: Request, article_id: int) -> list[Row]:
    return request.rows("SELECT * FROM facts WHERE article_id = ? ORDER BY id", article_id)


def article(request: Request) -> Page:
    row = request.row("SELECT * FROM articles WHERE id = ?", request.arg(0))
    facts = [
        table_row(
            fact["name"],
            link(fact["value"], f"/wiki/article/{fact['target_id']}")
            if fact["target_id"]
            else fact["value"],
        )
        for fact in _facts(request, row["id"])
    ]
    change = el("p", link("Edit", f"/wiki/edit/{row['id']}"))
    return Page(row["title"], join((el("p", row["summary"]), el("table", *facts), change)))


def edit_form(request: Request) -> Page:
    """Facts that name an article are not edited: they are links."""
    row = request.row("SELECT * FROM articles WHERE id = ?", request.arg(0))
    boxes = [
        textbox(fact["name"], f"fact{fact['id']}", fact["value"], required=True)
        for fact in _facts(request, row["id"])
        if not fact["target_id"]
    ]
    fields = form(
        request.path, textarea("Summary", "summary", row["summary"]), *boxes, button("Save")
    )
    return Page(f"Edit {row['title']}", fields)


def edit(request: Request) -> Reply:
    row = request.row("SELECT * FROM articles WHERE id = ?", request.arg(0))
    summary = request.text("summary")
    if summary and summary != row["summary"]:
        update(request.db, "articles", row["id"], summary=summary)
    for fact in _facts(request, row["id"]):
        value = request.text(f"fact{fact['id']}")
        if value and value != fact["value"] and not fact["target_id"]:
            update(request.db, "facts", fact["id"], value=value)
    return Redirect(f"/wiki/article/{row['id']}")
