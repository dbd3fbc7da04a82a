"""One Chromium per process, started when it is first needed; an episode gets a context of its own.

The browser is Debian's `chromium` or any other: the environment variable CHROMIUM names it, else it
is looked for on PATH. It ends with this process, whatever ends that: playwright's driver reads a
pipe from this process and Chromium one from the driver.
"""

import atexit
import os
import shutil
from typing import Any

from scalinginter.errors import UserError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SWITCHES = (
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers have a small /dev/shm
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-features=Translate,OptimizationHints,MediaRouter",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--mute-audio",
)
TIMEOUT_MS = 15_000  # of one call to the browser
WIDTH, HEIGHT = 1280, 800  # of the window, in pixels
_OPTIONS = {
    "accept_downloads": False,
    "service_workers": "block",
    "viewport": {"width": WIDTH, "height": HEIGHT},
    "locale": "en-US",
    "timezone_id": "UTC",
    "reduced_motion": "reduce",
}

_running: tuple[Any, Any] | None = None  # playwright, browser


def executable() -> str:
    """Return the path of the browser. Raises `UserError` if there is none."""
    named = os.environ.get("CHROMIUM")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        looked = f"CHROMIUM={named} is no program" if named else f"none of {NAMES} is on PATH"
        raise UserError(
            f"this environment needs a Chromium browser: {looked}; "
            "apt-get install chromium, or set CHROMIUM to its path"
        )
    return found


def require_playwright() -> Any:
    """Return playwright's `sync_playwright`. Raises `UserError` if the package is missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise UserError(
            f"this environment drives Chromium with playwright, which cannot be imported: {error}; "
            "pip install 'scalinginter[web]'"
        ) from error
    return sync_playwright


def new_context(**options: Any) -> Any:
    """Return a fresh browser context (`playwright.sync_api.BrowserContext`).

    `options` are those of playwright's `Browser.new_context`. A browser that has crashed is
    replaced. Raises `UserError` where playwright or the browser is missing.
    """
    require_playwright()
    from playwright.sync_api import Error

    try:
        context = _browser().new_context(**_OPTIONS, **options)
    except Error:  # it has crashed, and this call is how one hears of it
        shutdown()
        context = _browser().new_context(**_OPTIONS, **options)
    context.set_default_timeout(TIMEOUT_MS)
    return context


def _browser() -> Any:
    global _running
    if _running is None:
        path = executable()
        playwright = require_playwright()().start()
        sandbox = os.geteuid() != 0  # Chromium's own refuses to run as root
        browser = playwright.chromium.launch(
            executable_path=path, chromium_sandbox=sandbox, args=list(SWITCHES)
        )
        _running = playwright, browser
    return _running[1]


@atexit.register
def shutdown() -> None:
    """End this process's browser, if it has one."""
    global _running
    if _running is not None:
        playwright, browser = _running
        _running = None
        if browser.is_connected():
            browser.close()
        playwright.stop()
