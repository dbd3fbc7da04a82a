"""The repository host's issues: list with filters, labels, assignee, comments, new, close."""

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
    select,
    table,
    textarea,
    textbox,
)
from environments.web.site.pages.code import find_project
from environments.web.site.web import Page, Redirect, Reply, Request, Routes, listing
from environments.web.site.words import LABELS

STATES = ("open", "closed", "all")
NOBODY = (0, "nobody")


def register(routes: Routes) -> None:
    routes.get(r"/code/(\w+)/issues")(issues)
    routes.get(r"/code/(\w+)/issue/(\d+)")(issue)
    routes.get(r"/code/(\w+)/new", login=True)(new_form)
    routes.post(r"/code/(\w+)/new")(new)
    routes.post(r"/code/(\w+)/issue/(\d+)/comment")(comment)
    routes.post(r"/code/(\w+)/issue/(\d+)/state")(set_state)
    routes.post(r"/code/(\w+)/issue/(\d+)/label")(set_label)
    routes.post(r"/code/(\w+)/issue/(\d+)/assign")(assign)


def issues(request: Request) -> Page:
    row = find_project(request)
    state, label = request.query.get("state", "open"), request.query.get("label", "any")
    where, values = "project_id = ?", [row["id"]]
    if state in ("open", "closed"):
        where, values = f"{where} AND state = ?", [*values, state]
    if label != "any":
        found = "EXISTS (SELECT 1 FROM issue_labels WHERE issue_id = issues.id AND label = ?)"
        where, values = f"{where} AND {found}", [*values, label]
    total = request.row(f"SELECT COUNT(*) FROM issues WHERE {where}", *values)[0]
    page, pages, offset = request.page(total)
    rows = request.rows(
        f"SELECT * FROM issues WHERE {where} ORDER BY number LIMIT 8 OFFSET ?", *values, offset
    )
    base = f"/code/{row['name']}"
    entries = [
        join(
            (
                link(one["title"], f"{base}/issue/{one['number']}"),
                " ",
                dots(f"#{one['number']}", one["state"]),
            )
        )
        for one in rows
    ]
    parts = (
        el("p", link("New issue", f"{base}/new")),
        _filters(request.path, state, label),
        listing(entries, "No issues found."),
        pager(request.path, page, pages, state=state, label=label),
    )
    return Page(f"Issues of {row['name']}", join(parts))


def _filters(path: str, state: str, label: str) -> Html:
    return form(
        path,
        select("State", "state", [(name, name) for name in STATES], state),
        select("Label", "label", [(name, name) for name in ("any", *LABELS)], label),
        button("Filter"),
        method="get",
    )


def _find(request: Request) -> Row:
    return request.row(
        "SELECT issues.*, users.name AS author FROM issues "
        "JOIN users ON users.id = author_id JOIN projects ON projects.id = project_id "
        "WHERE projects.name = ? AND number = ?",
        request.args[0],
        request.arg(1),
    )


def _people(request: Request) -> list[tuple[int, str]]:
    """Who can be assigned: the user and the first few others."""
    return [NOBODY, *((r["id"], r["name"]) for r in request.rows("SELECT * FROM users LIMIT 6"))]


def issue(request: Request) -> Page:
    row = _find(request)
    path, people = request.path, _people(request)
    labels = [
        r["label"]
        for r in request.rows(
            "SELECT label FROM issue_labels WHERE issue_id = ? ORDER BY label", row["id"]
        )
    ]
    comments = request.rows(
        "SELECT comments.*, users.name FROM comments JOIN users ON users.id = user_id "
        "WHERE issue_id = ? ORDER BY comments.id",
        row["id"],
    )
    facts = table(
        ("Number", f"#{row['number']}"),
        ("State", row["state"]),
        ("Author", row["author"]),
        ("Assignee", dict(people).get(row["assignee_id"], "nobody")),
        ("Labels", ", ".join(labels) or "none"),
    )
    close = "Close issue" if row["state"] == "open" else "Reopen issue"
    choices = [(name, name) for name in LABELS]
    parts = (
        el("p", row["text"]),
        facts,
        form(f"{path}/label", select("Label", "label", choices, LABELS[0]), button("Toggle label")),
        form(
            f"{path}/assign",
            select("Assignee", "assignee", people, row["assignee_id"]),
            button("Assign"),
        ),
        form(f"{path}/state", button(close)),
        el("h2", plural(len(comments), "comment")),
        listing([dots(c["name"], c["text"]) for c in comments], ""),
        form(f"{path}/comment", textarea("Comment", "text"), button("Send comment")),
        el("p", link("All issues", f"/code/{request.args[0]}/issues")),
    )
    return Page(row["title"], join(parts))


def _back(request: Request) -> Redirect:
    return Redirect(f"/code/{request.args[0]}/issue/{request.arg(1)}")


def new_form(request: Request) -> Page:
    row = find_project(request)
    fields = form(
        request.path,
        textbox("Title", "title", required=True),
        textarea("Description", "text"),
        select("Label", "label", [(name, name) for name in ("none", *LABELS)], "none"),
        button("Create issue"),
    )
    return Page(f"New issue in {row['name']}", fields)


def new(request: Request) -> Reply:
    row, title, label = find_project(request), request.text("title"), request.text("label")
    if not title:
        return Redirect(request.path)
    number = 1 + request.row("SELECT MAX(number) FROM issues WHERE project_id = ?", row["id"])[0]
    issue_id = insert(
        request.db,
        "issues",
        project_id=row["id"],
        number=number,
        title=title,
        text=request.text("text"),
        author_id=request.user_id,
        assignee_id=0,
        state="open",
    )
    if label in LABELS:
        insert(request.db, "issue_labels", issue_id=issue_id, label=label)
    return Redirect(f"/code/{row['name']}/issue/{number}")


def comment(request: Request) -> Reply:
    row, body = _find(request), request.text("text")
    if body:
        insert(request.db, "comments", issue_id=row["id"], user_id=request.user_id, text=body)
    return _back(request)


def set_state(request: Request) -> Reply:
    row = _find(request)
    new_state = "closed" if row["state"] == "open" else "open"
    update(request.db, "issues", row["id"], state=new_state)
    return _back(request)


def set_label(request: Request) -> Reply:
    row, label = _find(request), request.text("label")
    if label in LABELS:
        mine = (row["id"], label)
        found = request.rows("SELECT id FROM issue_labels WHERE issue_id = ? AND label = ?", *mine)
        if found:
            request.db.execute("DELETE FROM issue_labels WHERE id = ?", (found[0]["id"],))
        else:
            insert(request.db, "issue_labels", issue_id=row["id"], label=label)
    return _back(request)


def assign(request: Request) -> Reply:
    row, person = _find(request), request.number("assignee")
    if person in dict(_people(request)):
        update(request.db, "issues", row["id"], assignee_id=person)
    return _back(request)
