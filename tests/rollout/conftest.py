"""Episodes of the toy environments with scripted answers."""

import asyncio

import pytest

from scalinginter.chat.renderer import Renderer
from scalinginter.config.schema import ChatConfig, RolloutConfig
from scalinginter.engine.scripted import ScriptedEngine
from scalinginter.env.pool import EnvPool
from scalinginter.env.registry import make
from scalinginter.model.tiny import make_tokenizer
from scalinginter.rollout.episode import EpisodeRunner, EpisodeSpec


@pytest.fixture(scope="session")
def renderer():
    """The renderer of a tiny tokenizer that knows the corridor's words."""
    return Renderer.for_tokenizer(make_tokenizer(make("toy_corridor").corpus()))


class Recording(ScriptedEngine):
    """A scripted engine that keeps the requests it was given and counts the episodes in play."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.requests, self.alive, self.most_alive = [], set(), 0

    def release(self, session):
        self.alive.discard(session)
        super().release(session)

    async def generate(self, request):
        self.requests.append(request)
        self.alive.add(request.session)
        self.most_alive = max(self.most_alive, len(self.alive))
        await asyncio.sleep(0)  # as an engine that takes its time
        return await super().generate(request)


@pytest.fixture
def spec():
    """Return a function that names an episode of a toy environment."""

    def make_spec(length=3, horizon=5, env="toy_corridor", index=0, **params):
        tasks = make(env, **params).tasks("train")
        task = next(t for t in tasks if t.required_turns == length)
        return EpisodeSpec(task, "group", index, 1, 2, horizon, 1.0)

    return make_spec


@pytest.fixture
def make_runner(renderer):
    """Return a function that makes a runner: scripted answers, one toy environment, limits."""

    def build(script, env="toy_corridor", chat=None, params=None, turn_timeout_s=5.0, **limits):
        pool = EnvPool(
            env,
            params or {},
            num_workers=1,
            turn_timeout_s=turn_timeout_s,
            reset_timeout_s=20.0,
            want_admissible=bool(chat and chat.constrain_to_admissible),
        )
        engine = Recording(script, encode=renderer.encode, max_context=4096)
        chat = chat or ChatConfig()
        return EpisodeRunner(pool, engine, renderer, chat, RolloutConfig(**limits))

    return build


@pytest.fixture
def play(make_runner):
    """Return a function that plays one episode to its end."""

    def run(script, spec, **options):
        runner = make_runner(script, **options)

        async def to_end():
            trajectory = await runner.run(spec)
            await runner.pool.aclose()
            return trajectory

        return asyncio.run(to_end()), runner.engine.requests

    return run


@pytest.fixture(scope="session")
def play_any(renderer):
    """Like `play`, for properties: a corridor that is never finished, one script."""
    pool = EnvPool(
        "toy_forced",
        {},
        num_workers=1,
        turn_timeout_s=5.0,
        reset_timeout_s=5.0,
        want_admissible=False,
    )
    task = make("toy_forced").tasks("train")[0]

    def run(script):
        engine = Recording(script, encode=renderer.encode, max_context=4096)
        limits = RolloutConfig(max_tokens_per_turn=6)
        runner = EpisodeRunner(pool, engine, renderer, ChatConfig(), limits)
        episode = EpisodeSpec(task, "group", 0, 1, 2, len(script), 1.0)
        return asyncio.run(runner.run(episode)), engine.requests

    return run
