"""web_site in a real Chromium: the same as in the text browser, shut off, and gone when it ends."""

import asyncio
import http.server
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the extra `web` is not installed")

from environments.web.actions import parse_action, perform, render
from environments.web.browser import MAX_TABS, TextBrowser
from environments.web.chromium import launch
from environments.web.chromium.env import ChromiumSiteEnv, SiteTab
from environments.web.site.data import make_world
from environments.web.site.database import differences
from environments.web.site.env import SiteEnv
from environments.web.site.site import ORIGIN, WebSite
from scalinginter.env.pool import EnvPool
from scalinginter.errors import UserError
from scalinginter.types import Task

try:
    launch.executable()
except UserError as missing:
    pytest.skip(str(missing), allow_module_level=True)

WORLD = 7


@pytest.fixture(scope="module", autouse=True)
def _no_browser_is_left():
    yield
    launch.shutdown()


def _task(kind: str) -> Task:
    return Task("x", "web_site", {"world": WORLD, "kind": kind, "variant": 0})


def _step(env: SiteEnv, action: str) -> tuple:
    assert env._site is not None
    answer = env.step(action)
    return answer, [] if answer[2] else differences(env._site.db, WORLD)


@pytest.mark.parametrize("kind", ["shop_login", "code_triage", "wiki_chain"])
def test_the_expert_sees_and_does_the_same_in_chromium(kind: str):
    text, chromium = SiteEnv(), ChromiumSiteEnv()
    options = {"task": _task(kind)}
    assert chromium.reset(options=options)[0] == text.reset(options=options)[0]
    for action in text.expert_plan() or []:
        assert chromium.admissible_actions() == text.admissible_actions()
        last = _step(text, action)
        assert _step(chromium, action) == last
    assert last[0][1] == 1.0
    chromium.close()


def test_mistakes_keys_and_tabs_have_the_same_effect_in_chromium():
    dice, text, chromium = random.Random(5), SiteEnv(), ChromiumSiteEnv()
    options = {"task": _task("shop_cart")}
    text.reset(options=options)
    chromium.reset(options=options)
    odd = ["press [Tab]", "press [x]", "press [Enter]", "click [999]", "new_tab", "goto [/shop]"]
    odd += ["tab_focus [0]", "goto [http://example.org/]", "hover [3]", "oh", "press [Escape]"]
    for _ in range(40):
        common = ["hover [1]"] + [
            a for a in text.admissible_actions() or [] if not a.startswith("stop")
        ]
        action = dice.choice(dice.choice([common, odd]))
        assert (action, _step(chromium, action)) == (action, _step(text, action))
    chromium.close()


@pytest.fixture(name="tab")
def _tab():
    site = WebSite(WORLD)
    tab = SiteTab(site, f"{ORIGIN}/login", 40, "")
    yield tab
    tab.close()
    site.close()


def _ids(tab: SiteTab) -> dict[str, int]:
    return {node.name: node.id for node in tab.view().nodes}


def test_a_required_field_is_asked_for_as_in_the_text_browser(tab: SiteTab):
    text = TextBrowser(WebSite(WORLD), f"{ORIGIN}/login")
    action = parse_action(f"click [{_ids(tab)['Sign in']}]")
    assert perform(tab, action) == perform(text, action) != ""
    assert render(tab.view()) == render(text.view())


def test_a_login_sets_a_cookie_that_the_next_page_knows(tab: SiteTab):
    me, ids = make_world(WORLD).me, _ids(tab)
    tab.type(ids["User name"], me.name, False)
    tab.type(ids["Password"], me.password, True)
    assert "Log out" in _ids(tab)


def test_nothing_but_the_site_can_be_reached_from_a_page(tab: SiteTab):
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    for host in ("127.0.0.1", "localhost"):
        url = f"http://{host}:{server.server_port}/leak"
        tab.page.evaluate("url => fetch(url, {mode: 'no-cors'}).then(() => 0, () => 0)", url)
    server.shutdown()
    server.server_close()
    assert asked == []


def test_dialogs_are_dismissed_and_popups_become_tabs(tab: SiteTab):
    answer = tab.page.evaluate("() => { alert('a'); return confirm('b') }")
    tab.page.evaluate("() => { window.open('/wiki') }")
    tab.refresh()
    assert (answer, tab.view().tab, tab.view().url) == (False, 1, f"{ORIGIN}/wiki")


def test_a_popup_is_waited_for_even_if_its_page_comes_late(
    tab: SiteTab, monkeypatch: pytest.MonkeyPatch
):
    handle = WebSite.handle

    def late(*asked):
        time.sleep(0.5)
        return handle(*asked)

    monkeypatch.setattr(WebSite, "handle", late)
    tab.page.evaluate("() => { window.open('/wiki', 'x', 'noopener') }")
    tab.refresh()
    assert (tab.view().tab, tab.view().url) == (1, f"{ORIGIN}/wiki")


def test_popups_beyond_the_limit_are_closed_and_one_that_closes_itself_is_no_tab(tab: SiteTab):
    tab.page.evaluate("() => { window.open('/wiki').close() }")
    tab.refresh()
    assert (len(tab.view().tabs), tab.view().url) == (1, f"{ORIGIN}/login")
    tab.page.evaluate("() => { for (let i = 0; i < 9; i++) window.open('/wiki') }")
    tab.refresh()
    assert len(tab.view().tabs) == len(tab.page.context.pages) == MAX_TABS


def test_a_context_knows_nothing_of_the_one_before():
    site = WebSite(WORLD)
    for _ in range(2):
        tab = SiteTab(site, f"{ORIGIN}/wiki", 40, "")
        kept = tab.page.evaluate("() => localStorage.length + document.cookie.length")
        tab.page.evaluate("() => { localStorage.a = '1'; document.cookie = 'a=1' }")
        tab.close()
    assert kept == 0


def test_a_browser_that_crashed_is_replaced_at_the_next_reset():
    env = ChromiumSiteEnv()
    first = env.reset(options={"task": _task("shop_price")})[0]
    (chromium,) = [p for p in _descendants(os.getpid()) if _is_browser(p)]
    os.kill(chromium, signal.SIGKILL)
    _end([chromium])
    assert env.reset(options={"task": _task("shop_price")})[0] == first
    env.close()


def test_a_missing_browser_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    with pytest.raises(UserError, match="CHROMIUM=/nowhere/chromium is no program"):
        ChromiumSiteEnv()


# --- processes


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X", "0"]


def _descendants(root: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    parents = {pid: int(_stat(pid)[1]) for pid in pids}
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def _is_browser(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return b"--remote-debugging-pipe" in words and not any(w.startswith(b"--type=") for w in words)


def _end(pids: list[int]) -> list[int]:
    """Wait for processes to end; return those that do not."""
    for _ in range(4000):
        left = [pid for pid in pids if _stat(pid)[0] not in "XZ"]
        if not left:
            return []
        time.sleep(0.02)
    return left


def test_a_process_that_closes_nothing_ends_all_the_same():
    code = f"from {ChromiumSiteEnv.__module__} import ChromiumSiteEnv; e = ChromiumSiteEnv(); "
    done = subprocess.run([sys.executable, "-c", code + "e.reset()"], timeout=200, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("killed", [False, True])
def test_pitfall_29_no_process_is_left_of_a_pool_or_of_a_killed_worker(killed: bool):
    async def run() -> list[int]:
        limits = {"turn_timeout_s": 60, "reset_timeout_s": 120, "want_admissible": False}
        pool = EnvPool("web_site_chromium", {}, num_workers=1, **limits)
        session = await pool.open(ChromiumSiteEnv().tasks("test")[0], seed=0, horizon=5)
        worker = pool._workers[0].pid
        family = [worker, *_descendants(worker)]
        assert any(map(_is_browser, family))
        if killed:
            os.kill(worker, signal.SIGKILL)
        else:
            await session.close()
        await pool.aclose()
        return family

    launch.shutdown()  # playwright keeps an event loop in this thread
    assert _end(asyncio.run(run())) == []
