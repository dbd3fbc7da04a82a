"""The front page."""

from environments.web.site.html import items, link
from environments.web.site.web import Page, Request, Routes


def register(routes: Routes) -> None:
    routes.get("/")(front)


def front(request: Request) -> Page:
    return Page(
        "Home",
        items(
            (
                link("Shop: goods and orders", "/shop"),
                link("Forum: boards and threads", "/forum"),
                link("Wiki: towns, rivers, people, companies", "/wiki"),
                link("Code: projects and issues", "/code"),
            )
        ),
    )
