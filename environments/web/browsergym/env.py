"""browsergym: the tasks of BrowserGym's benchmarks, seen as its accessibility tree.

BrowserGym (arXiv 2412.05467; Apache-2.0) drives the browser and judges; here are the text, the
actions that are let through, and the contract.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import gymnasium

from environments.web.browsergym.grammar import GRAMMAR, parse_call, tools
from environments.web.browsergym.playwright import lend_browsers
from environments.web.browsergym.tasks import SEEDED, SEEDS, arguments, chosen, family, list_tasks
from environments.web.chromium.launch import executable, require_playwright
from scalinginter.env.base import SPLITS, Split, TextEnv, check_split, check_whole
from scalinginter.errors import UserError
from scalinginter.types import Task, Tool

RULES = """\
You use web pages in a browser. You see a page as a tree of elements; those that can be used have \
an id in brackets. Do what the goal says. If something was asked, send the answer to the user."""
HIDDEN_ROLES = ("LineBreak", "InlineTextBox")


class BrowserGym(TextEnv):
    """Do a task of BrowserGym. Reward: the benchmark's, summed, at most 1.

    Args:
        tasks: names of tasks, `miniwob.click-test`, or patterns, `webarena.*`.
        options: arguments of the tasks; `openended` needs `start_url` and `goal`.
        split_by: `seed`: every task in each split, with other seeds; `task`: a task is in one
            split. None: `seed` for miniwob and openended, else `task`.
        origins: what `goto` may open, `http://site.test`; None: everything over http.
        delay_s: seconds that BrowserGym waits after an action; None: its own half second.
        max_chars: longest observation; the rest of a page is cut and counted.
        num_train, num_validation, num_test: tasks per split.
        task_seed: which seeds.

    Raises `UserError` for unknown tasks and for missing packages.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "process"

    def __init__(
        self,
        *,
        tasks: list[str] | str,
        options: dict[str, Any] | None = None,
        split_by: Literal["seed", "task"] | None = None,
        origins: list[str] | None = None,
        delay_s: float | None = None,
        max_chars: int = 20_000,
        num_train: int = 512,
        num_validation: int = 128,
        num_test: int = 128,
        task_seed: int = 0,
    ) -> None:
        require_playwright()
        executable()
        self._names = chosen(tasks)
        if not isinstance(options or {}, dict):
            raise UserError(f"options must be arguments of the tasks by name, got {options!r}")
        if split_by not in (None, "seed", "task"):
            raise UserError(f"split_by must be seed or task, got {split_by!r}")
        if not isinstance(origins or [], list):
            raise UserError(f"origins must be a list of addresses, got {origins!r}")
        if delay_s is not None and not (isinstance(delay_s, (int, float)) and 0 <= delay_s <= 60):
            raise UserError(f"delay_s must be from 0 to 60 seconds, got {delay_s!r}")
        check_whole("max_chars", max_chars, 200, 1_000_000)
        check_whole("task_seed", task_seed, 0, 100)
        self._sizes = dict(zip(SPLITS, (num_train, num_validation, num_test), strict=True))
        for split, size in self._sizes.items():
            check_whole(f"num_{split}", size, 1, SEEDS)
        seeded = all(family(name) in SEEDED for name in self._names)
        self._by: Literal["seed", "task"] = split_by or ("seed" if seeded else "task")
        self._options, self._origins = dict(options or {}), tuple(origins or ())
        self._delay_s, self._max_chars, self._task_seed = delay_s, max_chars, task_seed
        self.instructions = f"{RULES}\nEvery turn you answer with one call:\n{GRAMMAR}"
        self._env: gymnasium.Env[Any, Any] | None = None
        self._over = True

    @property
    def rules(self) -> str:
        return RULES

    def tools(self) -> Sequence[Tool]:
        return tools()

    def tasks(self, split: Split) -> Sequence[Task]:
        check_split(split)
        return list_tasks(split, self._names, self._by, self._sizes[split], self._task_seed)

    def corpus(self) -> list[str]:
        """Return the words of the actions; pages are not opened for it."""
        return [self.instructions, "0 1 2 3 4 5 6 7 8 9 a b c d e f [ ] ( ) ' \" , . : /"]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`. Raises `UserError` for a task that is none of these."""
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        name, task_seed = task.data.get("name"), task.data.get("seed")
        if name not in self._names or type(task_seed) is not int:
            raise UserError(f"task {task.id!r} is none of browsergym: {dict(task.data)}")
        self.close()
        lend_browsers()
        given: dict[str, Any] = {"slow_mo": 0, "task_kwargs": arguments(name, self._options)}
        if self._delay_s is not None:
            given["pre_observation_delay"] = float(self._delay_s)
        self._env = gymnasium.make(f"browsergym/{name}", disable_env_checker=True, **given)
        seen, _ = self._env.reset(seed=task_seed % 2**32)
        self._earned, self._over = 0.0, False
        return self._text(seen, ""), {"task_id": task.id, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end of the episode."""
        if self._over or self._env is None:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        call = parse_call(action, self._origins)
        note = call if isinstance(call, str) else ""
        code = "noop(0)" if isinstance(call, str) else call.code
        seen, said, terminated, truncated, _ = self._env.step(code)
        reward = min(max(0.0, float(said)), 1.0 - self._earned)
        self._earned += reward
        success = self._earned >= 1.0
        self._over = bool(terminated or truncated or success)
        return self._text(seen, note), reward, self._over, False, {"success": success}

    def _text(self, seen: dict[str, Any], note: str) -> str:
        """Return an observation: the goal, what went wrong, tabs, address and the tree."""
        from browsergym.utils.obs import IGNORED_AXTREE_PROPERTIES, flatten_axtree_to_str

        tree = flatten_axtree_to_str(
            seen["axtree_object"],
            ignored_roles=HIDDEN_ROLES,
            ignored_properties=(*IGNORED_AXTREE_PROPERTIES, "url"),
        )
        lines = [f"Goal: {seen['goal']}"]
        if said := note or seen["last_action_error"].partition("\n")[0]:
            lines.append(said[:300])
        titles = seen["open_pages_titles"]
        if len(titles) > 1:
            tabs = " | ".join(f"Tab {i}: {title}" for i, title in enumerate(titles))
            lines.append(f"{tabs} (current: Tab {int(seen['active_page_index'][0])})")
        if seen["url"].startswith(("http:", "https:")):  # a file's would name the machine's folders
            lines.append(f"URL: {seen['url']}")
        text = "\n".join([*lines, tree])
        cut = len(text) - self._max_chars
        return text if cut <= 0 else f"{text[: self._max_chars]}\n({cut} characters more)"

    def release(self) -> None:
        self.close()

    def close(self) -> None:
        """End the episode's browser contexts."""
        if self._env is not None:
            self._env.close()
            self._env = None
