"""The environments of a recipe, one or several, each with its tasks and its full horizon."""

import asyncio
from collections.abc import Iterator

from scalinginter.chat.action import TURNS_LEFT
from scalinginter.chat.formats import answer_format
from scalinginter.config.schema import FamilyConfig, Recipe
from scalinginter.env.base import Split
from scalinginter.env.catalog import EnvCatalog, Run
from scalinginter.errors import UserError
from scalinginter.types import Task


class Family:
    """One environment of a recipe."""

    def __init__(self, config: FamilyConfig, catalog: EnvCatalog) -> None:
        self.config, self.catalog = config, catalog
        self.name = config.name

    def tasks(self, split: Split) -> list[Task]:
        """Return the tasks of a split whose required length the recipe asks for.

        Raises `UserError` if there are none.
        """
        tasks = self.catalog.tasks(split)
        if self.config.required_turns is None:
            return tasks
        least, most = self.config.required_turns
        kept = [t for t in tasks if t.required_turns and least <= t.required_turns <= most]
        if not kept:
            known = [t.required_turns for t in tasks if t.required_turns]
            there_are = f"{min(known)} to {max(known)} turns" if known else "no known lengths"
            raise UserError(
                f"environment {self.name!r} has no {split} task that needs {least} to {most} turns "
                f"(environment.required_turns); there are tasks of {there_are}"
            )
        return kept


class Families:
    """The environments of a recipe, in its order.

    Raises `UserError` for an unknown environment and for wrong parameters.
    """

    def __init__(self, recipe: Recipe, run: Run = asyncio.run) -> None:
        self._chat = recipe.chat
        self._families = {
            config.name: Family(
                config,
                EnvCatalog(
                    config.id,
                    config.params,
                    reset_timeout_s=config.reset_timeout_s,
                    want_admissible=recipe.chat.constrain_to_admissible,
                    run=run,
                ),
            )
            for config in recipe.families
        }

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())

    def __len__(self) -> int:
        return len(self._families)

    def __getitem__(self, name: str) -> Family:
        return self._families[name]

    @property
    def names(self) -> list[str]:
        return list(self._families)

    def corpus(self) -> list[str]:
        """Return texts that cover the words of all environments, and those of the chat itself."""
        texts = [text for family in self for text in family.catalog.corpus()]
        for family in self:
            form = answer_format(self._chat.format, family.catalog.tools, family.name)
            texts.append(form.instructions)
        return [*texts, TURNS_LEFT.format(observation="", left=0)]

    async def aclose(self) -> None:
        """End what the environments started."""
        for family in self:
            await family.catalog.aclose()
