"""The forum: boards, threads, replies, votes, user pages."""

from sqlite3 import Row

from environments.web.site.database import insert, update
from environments.web.site.html import (
    Html,
    button,
    dots,
    el,
    form,
    join,
    link,
    pager,
    plural,
    search_form,
    textarea,
    textbox,
)
from environments.web.site.pages.shop import like
from environments.web.site.web import Page, Redirect, Reply, Request, Routes, listing

THREADS_PER_PAGE = 6
REPLIES_PER_PAGE = 4


def register(routes: Routes) -> None:
    routes.get("/forum")(front)
    routes.get("/forum/search")(search)
    routes.get(r"/forum/board/(\d+)")(board)
    routes.get(r"/forum/thread/(\d+)")(thread)
    routes.get(r"/forum/user/(\w+)")(user)
    routes.get(r"/forum/new/(\d+)", login=True)(new_form)
    routes.post(r"/forum/new/(\d+)")(new)
    routes.post(r"/forum/reply/(\d+)")(reply)
    routes.post(r"/forum/vote/(\d+)")(vote)
    routes.get(r"/forum/edit/(\d+)", login=True)(edit_form)
    routes.post(r"/forum/edit/(\d+)")(edit)


def front(request: Request) -> Page:
    rows = request.rows("SELECT * FROM boards ORDER BY id")
    entries = [link(row["name"], f"/forum/board/{row['id']}") for row in rows]
    return Page("Forum", join((search_form("/forum/search"), listing(entries))))


def _threads(request: Request, where: str, *values: object) -> Html:
    """Threads as a list with pages. `where` is ours, the values are parameters."""
    total = request.row(f"SELECT COUNT(*) FROM threads WHERE {where}", *values)[0]
    page, pages, offset = request.page(total, THREADS_PER_PAGE)
    rows = request.rows(
        "SELECT threads.*, users.name, (SELECT COUNT(*) FROM replies WHERE thread_id = threads.id) "
        "AS answers FROM threads JOIN users ON users.id = user_id "
        f"WHERE {where} ORDER BY threads.id DESC LIMIT ? OFFSET ?",
        *values,
        THREADS_PER_PAGE,
        offset,
    )
    entries = [
        join(
            (
                link(row["title"], f"/forum/thread/{row['id']}"),
                " ",
                dots(row["name"], plural(row["answers"], "reply", "replies")),
            )
        )
        for row in rows
    ]
    kept = {"q": request.query["q"]} if "q" in request.query else {}
    body = listing(entries, "No threads found.")
    return join((body, pager(request.path, page, pages, **kept)))


def search(request: Request) -> Page:
    query = request.query.get("q", "").strip()
    body = _threads(request, "title LIKE ? ESCAPE '!'", like(query))
    return Page("Search results", join((search_form("/forum/search", query), body)))


def board(request: Request) -> Page:
    row = request.row("SELECT * FROM boards WHERE id = ?", request.arg(0))
    start = el("p", link("New thread", f"/forum/new/{row['id']}"))
    return Page(row["name"], join((start, _threads(request, "board_id = ?", row["id"]))))


def user(request: Request) -> Page:
    row = request.row("SELECT * FROM users WHERE name = ?", request.args[0])
    return Page(f"Threads of {row['name']}", _threads(request, "user_id = ?", row["id"]))


def thread(request: Request) -> Page:
    row = request.row(
        "SELECT threads.*, users.name, boards.name AS board FROM threads "
        "JOIN users ON users.id = user_id JOIN boards ON boards.id = board_id "
        "WHERE threads.id = ?",
        request.arg(0),
    )
    score = request.row("SELECT TOTAL(value) FROM votes WHERE thread_id = ?", row["id"])[0]
    mine = request.user is not None and request.user["id"] == row["user_id"]
    total = request.row("SELECT COUNT(*) FROM replies WHERE thread_id = ?", row["id"])[0]
    page, pages, offset = request.page(total, REPLIES_PER_PAGE)
    rows = request.rows(
        "SELECT replies.*, users.name FROM replies JOIN users ON users.id = user_id "
        "WHERE thread_id = ? ORDER BY replies.id LIMIT ? OFFSET ?",
        row["id"],
        REPLIES_PER_PAGE,
        offset,
    )
    parts = (
        el("p", link(row["board"], f"/forum/board/{row['board_id']}")),
        el("p", row["text"]),
        el("p", "by ", link(row["name"], f"/forum/user/{row['name']}")),
        el("p", f"Score: {int(score)}"),
        form(f"/forum/vote/{row['id']}", _vote("Upvote", 1), _vote("Downvote", 0)),
        el("p", link("Edit", f"/forum/edit/{row['id']}")) if mine else "",
        el("h2", plural(total, "reply", "replies")),
        listing([dots(r["name"], r["text"]) for r in rows], ""),
        pager(request.path, page, pages),
        form(f"/forum/reply/{row['id']}", textarea("Your reply", "text"), button("Send reply")),
    )
    return Page(row["title"], join(parts))


def _vote(label: str, value: int) -> Html:
    return button(label, "up", value)


def new_form(request: Request) -> Page:
    row = request.row("SELECT * FROM boards WHERE id = ?", request.arg(0))
    fields = form(
        request.path,
        textbox("Title", "title", required=True),
        textarea("Text", "text"),
        button("Post thread"),
    )
    return Page(f"New thread in {row['name']}", fields)


def new(request: Request) -> Reply:
    row = request.row("SELECT * FROM boards WHERE id = ?", request.arg(0))
    title, body = request.text("title"), request.text("text")
    if not title:
        return Redirect(request.path)
    values = {"board_id": row["id"], "user_id": request.user_id, "title": title, "text": body}
    return Redirect(f"/forum/thread/{insert(request.db, 'threads', **values)}")


def reply(request: Request) -> Reply:
    row = request.row("SELECT * FROM threads WHERE id = ?", request.arg(0))
    body = request.text("text")
    if body:
        values = {"thread_id": row["id"], "user_id": request.user_id, "text": body}
        insert(request.db, "replies", **values)
    total = request.row("SELECT COUNT(*) FROM replies WHERE thread_id = ?", row["id"])[0]
    last = max(1, -(-total // REPLIES_PER_PAGE))
    return Redirect(f"/forum/thread/{row['id']}?page={last}")


def vote(request: Request) -> Reply:
    row = request.row("SELECT * FROM threads WHERE id = ?", request.arg(0))
    value = 1 if request.text("up") == "1" else -1
    mine = (row["id"], request.user_id)
    found = request.rows("SELECT id FROM votes WHERE thread_id = ? AND user_id = ?", *mine)
    if found:
        update(request.db, "votes", found[0]["id"], value=value)
    else:
        insert(request.db, "votes", thread_id=row["id"], user_id=request.user_id, value=value)
    return Redirect(f"/forum/thread/{row['id']}")


def edit_form(request: Request) -> Page:
    row = _own(request)
    fields = form(request.path, textarea("Text", "text", row["text"]), button("Save"))
    return Page(f"Edit {row['title']}", fields)


def edit(request: Request) -> Reply:
    row, body = _own(request), request.text("text")
    if body:
        update(request.db, "threads", row["id"], text=body)
    return Redirect(f"/forum/thread/{row['id']}")


def _own(request: Request) -> Row:
    """Return the thread if it is the user's own; others have no such page."""
    return request.row(
        "SELECT * FROM threads WHERE id = ? AND user_id = ?", request.arg(0), request.user_id
    )
