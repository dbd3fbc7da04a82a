"""`agentrl`: a task of an AgentRL worker (arXiv 2510.04206), as if it were here.

The worker's API, as the package `agentrl-worker` 0.4 has it:

    GET  /get_indices                              [0, 1, ...]
    POST /start_sample  {"index", "session_id"}    {"messages", "tools", "status", "reward", ...}
    POST /interact      {"session_id", "messages"} {"session_id", "env_out": the same fields}
    POST /cancel        {"session_id"}
"""

import secrets
from collections.abc import Sequence
from typing import Any, ClassVar

from environments.remote.agentrl_messages import (
    assistant_message,
    shown_text,
    system_text,
    tools_of,
)
from environments.remote.connection import (
    Address,
    HttpConnection,
    ServiceError,
    token_or_environment,
)
from environments.remote.parameters import check_timeouts, ranges_of, urls_of
from environments.remote.ring import Ring
from environments.remote.score import Score
from scalinginter.env.base import Isolation, Split, TextEnv, check_split
from scalinginter.errors import EnvironmentFailure, UserError
from scalinginter.types import Task, Tool

SCHEMES = ("http", "https")
CUSTOM = -1  # the index that stands for tasks which a client brings
RUNNING, COMPLETED = "running", "completed"
CUT = ("agent context limit", "task limit reached")
AGENTS_FAULT = ("agent validation failed", "agent invalid action")
SHARES = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}


class AgentRLEnv(TextEnv):
    """A task that an AgentRL worker plays: one sample an episode.

    Its messages are the observations; its system message is the instructions. An action that has
    the form of a tool's (see `tools`) is sent as a tool call, any other as the answer's text.

    Args:
        url: the worker's API, `http://host:5021/api`, or a list of them for one task.
        train, validation, test: which samples each split has, as [first, one past the last] of the
            worker's list of indices. None of the three: 80, 10 and 10 percent, in this order.
        scale: the sum of rewards that is a full success.
        success_threshold: share of `scale` that is a success and ends the episode.
        token: sent as a bearer token. None: the variable `SCALINGINTER_ENV_TOKEN`, if it is set.
        step_timeout_s, reset_timeout_s, connect_timeout_s: seconds that an answer may take.
    """

    isolation: ClassVar[Isolation] = "thread"

    def __init__(
        self,
        *,
        url: str | list[str],
        train: list[int] | None = None,
        validation: list[int] | None = None,
        test: list[int] | None = None,
        scale: float = 1.0,
        success_threshold: float = 1.0,
        token: str | None = None,
        step_timeout_s: float = 30.0,
        reset_timeout_s: float = 120.0,
        connect_timeout_s: float = 5.0,
    ) -> None:
        self._ranges = ranges_of({"train": train, "validation": validation, "test": test})
        if not scale > 0:
            raise UserError(f"scale must be above 0, got {scale!r}")
        if not 0 < success_threshold <= 1:
            raise UserError(f"success_threshold must be in (0, 1], got {success_threshold!r}")
        check_timeouts(step=step_timeout_s, reset=reset_timeout_s, connect=connect_timeout_s)
        self._scale, self._threshold = scale, success_threshold
        self._step_timeout_s, self._reset_timeout_s = step_timeout_s, reset_timeout_s
        token = token_or_environment(token)
        addresses = [Address(one, token, SCHEMES) for one in urls_of(url)]
        self._ring = Ring([HttpConnection(address, connect_timeout_s) for address in addresses])
        self._indices: list[int | str] | None = None
        self._session: tuple[HttpConnection, int] | None = None
        self._score = Score(scale, cumulative=False)
        self._system: str | None = None
        self._tools: tuple[Tool, ...] | None = None
        self._num_calls = 0

    @property
    def instructions(self) -> str:  # type: ignore[override]
        """What the worker's system message says, in the last episode or in the first sample."""
        if self._system is None:
            self._look()
        return self._system or ""

    def tools(self) -> Sequence[Tool]:
        if self._tools is None:
            self._look()
        return self._tools or ()

    def tasks(self, split: Split) -> Sequence[Task]:
        check_split(split)
        if self._indices is None:
            listed = self._asked_by_the_user("GET", "/get_indices", None)
            self._indices = [index for index in listed if index != CUSTOM]
        mine = self._range(split, len(self._indices))
        return [Task(f"{split}/{i:06d}", "agentrl", {"index": self._indices[i]}) for i in mine]

    def _range(self, split: Split, count: int) -> range:
        if not self._ranges:
            first, last = SHARES[split]
            return range(round(first * count), round(last * count))
        if split not in self._ranges:
            raise UserError(f"the parameter {split} must say which samples the {split} split has")
        if self._ranges[split].stop > count:
            raise UserError(
                f"{split} reaches to {self._ranges[split].stop}; the worker has {count} samples"
            )
        return self._ranges[split]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start a sample. The worker has no seeds. Raises `EnvironmentFailure`."""
        task: Task = (options or {}).get("task") or self.tasks("train")[0]
        self.release()
        session = secrets.randbits(52)
        body = {"index": task.data["index"], "session_id": session}
        worker, opened = self._ring.begin(
            lambda worker: self._call(worker, "/start_sample", body, self._reset_timeout_s)
        )
        if opened.get("status") != RUNNING:
            raise EnvironmentFailure(f"the sample of task {task.id!r} ended: {opened!r:.200}")
        self._session = worker, session
        self._score = Score(self._scale, cumulative=False)
        self._num_calls = 0
        self._learn(opened)
        return shown_text(opened["messages"]), {"task_id": task.id, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `EnvironmentFailure`."""
        if self._session is None:
            raise EnvironmentFailure("no episode is open: call reset first")
        worker, session = self._session
        self._num_calls += 1
        # A worker refuses an empty message.
        message = assistant_message(action or " ", self.tools(), f"call_{self._num_calls}")
        body = {"session_id": session, "messages": [message]}
        answer = self._call(worker, "/interact", body, self._step_timeout_s)["env_out"]
        status = answer["status"]
        if status != RUNNING:
            self._session = None
        if status not in (RUNNING, COMPLETED, *CUT, *AGENTS_FAULT):
            raise EnvironmentFailure(f"the sample ended with the status {status!r}")
        reward = self._score.take(answer["reward"])
        success = self._score.reached(self._threshold)
        terminated = success or status in (COMPLETED, *AGENTS_FAULT)
        truncated = not terminated and status in CUT
        return shown_text(answer["messages"]), reward, terminated, truncated, {"success": success}

    def release(self) -> None:
        """Cancel the sample, if it still runs: a worker has few places."""
        if self._session is None:
            return
        worker, session = self._session
        self._session = None
        try:
            worker.request("POST", "/cancel", {"session_id": session}, self._step_timeout_s)
        except (EnvironmentFailure, ServiceError):
            worker.close()

    def close(self) -> None:
        """Cancel the sample and close the connections."""
        self.release()
        for worker in self._ring.servers:
            worker.close()

    def _look(self) -> None:
        """Start the first sample to see the tools and the system message, and cancel it."""
        session = secrets.randbits(52)
        first = self.tasks("train")[0]
        body = {"index": first.data["index"], "session_id": session}
        self._learn(self._asked_by_the_user("POST", "/start_sample", body))
        self._asked_by_the_user("POST", "/cancel", {"session_id": session})

    def _learn(self, opened: dict[str, Any]) -> None:
        self._system = system_text(opened["messages"])
        if self._tools is None:  # fixed for an instance
            self._tools = tools_of(opened.get("tools"))

    def _call(
        self, worker: HttpConnection, path: str, body: Any, timeout_s: float
    ) -> dict[str, Any]:
        try:
            return worker.request("POST", path, body, timeout_s)
        except EnvironmentFailure:
            self._session = None
            raise
        except ServiceError as error:
            self._session = None
            said = error.said.get("detail", error)
            raise EnvironmentFailure(f"{path}: {said} (status {error.status})") from error

    def _asked_by_the_user(self, method: str, path: str, body: Any) -> Any:
        worker = self._ring.current
        try:
            return worker.request(method, path, body, self._reset_timeout_s)
        except EnvironmentFailure as error:
            raise UserError(
                f"{error}; start a worker with: python -m agentrl.worker NAME --config FILE"
            ) from error
        except ServiceError as error:
            said = error.said.get("detail", error)
            raise UserError(f"{path}: {said} (status {error.status})") from error
