"""Everything between a recipe and an episode where a service answers: for evaluation only."""

from scalinginter.config.schema import Recipe
from scalinginter.engine.openai.client import OpenAIEngine
from scalinginter.env.pool import EnvPool
from scalinginter.rollout.collect import Collector
from scalinginter.rollout.episode import EpisodeRunner
from scalinginter.rollout.family import Families
from scalinginter.rollout.stack import make_collector, make_pool


class ChatStack:
    """Environments, and a model that is asked by messages. There is no policy and no tokenizer.

    An episode has one request at a time, so `engine.max_concurrent` bounds the episodes.
    """

    def __init__(self, recipe: Recipe, families: Families) -> None:
        """Raises `UserError` if the service's key is not there."""
        self.engine = OpenAIEngine(recipe.engine)
        self._recipe, self._families = recipe, families
        self._pools: list[EnvPool] = []

    async def start(self) -> None:
        """Ask for one answer. Raises `UserError` if the service cannot be used."""
        limit, temperature = self._recipe.rollout.max_tokens_per_turn, self._recipe.eval.temperature
        await self.engine.start(limit, temperature)

    def collector(self) -> Collector:
        """Make a collector with environment instances of its own."""
        recipe, runners = self._recipe, dict[str, EpisodeRunner]()
        for family in self._families:
            pool = make_pool(recipe, family.config)
            self._pools.append(pool)
            runners[family.name] = EpisodeRunner(
                pool, self.engine, None, recipe.chat, recipe.rollout
            )
        return make_collector(recipe, runners, at_most=recipe.engine.max_concurrent)

    async def aclose(self) -> None:
        """Close the connections and the environments."""
        await self.engine.aclose()
        await self._families.aclose()
        for pool in self._pools:
            await pool.aclose()
