"""AgentGym's wire format, so that whoever trains on its servers can point at ours.

Numbers of tasks run over the training, the validation and the test tasks, in this order. Errors
that AgentGym's servers answer with status 200 and `{"error"}` are answered so; a wrong token, a
body that is too large and a full server have statuses of their own.
"""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from scalinginter.env.agentgym import Flavour
from scalinginter.serve.errors import RefusedError
from scalinginter.serve.guard import body_of, guards, json_response
from scalinginter.serve.service import EnvService
from scalinginter.types import Task

MAX_SEATS = 65_536  # numbers given by /create that are remembered
HARD = (401, 413, 429)  # refusals that keep their status


@dataclass(slots=True)
class _Seat:
    """What a number of /create stands for: it outlives its episodes."""

    session: str | None = None  # of the service
    observation: str = ""
    total: float = 0.0  # of the episode's rewards


def make_app(service: EnvService, token: str | None, flavour: Flavour) -> web.Application:
    """Make the application. With a token, every path needs it (a url's password will do)."""
    limits = service.limits
    app = web.Application(
        client_max_size=limits.max_body_bytes, middlewares=guards(token, limits.max_body_bytes)
    )
    table = AgentGymTable(service, flavour)

    def route(method: str, path: str, answer: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
        async def handle(request: web.Request) -> web.Response:
            body = await body_of(request) | dict(request.query)
            try:
                return json_response(await answer(body))
            except RefusedError as refused:
                if refused.status in HARD:
                    raise
                return json_response(refused.answer())

        app.router.add_route(method, path, handle)

    async def health(request: web.Request) -> web.Response:
        return json_response({"ok": True, "sessions": len(service.sessions)})

    app.router.add_get("/health", health)
    route("GET", "/", table.greeting)
    route("GET", "/info", service.info)
    route("POST", "/create", table.create)
    route("POST", "/reset", table.reset)
    route("POST", "/step", table.step)
    route("GET", "/observation", table.observation)
    route("POST", "/close", table.close)
    return app


class AgentGymTable:
    """The calls of AgentGym's servers on a service."""

    def __init__(self, service: EnvService, flavour: Flavour) -> None:
        self._service = service
        self._flavour = flavour
        self._tasks: list[Task] = [t for listed in service.served.tasks.values() for t in listed]
        self._numbers = itertools.count()
        self._seats: dict[int, _Seat] = {}

    async def greeting(self, body: dict[str, Any]) -> str:
        """Say what is served, and which numbers are which split."""
        said, start = [], 0
        for split, listed in self._service.served.tasks.items():
            said.append(f"{start} to {start + len(listed) - 1} {split}")
            start += len(listed)
        return f"This is environment {self._service.served.env_id}. Tasks: {', '.join(said)}."

    async def create(self, body: dict[str, Any]) -> Any:
        """Give a number; with an episode, where the flavour has one."""
        number = next(self._numbers)
        self._seats[number] = _Seat()
        while len(self._seats) > MAX_SEATS:
            await self._leave(self._seats.pop(next(iter(self._seats))))
        created = self._flavour.created
        if created == "number":
            return number
        if created == "object":
            return {self._flavour.session: number}
        return await self._start(number, number % len(self._tasks))

    async def reset(self, body: dict[str, Any]) -> Any:
        """Start an episode of the task with a number."""
        number, _ = self._seat(body)
        index = _number(body, self._flavour.index)
        if not 0 <= index < len(self._tasks):
            last = len(self._tasks) - 1
            raise RefusedError(
                400, f"{self._flavour.index} must be from 0 to {last}, got {index}; see GET /"
            )
        answer = await self._start(number, index)
        if self._flavour.reset == "text":
            return answer[self._flavour.observation]
        if self._flavour.reset == "pair":
            return [answer[self._flavour.observation], None]
        return answer

    async def step(self, body: dict[str, Any]) -> dict[str, Any]:
        """Act once."""
        number, seat = self._seat(body)
        if seat.session is None:
            raise RefusedError(409, f"environment {number} has no episode: POST /reset first")
        wanted = self._flavour.actions is not None
        call = {"session": seat.session, "action": body.get("action"), "admissible": wanted}
        answer = await self._service.step(call)
        over = answer["terminated"] or answer["truncated"]
        if over:
            seat.session = None
        seat.observation = answer["text"]
        seat.total += answer["reward"]
        return self._answer(seat, answer["reward"], over, answer["admissible"])

    async def observation(self, body: dict[str, Any]) -> str:
        """Return the last observation."""
        return self._seat(body)[1].observation

    async def close(self, body: dict[str, Any]) -> dict[str, Any]:
        """Forget a number and end its episode."""
        number, seat = self._seat(body)
        del self._seats[number]
        await self._leave(seat)
        return {"closed": True}

    async def _start(self, number: int, index: int) -> dict[str, Any]:
        seat = self._seats[number]
        await self._leave(seat)
        wanted = self._flavour.actions is not None
        body = {"task": self._tasks[index].id, "admissible": wanted}
        opened = await self._service.open(body)
        seat.session, seat.observation, seat.total = opened["session"], opened["text"], 0.0
        answer = self._answer(seat, 0.0, False, opened["admissible"])
        if self._flavour.task is not None:
            answer[self._flavour.task] = opened["instructions"]
        return {self._flavour.session: number} | answer

    async def _leave(self, seat: _Seat) -> None:
        key, seat.session = seat.session, None
        if key is not None:
            await self._service.close({"session": key})

    def _answer(
        self, seat: _Seat, reward: float, over: bool, actions: list[str] | None
    ) -> dict[str, Any]:
        flavour = self._flavour
        answer: dict[str, Any] = {
            flavour.observation: seat.observation,
            "reward": reward * flavour.scale,
            "score": seat.total * flavour.scale,
            flavour.done: over,
            "info": {},
        }
        if flavour.done == "terminated":
            answer["truncated"] = False
        if flavour.actions is not None:
            answer[flavour.actions] = actions or []
        return answer

    def _seat(self, body: dict[str, Any]) -> tuple[int, _Seat]:
        number = _number(body, self._flavour.session)
        if number not in self._seats:
            raise RefusedError(404, f"there is no environment {number}; POST /create gives one")
        return number, self._seats[number]


def _number(body: dict[str, Any], name: str) -> int:
    """Return a whole number; in a query it is text."""
    value = body.get(name)
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if type(value) is not int:
        got = "nothing" if value is None else repr(value)[:80]
        raise RefusedError(400, f"{name} must be a whole number, got {got}")
    return value
