"""Gives BrowserGym this machine's Chromium, and keeps it from one episode to the next.

BrowserGym starts two browsers of playwright's own download at every reset, seconds each.
"""

import atexit
import os
from typing import Any

from environments.web.chromium.launch import executable, require_playwright

_started: "_Playwright | None" = None


def lend_browsers() -> None:
    """Let BrowserGym find our playwright where it looks for its own. Call it before a reset."""
    global _started
    if _started is None:
        from browsergym import core

        _started = _Playwright(require_playwright()().start())
        core._set_global_playwright(_started)


@atexit.register
def shutdown() -> None:
    """End the browsers and playwright, if they were started."""
    global _started
    if _started is not None:
        from browsergym import core

        started, _started = _started, None
        core._set_global_playwright(None)
        started.stop()


class _Playwright:
    """Playwright, whose `chromium` starts the browser of this machine."""

    def __init__(self, playwright: Any) -> None:
        self._playwright = playwright
        self.chromium = _Launcher(playwright.chromium)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._playwright, name)

    def stop(self) -> None:
        self.chromium.end()
        self._playwright.stop()


class _Launcher:
    """Starts a browser once for each set of options."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium
        self._browsers: dict[str, Any] = {}

    def launch(self, **options: Any) -> "_Lent":
        key = repr(sorted(options.items()))
        browser = self._browsers.get(key)
        if browser is None or not browser.is_connected():
            sandbox = os.geteuid() != 0  # Chromium's own refuses to run as root
            ours = {"executable_path": executable(), "chromium_sandbox": sandbox}
            browser = self._browsers[key] = self._chromium.launch(**ours | options)
        return _Lent(browser)

    def end(self) -> None:
        for browser in self._browsers.values():
            if browser.is_connected():
                browser.close()


class _Lent:
    """A browser that stays when the episode closes it: its contexts are closed anyway."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    def __getattr__(self, name: str) -> Any:
        return getattr(self._browser, name)

    def close(self) -> None:
        """Leave the browser to the next episode."""
