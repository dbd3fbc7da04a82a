"""The tasks of TextCraft: a goal, and the crafting commands that are shown in some order.

Every choice is a SHA-256 of what it depends on: no random state, no hash seed, no directory order.
"""

import functools
import hashlib
from collections.abc import Iterator, Sequence

from environments.game.textcraft.book import Book
from scalinginter.env.base import SPLITS, Split
from scalinginter.errors import UserError
from scalinginter.types import Task

_ATTEMPTS = 40  # candidates looked at per wanted task before giving up


def number(key: str) -> int:
    """Return a large number that is a pure function of `key`."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def draw(pool: Sequence[str], count: int, key: str) -> list[str]:
    """Return `count` different members of `pool` in an order that depends on `key` only."""
    chosen: dict[str, None] = {}
    attempt = 0
    while len(chosen) < count:
        chosen[pool[number(f"{key}/{attempt}") % len(pool)]] = None
        attempt += 1
    return list(chosen)


@functools.lru_cache(maxsize=16)
def make_tasks(
    book: Book,
    depths: range,
    bag: int | None,
    distractors: int,
    num_goals: int | None,
    sizes: tuple[int, int, int],
    seed: int,
) -> dict[Split, tuple[Task, ...]]:
    """Return the tasks of the three splits; depths take turns within a split.

    The split of a task is a hash of its goal and its set of commands, so no two splits share one,
    and no split holds one twice. Raises `UserError` if the book has too few different tasks.
    """
    found: dict[Split, dict[int, list[Task]]] = {s: {d: [] for d in depths} for s in SPLITS}
    for place, depth in enumerate(depths):
        wanted = {
            split: len(range(place, size, len(depths)))
            for split, size in zip(SPLITS, sizes, strict=True)
        }
        goals = _goals(book, depth, bag, _products(book, depths, num_goals, seed))
        candidates = _candidates(book, depth, goals, distractors, seed)
        for _ in range(_ATTEMPTS * sum(sizes)):
            if all(len(found[split][depth]) == wanted[split] for split in SPLITS):
                break
            content, split, data = next(candidates)
            tasks = found[split][depth]
            if content and len(tasks) < wanted[split]:
                tasks.append(_task(book, split, depth, place + len(tasks) * len(depths), data))
        else:
            counts = {split: len(found[split][depth]) for split in SPLITS}
            raise UserError(
                f"{book.source}: depth {depth} with {distractors} distractors has too few "
                f"different tasks: found {counts}, wanted {wanted}; "
                "ask for fewer tasks, or for more distractors"
            )
    return {
        split: tuple(sorted((t for d in depths for t in by_depth[d]), key=lambda t: t.id[-6:]))
        for split, by_depth in found.items()
    }


def _task(book: Book, split: str, depth: int, index: int, data: dict[str, object]) -> Task:
    required = len(book.plan(str(data["goal"])))
    return Task(f"{split}/d{depth}/{index:06d}", "textcraft", data, required)


def _candidates(
    book: Book, depth: int, goals: list[str], distractors: int, seed: int
) -> Iterator[tuple[bool, Split, dict[str, object]]]:
    """Yield `(is it new, its split, its data)` without end."""
    crafts = {goal: [i for i in book.closure(goal) if i in book.recipes] for goal in goals}
    others = {goal: sorted(set(book.recipes) - set(crafts[goal])) for goal in goals}
    shares = [4, 1, 1]
    seen: set[str] = set()
    attempt = 0
    while True:
        key = f"{seed}/{depth}/{attempt}"
        goal = goals[number(key) % len(goals)]
        extra = draw(others[goal], min(distractors, len(others[goal])), key)
        shown = sorted([*crafts[goal], *extra])
        content = f"{goal}|{','.join(shown)}"
        share = number(f"{seed}|{content}") % sum(shares)
        split = SPLITS[0 if share < shares[0] else share - shares[0] + 1]
        yield (
            content not in seen,
            split,
            {"goal": goal, "recipes": draw(shown, len(shown), f"order/{key}")},
        )
        seen.add(content)
        attempt += 1


def _products(book: Book, depths: range, num_goals: int | None, seed: int) -> set[str]:
    """Return the items that may be goals: `num_goals` of the largest depth, and their parts."""
    top = sorted(item for item in book.recipes if book.depth(item) == depths[-1])
    if num_goals is None or num_goals >= len(top):
        return set(book.recipes)
    chosen = draw(top, num_goals, f"goals/{seed}")
    return {part for item in chosen for part in book.closure(item)}


def _goals(book: Book, depth: int, bag: int | None, products: set[str]) -> list[str]:
    """Return the items of this depth that may be goals and whose plan fits the bag."""
    level = sorted(item for item in products & set(book.recipes) if book.depth(item) == depth)
    if not level:
        deepest = max((book.depth(item) for item in book.recipes), default=0)
        raise UserError(f"{book.source} has no item of depth {depth}; its deepest has {deepest}")
    rooms = {item: book.room(item) for item in level}
    if bag is None:
        return level
    fitting = [item for item in level if rooms[item] <= bag]
    if not fitting:
        raise UserError(
            f"bag = {bag} is too small for every item of depth {depth} in {book.source}; "
            f"it takes a bag of {min(rooms.values())} at least"
        )
    return fitting
