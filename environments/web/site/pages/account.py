"""Logging in and out. `WebSite` keeps the sessions; the forms are here."""

from environments.web.site.html import button, el, form, join, textbox
from environments.web.site.web import Page, Request

LOGIN, LOGOUT = "/login", "/logout"


def login_page(request: Request) -> Page:
    failed = "failed" in request.query
    warning = el("p", "Wrong user name or password.") if failed else ""
    fields = form(
        LOGIN,
        textbox("User name", "name", required=True),
        textbox("Password", "password", required=True, type="password"),
        button("Sign in"),
        next=request.query.get("next", "/"),
    )
    return Page("Log in", join((warning, fields)))


def check_password(request: Request) -> int | None:
    """Return the user's id, or None for a wrong name or password."""
    found = request.rows(
        "SELECT id FROM users WHERE name = ? AND password = ?",
        request.text("name").lower(),
        request.text("password"),
    )
    return found[0]["id"] if found else None
