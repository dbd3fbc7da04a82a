"""The calls of an environment server, whatever carries them: names and JSON objects in and out."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from scalinginter.env.base import SPLITS, Split
from scalinginter.env.catalog import EnvCatalog
from scalinginter.env.pool import EnvPool, Observation
from scalinginter.env.registry import make
from scalinginter.env.wire import (
    ENVIRONMENT_FAILED,
    ENVIRONMENT_TIMED_OUT,
    PAGE,
    PROTOCOL,
    task_fields,
    tool_fields,
)
from scalinginter.errors import EnvironmentFailure, UserError, nearest
from scalinginter.serve.errors import RefusedError
from scalinginter.serve.sessions import Limits, Sessions
from scalinginter.types import Task

Body = Mapping[str, Any]
Answer = dict[str, Any]

MOST_WAIT_S = 1.0  # between two looks for idle sessions


class ServedEnv:
    """What a server offers. Its tasks are listed once: a client names one, it cannot bring its own.

    Made outside any event loop. Raises `UserError` for an unknown environment, for wrong parameters
    and for what the environment tells the user, `RunFailedError` when it fails or hangs.
    """

    def __init__(self, env_id: str, params: dict[str, Any], reset_timeout_s: float) -> None:
        self.env_id, self.params = env_id, params
        self._reset_timeout_s = reset_timeout_s
        self._catalog = EnvCatalog(env_id, params, reset_timeout_s=reset_timeout_s)
        self.tasks: dict[Split, list[Task]] = {s: self._catalog.tasks(s) for s in SPLITS}
        self._by_id = {task.id: task for listed in self.tasks.values() for task in listed}
        self._corpus: list[str] | None = None
        self._lock = asyncio.Lock()

    def task(self, name: str) -> Task:
        """Return a task by its id. Raises `RefusedError` (404)."""
        if name not in self._by_id:
            raise RefusedError(404, f"there is no task {name[:80]!r}; GET /tasks lists them")
        return self._by_id[name]

    def about(self) -> Answer:
        """Return what `/info` says, without the limits."""
        env = make(self.env_id, **self.params)
        return {
            "protocol": PROTOCOL,
            "environment": self.env_id,
            "params": self.params,
            "instructions": env.instructions,
            "rules": env.rules,
            "tools": [tool_fields(tool) for tool in env.tools()],
            "num_tasks": {split: len(listed) for split, listed in self.tasks.items()},
        }

    async def corpus(self) -> list[str]:
        """Return the environment's texts, made once. Raises `EnvironmentFailure`."""
        async with self._lock:
            if self._corpus is None:
                self._corpus = await self._catalog.corpus_meanwhile()
            return self._corpus

    def pool(self, turn_timeout_s: float, num_workers: int) -> EnvPool:
        """Make the pool that plays; inline environments get threads there."""
        return EnvPool(
            self.env_id,
            self.params,
            num_workers=num_workers,
            turn_timeout_s=turn_timeout_s,
            reset_timeout_s=self._reset_timeout_s,
            want_admissible=False,
            inline_in_threads=True,
        )

    async def aclose(self) -> None:
        """End what lists and reads."""
        await self._catalog.aclose()


class EnvService:
    """One environment, many sessions. Every call takes and returns a JSON object.

    Raises `RefusedError` for what is asked wrongly, and where the environment failed (502, or 504
    for a missed deadline): the session is over then.
    """

    def __init__(self, served: ServedEnv, pool: EnvPool, limits: Limits) -> None:
        self.served = served
        self.sessions = Sessions(limits)
        self.limits = limits
        self._pool = pool
        self._about = served.about()
        self.calls: dict[str, Callable[[Body], Awaitable[Answer]]] = {
            "info": self.info,
            "tasks": self.page,
            "corpus": self.corpus,
            "open": self.open,
            "step": self.step,
            "admissible": self.admissible,
            "plan": self.plan,
            "close": self.close,
        }

    async def call(self, name: str, body: Body) -> Answer:
        """Carry out a call by its name."""
        if name not in self.calls:
            known = ", ".join(self.calls)
            hint = nearest(name, self.calls)
            raise RefusedError(400, f"unknown call {name[:40]!r}{hint}; there are: {known}")
        return await self.calls[name](body)

    async def info(self, body: Body) -> Answer:
        """Say what is served and under which limits."""
        limits = {"max_sessions": self.limits.max_sessions, "lease_s": self.limits.lease_s}
        return self._about | limits | {"sessions": len(self.sessions)}

    async def page(self, body: Body) -> Answer:
        """Return a page of the tasks of a split."""
        split = body.get("split")
        if split not in SPLITS:
            raise RefusedError(400, f"split must be one of {', '.join(SPLITS)}; got {split!r}")
        start = _whole(body, "start", 0)
        listed = self.served.tasks[split]
        page = [task_fields(task) for task in listed[start : start + PAGE]]
        return {"tasks": page, "total": len(listed)}

    async def corpus(self, body: Body) -> Answer:
        """Return texts that cover the environment's words."""
        return {"texts": await _asked(self.served.corpus())}

    async def open(self, body: Body) -> Answer:
        """Start an episode."""
        task = self.served.task(_text(body, "task"))
        seed, horizon = _whole(body, "seed", 0), _whole(body, "horizon", 0)
        with self.sessions.slot():
            session = await _asked(self._pool.open(task, seed=seed, horizon=horizon))
            key = self.sessions.add(session)
        answer = {
            "session": key,
            "lease_s": self.limits.lease_s,
            "instructions": session.opening.instructions,
            "rules": session.opening.rules,
            "text": session.first.text,
            "admissible": None,
        }
        if body.get("admissible"):
            answer["admissible"] = (await self.admissible({"session": key}))["actions"]
        return answer

    async def step(self, body: Body) -> Answer:
        """Act once; with `admissible` true, also say what is accepted after that."""
        action = _text(body, "action")
        observation = await self._ask(body, lambda session: session.step(action))
        answer = observation_fields(observation)
        if observation.terminated or observation.truncated:
            await self.sessions.close(body["session"], "its episode ended")
        elif body.get("admissible"):
            answer["admissible"] = (await self.admissible(body))["actions"]
        return answer

    async def admissible(self, body: Body) -> Answer:
        """Say which actions are accepted now."""
        return {"actions": await self._ask(body, lambda s: s.ask("admissible_actions"))}

    async def plan(self, body: Body) -> Answer:
        """Return the expert's plan; to be asked before the first step."""
        return {"actions": await self._ask(body, lambda s: s.ask("expert_plan"))}

    async def close(self, body: Body) -> Answer:
        """End a session. One that is gone already is fine."""
        return {"closed": await self.sessions.close(_text(body, "session"), "it was closed")}

    async def reap_for_ever(self) -> None:
        """Close idle sessions, until cancelled."""
        while True:
            await asyncio.sleep(min(MOST_WAIT_S, self.limits.lease_s / 4))
            await self.sessions.reap()

    async def aclose(self) -> None:
        """Close the sessions and the environments."""
        await self.sessions.close_all()
        await self._pool.aclose()
        await self.served.aclose()

    async def _ask(self, body: Body, question: Callable[[Any], Awaitable[Any]]) -> Any:
        key = _text(body, "session")
        with self.sessions.borrow(key) as session:
            try:
                return await _asked(question(session))
            except RefusedError as refused:
                await self.sessions.close(key, str(refused))
                raise


def observation_fields(observation: Observation) -> Answer:
    """Return an observation as a JSON object."""
    admissible = observation.admissible
    return {
        "text": observation.text,
        "reward": observation.reward,
        "terminated": observation.terminated,
        "truncated": observation.truncated,
        "success": observation.success,
        "admissible": None if admissible is None else list(admissible),
    }


async def _asked(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except UserError as error:  # a package or a file is missing there
        raise RefusedError(ENVIRONMENT_FAILED, f"the environment says: {error}") from error
    except EnvironmentFailure as failure:
        status = ENVIRONMENT_TIMED_OUT if failure.timeout else ENVIRONMENT_FAILED
        sentence = f"the environment failed: {failure}"
        raise RefusedError(status, sentence, collateral=failure.collateral) from failure


def _text(body: Body, name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise RefusedError(400, f"{name} must be a string, got {_shown(value)}")
    return value


def _whole(body: Body, name: str, default: int) -> int:
    value = body.get(name, default)
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise RefusedError(
            400, f"{name} must be a whole number from 0 to 2**64 - 1, got {_shown(value)}"
        )
    return value


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:80]
