"""The repository host: projects, files, merge requests. Issues are in issues.py."""

from sqlite3 import Row

from environments.web.site.database import update
from environments.web.site.html import button, dots, el, form, items, join, link, table
from environments.web.site.web import Page, Redirect, Reply, Request, Routes, listing


def register(routes: Routes) -> None:
    routes.get("/code")(front)
    routes.get(r"/code/(\w+)")(project)
    routes.get(r"/code/(\w+)/files")(files)
    routes.get(r"/code/(\w+)/file/(.+)")(file)
    routes.get(r"/code/(\w+)/merges")(merges)
    routes.get(r"/code/(\w+)/merge/(\d+)")(merge)
    routes.post(r"/code/(\w+)/merge/(\d+)")(set_merge)


def find_project(request: Request) -> Row:
    """Return the project that the path names."""
    return request.row("SELECT * FROM projects WHERE name = ?", request.args[0])


def front(request: Request) -> Page:
    rows = request.rows("SELECT * FROM projects ORDER BY name")
    entries = [
        join((link(row["name"], f"/code/{row['name']}"), " ", row["summary"])) for row in rows
    ]
    return Page("Projects", listing(entries))


def project(request: Request) -> Page:
    row = find_project(request)
    base = f"/code/{row['name']}"
    entries = items(
        (
            link("Issues", f"{base}/issues"),
            link("Merge requests", f"{base}/merges"),
            link("Files", f"{base}/files"),
        )
    )
    facts = table(("Language", row["language"]))
    return Page(row["name"], join((el("p", row["summary"]), facts, entries)))


def files(request: Request) -> Page:
    row = find_project(request)
    rows = request.rows("SELECT path FROM files WHERE project_id = ? ORDER BY path", row["id"])
    entries = [link(one["path"], f"/code/{row['name']}/file/{one['path']}") for one in rows]
    return Page(f"Files of {row['name']}", listing(entries))


def file(request: Request) -> Page:
    row = find_project(request)
    found = request.row(
        "SELECT * FROM files WHERE project_id = ? AND path = ?", row["id"], request.args[1]
    )
    lines = ((line,) for line in found["text"].splitlines())
    return Page(f"{row['name']}/{found['path']}", table(*lines))


def merges(request: Request) -> Page:
    row = find_project(request)
    rows = request.rows(
        "SELECT merges.*, users.name FROM merges JOIN users ON users.id = author_id "
        "WHERE project_id = ? ORDER BY number",
        row["id"],
    )
    entries = [
        join(
            (
                link(one["title"], f"/code/{row['name']}/merge/{one['number']}"),
                " ",
                dots(f"!{one['number']}", one["state"], one["name"]),
            )
        )
        for one in rows
    ]
    return Page(f"Merge requests of {row['name']}", listing(entries))


def _find_merge(request: Request) -> Row:
    return request.row(
        "SELECT merges.*, users.name AS author, projects.name AS project FROM merges "
        "JOIN users ON users.id = author_id JOIN projects ON projects.id = project_id "
        "WHERE projects.name = ? AND number = ?",
        request.args[0],
        request.arg(1),
    )


def merge(request: Request) -> Page:
    row = _find_merge(request)
    facts = table(("Number", f"!{row['number']}"), ("State", row["state"]), ("By", row["author"]))
    buttons = form(
        request.path, button("Merge", "state", "merged"), button("Close", "state", "closed")
    )
    return Page(row["title"], join((facts, buttons if row["state"] == "open" else "")))


def set_merge(request: Request) -> Reply:
    row, state = _find_merge(request), request.text("state")
    if row["state"] == "open" and state in ("merged", "closed"):
        update(request.db, "merges", row["id"], state=state)
    return Redirect(request.path)
