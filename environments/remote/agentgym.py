"""`agentgym`: an environment of an AgentGym server (arXiv 2406.04151), as if it were here."""

from collections.abc import Sequence
from typing import Any, ClassVar

from environments.remote.connection import (
    Address,
    HttpConnection,
    ServiceError,
    token_or_environment,
)
from environments.remote.parameters import check_timeouts, ranges_of, urls_of
from environments.remote.ring import Ring
from environments.remote.score import Score
from scalinginter.env.agentgym import flavour_named
from scalinginter.env.base import Isolation, Split, TextEnv, check_split
from scalinginter.errors import EnvironmentFailure, UserError
from scalinginter.types import Task

SCHEMES = ("http", "https")


class AgentGymEnv(TextEnv):
    """An environment that an AgentGym server plays.

    An instance asks for a number once (`/create`) and plays one episode after another under it.
    Scores are scaled so that an episode's rewards sum to at most 1; reaching `success_threshold`
    is the success and ends the episode.

    Args:
        url: the server's address, or a list of them: the instances are spread over them.
        flavour: whose names it uses: see `scalinginter.env.agentgym.FLAVOURS`.
        train, validation, test: which numbers of tasks each split has, as [first, one past the
            last]. No two may overlap.
        scale: the best score, where it is not the flavour's.
        success_threshold: share of the best score that is a success.
        instructions: what the agent is told once. None: the flavour's actions.
        token: sent as a bearer token. None: the variable `SCALINGINTER_ENV_TOKEN`, if it is set.
        step_timeout_s, reset_timeout_s, connect_timeout_s: seconds that an answer may take.
    """

    isolation: ClassVar[Isolation] = "thread"

    def __init__(
        self,
        *,
        url: str | list[str],
        flavour: str,
        train: list[int] | None = None,
        validation: list[int] | None = None,
        test: list[int] | None = None,
        scale: float | None = None,
        success_threshold: float = 1.0,
        instructions: str | None = None,
        token: str | None = None,
        step_timeout_s: float = 30.0,
        reset_timeout_s: float = 120.0,
        connect_timeout_s: float = 5.0,
    ) -> None:
        self._flavour = flavour_named(flavour)
        self._ranges = ranges_of({"train": train, "validation": validation, "test": test})
        self._scale = self._flavour.scale if scale is None else scale
        if not self._scale > 0:
            raise UserError(f"scale must be above 0, got {scale!r}")
        if not 0 < success_threshold <= 1:
            raise UserError(f"success_threshold must be in (0, 1], got {success_threshold!r}")
        check_timeouts(step=step_timeout_s, reset=reset_timeout_s, connect=connect_timeout_s)
        self._threshold = success_threshold
        self._step_timeout_s, self._reset_timeout_s = step_timeout_s, reset_timeout_s
        urls, token = urls_of(url), token_or_environment(token)
        addresses = [Address(one, token, SCHEMES) for one in urls]
        self._ring = Ring([HttpConnection(address, connect_timeout_s) for address in addresses])
        self._number: tuple[HttpConnection, int] | None = None  # what /create gave, and where
        self._score: Score | None = None
        self._admissible: list[str] | None = None
        self.instructions = self._flavour.how if instructions is None else instructions

    def tasks(self, split: Split) -> Sequence[Task]:
        check_split(split)
        if split not in self._ranges:
            raise UserError(
                f"the parameter {split} must say which numbers of tasks the {split} split has, "
                f"as [first, one past the last]; e.g. {split}: [0, 400]"
            )
        return [Task(f"{split}/{i:07d}", "agentgym", {"index": i}) for i in self._ranges[split]]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode. The server has no seeds. Raises `EnvironmentFailure`."""
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        self._score = None
        if self._number is None:
            self._number = self._ring.begin(self._create)
        flavour = self._flavour
        body = {flavour.index: task.data["index"], **flavour.reset_fields}
        answer = self._post("/reset", body, self._reset_timeout_s)
        if isinstance(answer, list):
            server, number = self._number
            path = f"/observation?{flavour.session}={number}"
            answer = self._call(server, "GET", path, None, self._reset_timeout_s)
        fields = answer if isinstance(answer, dict) else {flavour.observation: answer}
        start = fields.get(flavour.score, 0.0) if flavour.cumulative else 0.0
        self._score = Score(self._scale, flavour.cumulative, start)
        self._admissible = fields.get(flavour.actions) if flavour.actions else None
        text = self._text(fields)
        if flavour.task is not None:
            text = f"{fields.get(flavour.task, '')}\n{text}".strip()
        return text, {"task_id": task.id, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `EnvironmentFailure`."""
        if self._score is None:
            raise EnvironmentFailure("no episode is open: call reset first")
        flavour = self._flavour
        fields = self._post("/step", {"action": action}, self._step_timeout_s)
        if not isinstance(fields, dict) or flavour.score not in fields:
            raise EnvironmentFailure(f"/step answered {fields!r:.200} without {flavour.score!r}")
        reward = self._score.take(fields[flavour.score])
        success = self._score.reached(self._threshold)
        over = success or bool(fields.get(flavour.done))
        truncated = not over and bool(fields.get("truncated"))
        self._admissible = fields.get(flavour.actions) if flavour.actions else None
        if over or truncated:
            self._score = None
        return self._text(fields), reward, over, truncated, {"success": success}

    def admissible_actions(self) -> list[str] | None:
        return self._admissible

    def close(self) -> None:
        """Give the number back, where the server has `/close`, and close the connections."""
        if self._number is not None:
            server, number = self._number
            try:
                body = {self._flavour.session: number}
                server.request("POST", "/close", body, self._step_timeout_s)
            except (EnvironmentFailure, ServiceError):  # not every server can
                pass
            self._number = None
        for server in self._ring.servers:
            server.close()

    def _create(self, server: HttpConnection) -> int:
        body = dict(self._flavour.create_fields)
        made = self._call(server, "POST", "/create", body, self._reset_timeout_s)
        number = made.get(self._flavour.session) if isinstance(made, dict) else made
        if type(number) is not int:
            raise EnvironmentFailure(
                f"/create answered {made!r:.200} without a number {self._flavour.session!r}; "
                "is it the right flavour?"
            )
        return number

    def _post(self, path: str, body: dict[str, Any], timeout_s: float) -> Any:
        assert self._number is not None, "a call before /create"
        server, number = self._number
        try:
            body = {self._flavour.session: number, **body}
            return self._call(server, "POST", path, body, timeout_s)
        except EnvironmentFailure:
            self._number = None  # the next episode starts with a new one
            raise

    def _call(
        self, server: HttpConnection, method: str, path: str, body: Any, timeout_s: float
    ) -> Any:
        try:
            answer = server.request(method, path, body, timeout_s)
        except ServiceError as error:
            message = f"{method} {path}: {error} (status {error.status})"
            raise EnvironmentFailure(message) from error
        if isinstance(answer, dict) and "error" in answer:
            raise EnvironmentFailure(f"{method} {path}: the server says {answer['error']!r:.300}")
        return answer

    def _text(self, fields: dict[str, Any]) -> str:
        text = fields.get(self._flavour.observation)
        if not isinstance(text, str):
            name = self._flavour.observation
            raise EnvironmentFailure(f"the answer {fields!r:.200} has no text {name!r}")
        return text
