"""TextCraft: reach a goal item over a tree of crafting recipes.

In the style of TextCraft (ADaPT, arXiv 2311.05772), with recipes of our own.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import gymnasium

from environments.game.textcraft.book import RECIPES, Book, Recipe, Step, load_book
from environments.game.textcraft.instances import make_tasks
from scalinginter.env.base import Split, TextEnv, check_split
from scalinginter.errors import UserError
from scalinginter.types import Task

MOST_TASKS = 100_000  # of a split
MOST = 99  # pieces that one action may name

FULL_RULES = """\
You craft items. Use the crafting commands that you are given to make the goal.
Every turn you answer with one action:
get N ITEM - pick up N pieces of an item that has no crafting command, N is 1 to 99. \
get ITEM picks up 1.
craft N ITEM using N ITEM, N ITEM - use a crafting command, with exactly its items and amounts.
inventory - look at what you have."""
FULL_BAG = "\nYou have room for {bag} different items. You cannot put anything down."
BRIEF_RULES = "get ITEM or get N ITEM or craft ITEM or inventory ."
BRIEF_BAG = " room {bag} ."

_FULL_WORDS = """\
Got. Crafted. Inventory: nothing. You lack. You have no room for. There is no here.
Crafting commands: You cannot pick up: it has to be crafted.
There is no crafting command for. The crafting command is:
You can get 1 to 99 at a time. Goal: craft.
Not an action. Say get N ITEM, craft N ITEM using N ITEM, N ITEM, or inventory."""
_BRIEF_WORDS = "goal : . got made have nothing no room need cannot get craft that say or many using"


class TextCraft(TextEnv):
    """Craft a goal item. Reward 1 when it is made, which ends the episode.

    Args:
        min_depth, max_depth: heights of the goals' recipe trees, 1 to 5 in our books.
        bag: how many different items fit in hand; None: any number. Pieces of an item in hand take
            no more room. Nothing can be put down: a wrong `get` may make the goal impossible.
        distractors: crafting commands that are shown beside those that the goal takes.
        num_goals: how many different items of `max_depth` are goals; goals of a smaller depth are
            what goes into them. None: all. Distractors come from the whole book in any case.
        brief: few words a turn, for very small models; allows `craft ITEM`.
        num_train, num_validation, num_test: tasks per split.
        task_seed: which tasks.
        recipes: a recipe book (JSON file) or a folder of Minecraft recipe files; None: ours.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "inline"

    def __init__(
        self,
        *,
        min_depth: int = 1,
        max_depth: int = 4,
        bag: int | None = None,
        distractors: int = 6,
        num_goals: int | None = None,
        brief: bool = False,
        num_train: int = 512,
        num_validation: int = 128,
        num_test: int = 128,
        task_seed: int = 0,
        recipes: str | None = None,
    ) -> None:
        _check_int("min_depth", min_depth, 1)
        _check_int("max_depth", max_depth, min_depth)
        _check_int("distractors", distractors, 0)
        _check_int("task_seed", task_seed, 0)
        if type(brief) is not bool:
            raise UserError(f"brief must be true or false, got {brief!r}")
        for name, value in (("bag", bag), ("num_goals", num_goals)):
            if value is not None:
                _check_int(name, value, 1)
        sizes = {
            "num_train": num_train,
            "num_validation": num_validation,
            "num_test": num_test,
        }
        for name, size in sizes.items():
            _check_int(name, size, 1, MOST_TASKS)
        self._brief = brief
        self._bag = bag
        self._path = recipes or str(RECIPES / ("chains.json" if brief else "workshop.json"))
        self._task_key = (range(min_depth, max_depth + 1), bag, distractors, num_goals)
        self._sizes = (num_train, num_validation, num_test)
        self._task_seed = task_seed
        rules, room = (BRIEF_RULES, BRIEF_BAG) if brief else (FULL_RULES, FULL_BAG)
        self.instructions = rules + (room.format(bag=bag) if bag is not None else "")
        self._over = True

    @property
    def book(self) -> Book:
        """The recipes in force."""
        return load_book(self._path)

    def tasks(self, split: Split) -> Sequence[Task]:
        check_split(split)
        return make_tasks(self.book, *self._task_key, self._sizes, self._task_seed)[split]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`. There is no chance in this environment: the seed changes
        nothing. Raises `UserError` for a task whose items are not in the recipe book."""
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        self._book = book = self.book
        names = [*task.data["recipes"], task.data["goal"]]
        unknown = [name for name in names if name not in book.recipes]
        if unknown:
            raise UserError(f"task {task.id!r} needs {unknown[0]!r}, unknown to {book.source}")
        self._goal: str = task.data["goal"]
        self._listed = [book.recipes[item] for item in task.data["recipes"]]
        self._crafts = {recipe.item: recipe for recipe in self._listed}
        needs = {need for recipe in self._listed for need, _ in recipe.needs}
        self._gets = sorted(need for need in needs if need not in book.recipes)
        self._amounts = sorted({s.amount for s in book.plan(self._goal) if s.kind == "get"})
        self._held: dict[str, int] = {}
        self._over = False
        return self._opening(), {"task_id": task.id, "success": False}

    def _opening(self) -> str:
        if self._brief:
            return f"goal {self._goal} . " + " . ".join(r.brief for r in self._listed)
        commands = "\n".join(recipe.command for recipe in self._listed)
        return f"Crafting commands:\n{commands}\n\nGoal: craft {self._goal}."

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `gymnasium.error.ResetNeeded` after the end of the episode."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        observation = self._act(" ".join(action[:1000].lower().split()))
        done = self._goal in self._held
        self._over = done
        return observation, float(done), done, False, {"success": done}

    def _act(self, action: str) -> str:
        verb, _, rest = action.partition(" ")
        if verb == "get" and rest:
            return self._get(rest)
        if verb == "craft" and rest:
            return self._craft(rest)
        if action == "inventory":
            return self._inventory()
        if self._brief:
            return "say get or craft"
        return "Not an action. Say get N ITEM, craft N ITEM using N ITEM, N ITEM, or inventory."

    def _get(self, rest: str) -> str:
        amount, item = _counted(rest)
        amount = 1 if amount is None else amount
        if item not in self._gets:
            if self._brief:
                return f"cannot get that . {self._inventory()}"
            if item in self._book.recipes:
                return f"You cannot pick up {item}: it has to be crafted."
            return f"There is no {item[:60]} here."
        if not 1 <= amount <= MOST:
            return "cannot get that many" if self._brief else f"You can get 1 to {MOST} at a time."
        if not self._fits(item):
            return self._full(item)
        self._held[item] = self._held.get(item, 0) + amount
        return f"got {item} . {self._inventory()}" if self._brief else f"Got {amount} {item}."

    def _craft(self, rest: str) -> str:
        made, using, needs = rest.partition(" using ")
        amount, item = _counted(made)
        recipe = self._crafts.get(item)
        if recipe is None:
            if self._brief:
                return f"cannot craft that . {self._inventory()}"
            return f"There is no crafting command for {item[:60]}."
        whole = bool(using) or self._brief  # brief: `craft ITEM` says it all
        if not whole or amount not in (None, recipe.makes) or (using and not _same(recipe, needs)):
            return recipe.brief if self._brief else f"The crafting command is: {recipe.command}"
        missing = [(need, n - self._held.get(need, 0)) for need, n in recipe.needs]
        missing = [(need, n) for need, n in missing if n > 0]
        if missing:
            if self._brief:
                return f"need {missing[0][0]} . {self._inventory()}"
            return "You lack " + ", ".join(f"{n} {need}" for need, n in missing) + "."
        if not self._fits(item, recipe):
            return self._full(item)
        for need, n in recipe.needs:
            self._held[need] -= n
            if not self._held[need]:
                del self._held[need]
        self._held[item] = self._held.get(item, 0) + recipe.makes
        if self._brief:
            return f"made {item} . {self._inventory()}"
        return f"Crafted {recipe.makes} {item}."

    def _fits(self, item: str, recipe: Recipe | None = None) -> bool:
        """Is there room for `item` once what `recipe` takes is gone?"""
        if self._bag is None or item in self._held:
            return True
        freed = sum(self._held[need] == n for need, n in recipe.needs) if recipe else 0
        return len(self._held) - freed < self._bag

    def _full(self, item: str) -> str:
        if self._brief:
            return f"no room . {self._inventory()}"
        return f"You have no room for {item}."

    def _inventory(self) -> str:
        if self._brief:
            held = (item if n == 1 else f"{item} {n}" for item, n in sorted(self._held.items()))
            return "have " + (" ".join(held) or "nothing")
        held = ", ".join(f"{n} {item}" for item, n in sorted(self._held.items()))
        return f"Inventory: {held or 'nothing'}."

    def admissible_actions(self) -> list[str] | None:
        """Return the actions that change something now, in alphabetical order.

        `get` is listed in the amounts that occur in the shortest plan, the same for every item.
        """
        actions = [
            self._spell(Step("get", item, amount))
            for item in self._gets
            if self._fits(item)
            for amount in self._amounts
        ]
        held = self._held
        for item, recipe in self._crafts.items():
            if all(held.get(need, 0) >= n for need, n in recipe.needs) and self._fits(item, recipe):
                actions.append(self._spell(Step("craft", item, recipe.makes)))
        return sorted(actions) if self._brief else [*sorted(actions), "inventory"]

    def _spell(self, step: Step) -> str:
        if step.kind == "craft":
            return f"craft {step.item}" if self._brief else self._crafts[step.item].command
        if self._brief and step.amount == 1:
            return f"get {step.item}"
        return f"get {step.amount} {step.item}"

    def expert_plan(self) -> list[str] | None:
        return [self._spell(step) for step in self._book.plan(self._goal)]

    def corpus(self) -> list[str]:
        """Return every word that this environment can say or understand."""
        texts = [self.instructions, _BRIEF_WORDS if self._brief else _FULL_WORDS]
        for task in self.tasks("train")[:64]:
            texts.append(self.reset(options={"task": task})[0])
            texts += self.admissible_actions() or []
        book = self.book
        texts += sorted({name for item in book.recipes for name in book.closure(item)})
        texts += [recipe.command for recipe in book.recipes.values()]
        most = 9 if self._brief else MOST
        return [*texts, " ".join(map(str, range(most + 1)))]


def _counted(text: str) -> tuple[int | None, str]:
    """Split `"2 oak log"` into `(2, "oak log")`; the amount may be missing."""
    amount, _, item = text.partition(" ")
    if item and len(amount) <= 3 and amount.isascii() and amount.isdigit():
        return int(amount), item
    return None, text


def _same(recipe: Recipe, needs: str) -> bool:
    """Does `"2 plank, 1 stick"`, in any order, name what the recipe needs?"""
    named: dict[str, int] = {}
    for part in needs.split(","):
        amount, item = _counted(part.strip())
        named[item] = named.get(item, 0) + (1 if amount is None else amount)
    return named == dict(recipe.needs)


def _check_int(name: str, value: Any, least: int, most: int = 2**31) -> None:
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
