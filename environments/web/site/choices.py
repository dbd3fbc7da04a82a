"""What a constrained agent may do, and the words that the site can say."""

from environments.web.axtree import TEXT_ROLES, Node
from environments.web.interface import View
from environments.web.site import words
from environments.web.site.tasks.base import Draft

MOST_COUNTED = 20  # largest number of things that can be an answer
_NO_ANSWERS = ("button", "combobox", "checkbox", "radio", *TEXT_ROLES)


def choices(view: View, task: Draft) -> list[str]:
    """Return actions on the elements in view, in the order of the page, without repetition.

    Links and buttons can be clicked; into a textbox go the task's own texts, right and wrong ones;
    an answer is one of the goal's candidates, a number of things, or else a text in view. A task
    without an answer ends with `stop []`. Keys, hovering, tabs and `goto` are left out: no task
    needs them.
    """
    actions = [action for node in view.nodes for action in _on(node, task.texts)]
    if view.more_below:
        actions.append("scroll [down]")
    if view.first:
        actions.append("scroll [up]")
    if view.can_go_back:
        actions.append("go_back")
    return list(dict.fromkeys([*actions, *_stops(view, task)]))


def _on(node: Node, texts: tuple[str, ...]) -> list[str]:
    if node.role in ("link", "button", "checkbox", "radio"):
        return [f"click [{node.id}]"]
    if node.role in TEXT_ROLES:
        enter = int(node.role == "searchbox")
        return [f"type [{node.id}] [{text}] [{enter}]" for text in texts]
    if node.role == "combobox" and node.field is not None:
        chosen = node.field.value
        others = (label for value, label in node.field.options if value != chosen)
        return [f"select [{node.id}] [{label}]" for label in others]
    return []


def _stops(view: View, task: Draft) -> list[str]:
    if task.counts:
        return [f"stop [{n}]" for n in range(MOST_COUNTED + 1)]
    if not task.wanted.answers:
        return ["stop []"]
    if task.answers:
        return [f"stop [{answer}]" for answer in task.answers]
    readable = (node for node in view.nodes if node.role not in _NO_ANSWERS)
    return [f"stop [{part}]" for node in readable for part in node.parts]


def corpus() -> list[str]:
    """Return every word that worlds are made of, and numbers up to 99."""
    lists = (
        words.USERS,
        words.FIRST_NAMES,
        words.LAST_NAMES,
        words.TOWNS,
        words.RIVERS,
        words.REGIONS,
        words.MONTHS,
        words.JOBS,
        words.STREETS,
        words.BRANDS,
        words.COLOURS,
        words.MATERIALS,
        words.REVIEW_TEXTS,
        words.OPENINGS,
        words.POSTS,
        words.REPLIES,
        words.PROJECTS,
        words.PURPOSES,
        words.PROBLEMS,
        words.PARTS,
        words.CHANGES,
        words.ISSUE_TEXTS,
        words.COMMENTS,
        words.LABELS,
        words.LICENCES,
        words.LANGUAGES,
        words.STATUSES,
        words.SHIPPING,
        [topic for topics in words.BOARDS.values() for topic in topics],
        [noun for nouns in words.CATEGORIES.values() for noun in nouns],
        [*words.BOARDS, *words.CATEGORIES],
        [title for titles in words.REVIEW_TITLES.values() for title in titles],
    )
    numbers = " ".join(map(str, range(100)))
    return [*(" ".join(texts) for texts in lists), numbers, " ".join(f"[{n}]" for n in range(100))]
