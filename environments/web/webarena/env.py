"""webarena: WebArena's tasks (Zhou et al., arXiv 2307.13854) on its sites, in a real Chromium.

The sites are not part of this package: they run on servers of yours, whose addresses are given.
"""

import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import gymnasium

from environments.web.actions import GRAMMAR, TOOLS, parse_action, perform, render
from environments.web.chromium.browser import ChromiumBrowser
from environments.web.chromium.launch import executable, new_context, require_playwright
from environments.web.webarena.judge import ModelJudge, solved
from environments.web.webarena.tasks import SITES, Config, addresses, fill, needs_judge, read
from scalinginter.env.base import SPLITS, Split, TextEnv
from scalinginter.errors import UserError, nearest
from scalinginter.types import Task, Tool

ID = "webarena"
RULES = """\
You use web sites in a browser. You see a page as a list of elements, each with its id in \
brackets. Only elements in view can be used. Do what the goal says; then stop, with the answer if \
something was asked: the first stop ends the task. If the task cannot be done, stop with N/A."""


class WebArena(TextEnv):
    """Do a WebArena task. Reward 1 if its evaluators agree at the `stop`, else 0.

    Args:
        tasks: path of a JSON file in WebArena's format; None: the 812 tasks of `libwebarena`.
        sites: only tasks that need no other sites, `[shopping, reddit]`; None: all.
        urls: `site -> address`; what is missing comes from WA_SHOPPING, WA_REDDIT and so on.
        benchmark: every task is a test task; else tasks are split by their template.
        auth_dir: folder with the sites' logins (playwright's storage states, `gitlab_state.json`);
            None: nobody is logged in.
        judge_url, judge_model: an OpenAI-compatible API for answers that a model has to judge; its
            key is in WA_JUDGE_KEY. None: tasks that need it are left out.
        viewport: lines of a page that are in view.

    Raises `UserError` for missing tasks, addresses, logins, playwright or Chromium.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "process"

    def __init__(
        self,
        *,
        tasks: str | None = None,
        sites: list[str] | None = None,
        urls: dict[str, str] | None = None,
        benchmark: bool = False,
        auth_dir: str | None = None,
        judge_url: str | None = None,
        judge_model: str = "gpt-4o-mini",
        viewport: int = 60,
    ) -> None:
        require_playwright()
        executable()
        for site in sites or ():
            if site not in SITES:
                raise UserError(f"unknown site {site!r}{nearest(site, SITES)}; sites: {SITES}")
        if type(viewport) is not int or viewport < 5:
            raise UserError(f"viewport must be a whole number from 5, got {viewport!r}")
        chosen = [t for t in read(tasks) if sites is None or set(t["sites"]) <= set(sites)]
        used = {site for task in chosen for site in task["sites"]}
        self._urls = addresses(urls or {}, sorted(used))
        self._judge = ModelJudge(judge_url, judge_model) if judge_url else None
        judged = (t for t in chosen if self._judge is not None or not needs_judge(t))
        self._configs: dict[int, Config] = {int(task["task_id"]): task for task in judged}
        self._benchmark, self._viewport = benchmark, viewport
        self._auth_dir = None if auth_dir is None else Path(auth_dir)
        self._check_logins()
        self.instructions = f"{RULES}\nEvery turn you answer with one action:\n{GRAMMAR}"
        space = gymnasium.spaces.Text(200_000, min_length=0, charset=string.printable)
        self.observation_space = self.action_space = space
        self._browser: ChromiumBrowser | None = None
        self._over = True

    def _check_logins(self) -> None:
        files = {self._login(config) for config in self._configs.values()} - {None}
        missing = sorted(str(file) for file in files if file is not None and not file.is_file())
        if missing:
            raise UserError(
                f"auth_dir lacks the logins {', '.join(missing)}; make them with playwright's "
                "context.storage_state(path=...)"
            )

    def _login(self, config: Config) -> Path | None:
        state = config.get("storage_state")
        return self._auth_dir / Path(state).name if state and self._auth_dir else None

    @property
    def rules(self) -> str:
        return RULES

    def tools(self) -> Sequence[Tool]:
        return TOOLS

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split. A template's tasks are in one split: of five templates three
        are for training, one for validation, one for test."""
        if split not in SPLITS:
            raise UserError(f"unknown split {split!r}{nearest(split, SPLITS)}; one of {SPLITS}")
        listed = []
        for number, config in sorted(self._configs.items()):
            template = int(config.get("intent_template_id", number)) % 5
            own = {0: "test", 1: "validation"}.get(template, "train")
            if split == ("test" if self._benchmark else own):
                listed.append(Task(f"{split}/{number:04d}", ID, {"task_id": number}))
        return listed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]` in a fresh context. The sites keep what earlier episodes did to
        them: setting them back is for whoever runs them."""
        task: Task = (options or {}).get("task") or next(
            task for split in SPLITS for task in self.tasks(split)
        )
        config = self._configs.get(task.data.get("task_id", -1))
        if config is None:
            raise UserError(f"task {task.id!r} is none of these {len(self._configs)} tasks")
        self.close()
        self._config = fill(config, self._urls)
        more = {"geolocation": place} if (place := config.get("geolocation")) else {}
        context = new_context(storage_state=self._login(config), **more)
        context.route(self._foreign(), lambda route: route.abort())
        first, *others = self._config["start_url"].split(" |AND| ")
        origins = {f"{p.scheme}://{p.netloc}" for p in map(urlsplit, self._urls.values())}
        self._browser = ChromiumBrowser(context, sorted(origins), first, self._viewport)
        for url in others:
            self._browser.new_tab()
            self._browser.goto(url)
        self._browser.tab_focus(0)
        self._over = False
        return self._observe(""), {"task_id": task.id, "success": False}

    def _foreign(self) -> re.Pattern[str]:
        """Return a pattern of the addresses that no site has: requests for them are refused."""
        hosts = "|".join(re.escape(urlsplit(url).netloc) for url in self._urls.values())
        return re.compile(rf"^(?!(?:https?|wss?)://(?:{hosts})(?:[/?#]|$)|data:|blob:|about:)")

    def _observe(self, note: str) -> str:
        assert self._browser is not None
        return f"Goal: {self._config['intent']}\n{render(self._browser.view(), note)}"

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end, and what
        `judge.solved` raises at the `stop`."""
        if self._over or self._browser is None:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        parsed = parse_action(action)
        if isinstance(parsed, str):
            return self._observe(parsed), 0.0, False, False, {"success": False}
        if parsed.kind != "stop":
            note = perform(self._browser, parsed)
            return self._observe(note), 0.0, False, False, {"success": False}
        self._over = True
        shop = self._urls.get("shopping", "")
        success = solved(self._config, parsed.text, self._browser.detach(), shop, self._judge)
        return "Stopped.", float(success), True, False, {"success": success}

    def release(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the browser context of the episode."""
        if self._browser is not None:
            self._browser.close()
            self._browser = None
