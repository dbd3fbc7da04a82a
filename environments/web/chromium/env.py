"""web_site_chromium: the tasks of `web_site` in a real Chromium.

The browser's only way out is a proxy, and that proxy is the HTTP server of the episode's site: what
is not `http://site.test` is refused there, without asking a name server or opening a connection.
"""

import atexit
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar, Literal

from environments.web.chromium.browser import ChromiumBrowser
from environments.web.chromium.launch import executable, new_context, require_playwright
from environments.web.chromium.tabs import close_context
from environments.web.interface import Browser, Response
from environments.web.site.env import SiteEnv
from environments.web.site.server import serve
from environments.web.site.site import ORIGIN, WebSite
from scalinginter.env.base import Split
from scalinginter.types import Task

ID = "web_site_chromium"


class ProxiedSite:
    """A site as a proxy sees it: paths are whole addresses, and other hosts' are refused."""

    def __init__(self, site: WebSite) -> None:
        self._site = site
        self.origins = site.origins

    def handle(
        self, method: str, path: str, form: Mapping[str, str] | None = None, cookie: str = ""
    ) -> Response:
        for origin in self.origins:
            if path.startswith(f"{origin}/"):
                return self._site.handle(method, path.removeprefix(origin), form, cookie)
        return Response(403, {"Content-Type": "text/html"}, "<title>Refused</title>")


class SiteTab(ChromiumBrowser):
    """A browser with the server of its site."""

    def __init__(self, site: WebSite, start: str, viewport: int, cookie: str) -> None:
        with ExitStack() as stack:
            address = stack.enter_context(serve(ProxiedSite(site)))
            context = new_context(proxy={"server": address})
            stack.callback(close_context, context)
            if cookie:
                context.add_cookies([{"name": "session", "value": cookie, "url": ORIGIN}])
            super().__init__(context, site.origins, start, viewport)
            self._stack = stack.pop_all()
        # At the end of the process the server's thread is gone before what waits for it.
        atexit.register(self.close)

    def close(self) -> None:
        atexit.unregister(self.close)
        self._stack.close()


class ChromiumSiteEnv(SiteEnv):
    """`web_site` in Chromium: same tasks, same actions, same judge.

    Args: those of `environments.web.site.env.SiteEnv`. Raises `UserError` where playwright or a
    browser is missing.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "process"

    def __init__(self, **params: Any) -> None:
        require_playwright()
        executable()
        super().__init__(**params)

    def tasks(self, split: Split) -> Sequence[Task]:
        return [replace(task, environment=ID) for task in super().tasks(split)]

    def open_browser(self, site: WebSite, start: str, cookie: str) -> Browser:
        return SiteTab(site, start, self._viewport, cookie)

    def release(self) -> None:
        self.close()
