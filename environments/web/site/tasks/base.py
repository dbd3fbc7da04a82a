"""What a task is made of, and the walker that experts act with."""

from collections.abc import Callable
from dataclasses import dataclass

from environments.web.actions import parse_action, perform
from environments.web.axtree import Node
from environments.web.interface import Browser
from environments.web.site.data import World
from environments.web.site.dice import Dice
from environments.web.site.judge import Wanted


class Walker:
    """Acts in a browser by names, as a person would, and notes the actions it took.

    It knows what to look for and finds it in what the agent sees: element ids come from the view,
    and what is out of view has to be scrolled to.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.actions: list[str] = []

    def _do(self, action: str) -> None:
        parsed = parse_action(action)
        assert not isinstance(parsed, str), f"{action}: {parsed}"
        note = perform(self._browser, parsed)
        assert not note, f"{action}: {note}"
        self.actions.append(action)

    def _in_view(self, roles: tuple[str, ...], name: str) -> Node | None:
        nodes = self._browser.view().nodes
        return next((n for n in nodes if n.role in roles and n.name == name), None)

    def sees(self, name: str, *roles: str) -> bool:
        """Is there such an element on the page? Scrolls down as far as it has to."""
        while self._in_view(roles, name) is None:
            if not self._browser.view().more_below:
                return False
            self._do("scroll [down]")
        return True

    def _find(self, name: str, *roles: str) -> int:
        if not self.sees(name, *roles):
            while self._in_view(roles, name) is None:
                assert self._browser.view().first, f"no {roles} {name!r} on this page"
                self._do("scroll [up]")
        node = self._in_view(roles, name)
        assert node is not None
        return node.id

    def click(self, *names: str) -> None:
        """Click links or buttons, one after the other."""
        for name in names:
            self._do(f"click [{self._find(name, 'link', 'button')}]")

    def tick(self, name: str) -> None:
        self._do(f"click [{self._find(name, 'checkbox', 'radio')}]")

    def fill(self, name: str, text: str) -> None:
        """Type into a textbox of a form."""
        self._do(f"type [{self._find(name, 'textbox')}] [{text}] [0]")

    def search(self, text: str) -> None:
        """Search, with Enter."""
        self._do(f"type [{self._find('Search', 'searchbox')}] [{text}] [1]")

    def choose(self, name: str, option: str) -> None:
        self._do(f"select [{self._find(name, 'combobox')}] [{option}]")

    def turn_to(self, name: str) -> None:
        """Turn pages until there is a link of this name."""
        while not self.sees(name, "link"):
            self.click("Next page")

    def turn_back_to(self, name: str) -> None:
        """Turn pages back until there is a link of this name."""
        while not self.sees(name, "link"):
            self.click("Previous page")

    def open(self, name: str) -> None:
        """Search for a name and open what has it."""
        self.search(name)
        self.click(name)

    def back(self) -> None:
        self._do("go_back")

    def read_all(self) -> None:
        """See the whole page and the pages after it."""
        while True:
            while self._browser.view().more_below:
                self._do("scroll [down]")
            if not self.sees("Next page", "link"):
                return
            self.click("Next page")

    def look(self, text: str) -> None:
        """Scroll down until an element in view says this."""
        while not any(text in node.parts for node in self._browser.view().nodes):
            assert self._browser.view().more_below, f"{text!r} is not on this page"
            self._do("scroll [down]")

    def report(self, answer: str) -> None:
        """Stop with an answer that the page shows."""
        self.look(answer)
        self.stop(answer)

    def stop(self, answer: str = "") -> None:
        self.actions.append(f"stop [{answer}]")


@dataclass(frozen=True, slots=True)
class Draft:
    """A task: what is asked, what solves it, and how an expert does it."""

    goal: str
    wanted: Wanted
    solve: Callable[[Walker], None]
    start: str = "/"  # path of the first page
    login: bool = True  # the agent begins logged in
    texts: tuple[str, ...] = ()  # what a constrained agent may type: right and wrong ones
    answers: tuple[str, ...] = ()  # answers to choose from; empty: any text in view
    counts: bool = False  # the answer is a number of things


Template = Callable[[World, Dice], Draft | None]
"""Draws a task in a world, or None where the world has none of its kind for these dice."""


def mixed(dice: Dice, right: tuple[str, ...], pool: list[str], wrong: int = 3) -> tuple[str, ...]:
    """Return the right texts among some wrong ones, in alphabetical order: nothing tells them
    apart but the goal."""
    others = dice.some([text for text in pool if text not in right], wrong)
    return tuple(sorted({*right, *others}))


def the_only(candidates: list[str]) -> str | None:
    """Return the candidate if there is exactly one."""
    return candidates[0] if len(candidates) == 1 else None


def quoted(names: list[str]) -> str:
    """Return names as `'a', 'b' and 'c'`."""
    marked = [f"'{name}'" for name in names]
    return marked[0] if len(marked) == 1 else f"{', '.join(marked[:-1])} and {marked[-1]}"
