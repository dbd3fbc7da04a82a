"""web_site: tasks on a site of our own, in WebArena's style and grammar.

The agent sees an accessibility tree with element ids and acts with `click [12]`, `type [7] [text]
[1]`, `stop [answer]` and so on. In the style of WebArena (arXiv 2307.13854); site, data and tasks
are ours.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import gymnasium

from environments.web.actions import GRAMMAR, TOOLS, parse_action, perform, render, render_brief
from environments.web.browser import TextBrowser
from environments.web.errors import require_selectolax
from environments.web.interface import Browser
from environments.web.site import catalogue
from environments.web.site.choices import choices, corpus
from environments.web.site.judge import solved
from environments.web.site.site import ORIGIN, WebSite
from environments.web.site.tasks import draft
from environments.web.site.tasks.base import Draft
from scalinginter.env.base import SPLITS, Split, TextEnv, check_split
from scalinginter.errors import UserError
from scalinginter.types import Task, Tool

MOST_TASKS = 100_000  # of a split

RULES = """\
You use a web site: a shop, a forum, a wiki and a host of code projects. You see a page as a list \
of elements, each with its id in brackets. Only elements in view can be used. Do what the goal \
says, and nothing else; then stop: the first stop ends the task, right or wrong."""
ACTIONS = f"""\
Every turn you answer with one action:
{GRAMMAR}"""


BRIEF_RULES = (
    "click [id] . type [id] [text] [1] . select [id] [option] . hover [id] . press [key] . "
    "scroll [down] . goto [url] . go_back . go_forward . new_tab . tab_focus [n] . close_tab . "
    "stop [answer]"
)


class SiteEnv(TextEnv):
    """Do a task on the site. Reward 1 for a `stop` with the right answer and the right changes.

    Args:
        kinds: kinds of tasks (`shop_price`) and areas (`shop`); None: all.
        max_turns: tasks that need more turns are left out; None: all.
        viewport: lines of a page that are in view.
        brief: short instructions and `link Cart 6` for `[6] link 'Cart'`, for very small models.
        num_train, num_validation, num_test: tasks per split.
        task_seed: which worlds.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "inline"

    def __init__(
        self,
        *,
        kinds: list[str] | None = None,
        max_turns: int | None = None,
        viewport: int = catalogue.VIEWPORT,
        brief: bool = False,
        num_train: int = 1200,
        num_validation: int = 192,
        num_test: int = 192,
        task_seed: int = 0,
    ) -> None:
        require_selectolax()
        self._kinds = catalogue.kinds_of(kinds)
        if max_turns is not None:
            _check_int("max_turns", max_turns, 2)
        _check_int("viewport", viewport, 5)
        _check_int("task_seed", task_seed, 0, 1000)
        if type(brief) is not bool:
            raise UserError(f"brief must be true or false, got {brief!r}")
        sizes = (num_train, num_validation, num_test)
        for split, size in zip(SPLITS, sizes, strict=True):
            _check_int(f"num_{split}", size, 1, MOST_TASKS)
        self._sizes = dict(zip(SPLITS, sizes, strict=True))
        self._longest, self._viewport, self._task_seed = max_turns, viewport, task_seed
        self.instructions = BRIEF_RULES if brief else f"{RULES}\n{ACTIONS}"
        self._rules = BRIEF_RULES if brief else RULES
        self._render = render_brief if brief else render
        self._site: WebSite | None = None
        self._over = True

    @property
    def rules(self) -> str:
        return self._rules

    def tools(self) -> Sequence[Tool]:
        return TOOLS

    def tasks(self, split: Split) -> Sequence[Task]:
        check_split(split)
        key = (self._kinds, self._sizes[split], self._longest, self._task_seed, self._viewport)
        return catalogue.list_tasks(split, *key)

    def open_browser(self, site: WebSite, start: str, cookie: str) -> Browser:
        """Open the browser of an episode. A driver of a real browser overrides this."""
        return TextBrowser(site, start, self._viewport, cookie)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`. There is no chance in this environment: the seed changes
        nothing. Raises `UserError` for a task that the site does not have."""
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        self.close()
        self._draft, self._world = _draft_of(task), int(task.data["world"])
        self._site, cookie = catalogue.open_site(self._draft, self._world)
        self._browser = self.open_browser(self._site, ORIGIN + self._draft.start, cookie)
        self._over = False
        page = self._render(self._browser.view())
        return f"Goal: {self._draft.goal}\n{page}", {"task_id": task.id, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end of the episode."""
        if self._over or self._site is None:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        parsed = parse_action(action)
        if isinstance(parsed, str):
            note = parsed
        elif parsed.kind == "stop":
            return self._stop(parsed.text)
        else:
            note = perform(self._browser, parsed)
        return self._render(self._browser.view(), note), 0.0, False, False, {"success": False}

    def _stop(self, answer: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        assert self._site is not None
        success = solved(answer, self._site.db, self._world, self._draft.wanted)
        self._over = True
        return "Stopped.", float(success), True, False, {"success": success}

    def close(self) -> None:
        """Give back the browser and the database of the episode."""
        if self._site is not None:
            self._browser.close()
            self._site.close()
            self._site = None

    def admissible_actions(self) -> list[str] | None:
        """Return what can be done in view, in the order of the page (see choices.py)."""
        return choices(self._browser.view(), self._draft)

    def expert_plan(self) -> list[str] | None:
        return catalogue.expert_plan(self._draft, self._world, self._viewport)

    def corpus(self) -> list[str]:
        """Return texts with every word that the site can say."""
        return [self.instructions, *corpus(), *super().corpus()]


def _draft_of(task: Task) -> Draft:
    world, kind, variant = (task.data.get(key) for key in ("world", "kind", "variant"))
    known = type(world) is int and type(variant) is int and kind in catalogue.TEMPLATES
    found = draft(world, kind, variant) if known and world >= 0 and 0 <= variant < 100 else None
    if found is None:
        raise UserError(f"task {task.id!r} is none of web_site: {dict(task.data)}")
    return found


def _check_int(name: str, value: Any, least: int, most: int = 2**31) -> None:
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
