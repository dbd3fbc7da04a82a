"""miniwob: MiniWoB++ 1.1.0 (Liu et al. 2018, arXiv 1802.08802; MIT) in a real Chromium.

The pages come from the package `miniwob`, the driver is ours. A page is a function of its seed: its
random numbers are seeded, and its clock stands still but for one second after every action.
"""

import string
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal

import gymnasium

from environments.web.actions import GRAMMAR, TOOLS, parse_action, perform, render, render_brief
from environments.web.chromium.browser import ChromiumBrowser
from environments.web.chromium.launch import executable, new_context, require_playwright
from environments.web.interface import View
from environments.web.miniwob.experts import EXPERTS
from environments.web.miniwob.pages import ORIGIN, all_pages, proxy, table, used_pages
from environments.web.miniwob.texts import kept
from scalinginter.env.base import SPLITS, Split, TextEnv
from scalinginter.errors import UserError, nearest
from scalinginter.types import Task, Tool

ID = "miniwob"
SEEDS = 1_000_000  # of a split; no seed is in two splits
TICK_MS = 1000  # of the page's clock, after every action
VERBS = ("click", "type", "select", "hover", "press", "scroll")
SKIP = "#query,#reward-display,#click-canvas,#sync-task-cover"
SEED_RANDOM = (
    "(() => { let n = 1; Math.random = () => (n = (n * 16807) % 2147483647) / 2147483647 })()"
)
START = """(seed) => {
  Math.seedrandom(seed);
  core.EPISODE_MAX_TIME = 2147483647;  // no time-out: turns are what is counted
  core.startEpisodeReal();
}"""
STATE = """() => {
  const said = core.getUtterance();
  return [said.utterance ?? said, WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL];
}"""

_LINES = [line for line in GRAMMAR.split("\n") if line.split()[0] in VERBS]
RULES = """\
You use a small web page. You see it as a list of elements, each with its id in brackets. Do what \
the goal says; the page ends the task by itself, often when a button is clicked."""
BRIEF_RULES = (
    "click [id] . type [id] [text] [0] . select [id] [option] . press [key] . scroll [down]"
)


@lru_cache(maxsize=64)
def list_tasks(split: Split, pages: tuple[str, ...], count: int, task_seed: int) -> list[Task]:
    """Return the first `count` tasks of a split: the pages take turns, seed after seed."""
    first = (task_seed * len(SPLITS) + SPLITS.index(split)) * SEEDS
    tasks: list[Task] = []
    for position in range(count):
        page, seed = pages[position % len(pages)], first + position // len(pages)
        known = table()[page]["turns"]
        turns = known if isinstance(known, int) else known.get(str(seed))
        data = {"page": page, "seed": seed}
        tasks.append(Task(f"{split}/{page}/{seed - first:06d}", ID, data, turns))
    return tasks


class MiniWob(TextEnv):
    """Do the small task of a page. Reward: the page's own without its decay, negative ones are 0.

    Args:
        pages: names of pages; None: all that can be played with the actions.
        experts_only: only pages with an expert.
        viewport: lines of a page that are in view.
        brief: short instructions and lines, for very small models.
        num_train, num_validation, num_test: tasks per split.
        task_seed: which seeds.

    Raises `UserError` for an unknown page and where playwright, Chromium or `miniwob` is missing.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "process"

    def __init__(
        self,
        *,
        pages: list[str] | None = None,
        experts_only: bool = False,
        viewport: int = 60,
        brief: bool = False,
        num_train: int = 1200,
        num_validation: int = 180,
        num_test: int = 180,
        task_seed: int = 0,
    ) -> None:
        require_playwright()
        executable()
        self._pages = _chosen(pages, experts_only)
        sizes = (num_train, num_validation, num_test)
        named = zip(("viewport", *(f"num_{s}" for s in SPLITS)), (viewport, *sizes), strict=True)
        for name, value in (*named, ("task_seed", task_seed + 1)):
            if type(value) is not int or not 1 <= value <= SEEDS:
                raise UserError(f"{name} must be a whole number up to {SEEDS}, got {value!r}")
        self._sizes = dict(zip(SPLITS, sizes, strict=True))
        self._viewport, self._task_seed = viewport, task_seed
        self._render = render_brief if brief else render
        self._rules = BRIEF_RULES if brief else RULES
        grammar = "\n".join(_LINES)
        self.instructions = (
            BRIEF_RULES if brief else f"{RULES}\nEvery turn you answer with one action:\n{grammar}"
        )
        space = gymnasium.spaces.Text(100_000, min_length=0, charset=string.printable)
        self.observation_space = self.action_space = space
        self._browser: ChromiumBrowser | None = None
        self._over = True

    @property
    def rules(self) -> str:
        return self._rules

    def tools(self) -> Sequence[Tool]:
        return tuple(tool for tool in TOOLS if tool.name in VERBS)

    def tasks(self, split: Split) -> Sequence[Task]:
        if split not in SPLITS:
            raise UserError(f"unknown split {split!r}{nearest(split, SPLITS)}; one of {SPLITS}")
        return list_tasks(split, self._pages, self._sizes[split], self._task_seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`: its page is loaded anew. Raises `UserError` for a task that is
        none of this environment."""
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        self._page, page_seed = task.data.get("page"), task.data.get("seed")
        if self._page not in all_pages() or type(page_seed) is not int:
            raise UserError(f"task {task.id!r} is none of {ID}: {dict(task.data)}")
        self.close()
        context = new_context(proxy={"server": proxy()})
        context.add_init_script(SEED_RANDOM)
        url = f"{ORIGIN}/miniwob/{self._page}.html"
        self._browser = ChromiumBrowser(
            context, (ORIGIN,), url, self._viewport, shapes=True, skip=SKIP, stopped_clock=True
        )
        page = self._browser.page
        page.wait_for_load_state("load")
        page.evaluate(START, str(page_seed))
        self._browser.tick(TICK_MS)
        self._goal, self._over = page.evaluate(STATE)[0], False
        return self._observe(""), {"task_id": task.id, "success": False}

    def _observe(self, note: str) -> str:
        """Return the page as the agent sees it, without its address: there is only one."""
        text = self._render(self._view(), note)
        lines = [line for line in text.split("\n") if not line.startswith("URL: ")]
        return "\n".join([f"Goal: {self._goal}", *lines])

    def _view(self) -> View:
        assert self._browser is not None
        return self._browser.view()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end of the episode."""
        if self._over or self._browser is None:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        parsed = parse_action(action)
        if isinstance(parsed, str):
            note = parsed
        elif parsed.kind not in VERBS:
            note = f"There is one page and no {parsed.kind} here. Actions: {', '.join(VERBS)}."
        else:
            note = perform(self._browser, parsed)
        self._browser.tick(TICK_MS)
        self._goal, done, raw = self._browser.page.evaluate(STATE)
        if not done:
            return self._observe(note), 0.0, False, False, {"success": False}
        self._over = True
        reward = min(1.0, max(0.0, float(raw)))
        return "The page ended the task.", reward, True, False, {"success": reward == 1.0}

    def admissible_actions(self) -> list[str] | None:
        """Return clicks, options, and the goal's words as texts to type, in the page's order."""
        view, actions = self._view(), []
        for node in view.nodes[1:] if not view.first else view.nodes:
            if node.role == "combobox" and node.field is not None:
                actions += [f"select [{node.id}] [{label}]" for _, label in node.field.options]
            elif node.role in ("textbox", "searchbox"):
                actions += [f"type [{node.id}] [{text}] [0]" for text in _texts(self._goal)]
            actions.append(f"click [{node.id}]")
        moves = [("scroll [down]", view.more_below), ("scroll [up]", view.first > 0)]
        return [*dict.fromkeys(actions), *(action for action, possible in moves if possible)]

    def expert_plan(self) -> list[str] | None:
        """Return a plan made from the first view, None for pages without an expert."""
        expert = EXPERTS.get(self._page or "")
        return None if expert is None else expert(self._goal, self._view().nodes)

    def corpus(self) -> list[str]:
        """Return texts of the chosen pages, from a file: no page is opened."""
        texts = kept()
        form = "brief" if self._render is render_brief else "full"
        return [self.instructions, *(t for page in self._pages for t in texts[page][form])]

    def played_texts(self) -> list[str]:
        """Return what the first training tasks show and what their expert does, played now."""
        return super().corpus()[1:]

    def release(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the browser context of the episode."""
        if self._browser is not None:
            self._browser.close()
            self._browser = None


def _texts(goal: str) -> list[str]:
    """Return what the goal may want typed: what it quotes, else its words."""
    quoted = [part for part in goal.split('"')[1::2] if part]
    return quoted or [word.strip(".,:;") for word in goal.split()]


def _chosen(pages: list[str] | None, experts_only: bool) -> tuple[str, ...]:
    allowed = used_pages()
    if pages is not None and not (isinstance(pages, list) and pages):
        raise UserError(f"pages must be a list of names, got {pages!r}")
    for name in pages or ():
        if name not in allowed:
            reason = table().get(name, {}).get("left_out", "there is no such page")
            raise UserError(f"page {name!r} cannot be played: {reason}{nearest(name, allowed)}")
    chosen = tuple(p for p in pages or allowed if not experts_only or p in EXPERTS)
    if not chosen:
        raise UserError(f"none of the pages {pages} has an expert; {', '.join(EXPERTS)} have one")
    return chosen
