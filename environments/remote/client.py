"""`remote`: an environment of a `scalinginter serve-env` server, as if it were here."""

from collections.abc import Sequence
from typing import Any, ClassVar

from environments.remote.connection import ServiceError, token_or_environment
from environments.remote.parameters import check_timeouts, urls_of
from environments.remote.ring import Ring
from environments.remote.server import Server
from scalinginter.env.base import Isolation, Split, TextEnv, check_split
from scalinginter.env.wire import PROTOCOL, read_task, read_tool
from scalinginter.errors import EnvironmentFailure, UserError
from scalinginter.types import Task, Tool

TIMED_OUT = 504


class RemoteEnv(TextEnv):
    """An environment that a server plays; the answers are the server's, to the byte.

    A reset goes to the next server where one cannot be reached or is full. Where none can, and
    where a step fails, it is an `EnvironmentFailure`.

    Args:
        url: the server's address, `http://host:port` or `ws://host:port` (also https, wss); or a
            list of them: the episodes are spread over servers of one environment.
        token: what the servers want to be shown. None: the environment variable
            `SCALINGINTER_ENV_TOKEN`, which does not end up in a recipe.
        step_timeout_s: seconds that one answer may take.
        reset_timeout_s: seconds that a reset, a task list or the corpus may take.
        connect_timeout_s: seconds that connecting may take.
    """

    isolation: ClassVar[Isolation] = "thread"

    def __init__(
        self,
        *,
        url: str | list[str],
        token: str | None = None,
        step_timeout_s: float = 30.0,
        reset_timeout_s: float = 120.0,
        connect_timeout_s: float = 5.0,
    ) -> None:
        check_timeouts(step=step_timeout_s, reset=reset_timeout_s, connect=connect_timeout_s)
        self._step_timeout_s, self._reset_timeout_s = step_timeout_s, reset_timeout_s
        token = token_or_environment(token)
        self._ring = Ring([Server(one, token, connect_timeout_s) for one in urls_of(url)])
        self._info: dict[str, Any] = {}
        self._tasks: dict[str, list[Task]] = {}
        self._session: tuple[Server, str] | None = None
        self._texts: tuple[str, str] | None = None  # instructions and rules of the episode
        self._wanted = False  # somebody looks at the admissible actions: have them sent along
        self._admissible: list[str] | None = None
        self._known = False

    @property
    def instructions(self) -> str:  # type: ignore[override]
        """What the server says the agent is told once."""
        return self._texts[0] if self._texts else self._about()["instructions"]

    @property
    def rules(self) -> str:
        return self._texts[1] if self._texts else self._about()["rules"]

    def tools(self) -> Sequence[Tool]:
        return tuple(read_tool(fields) for fields in self._about()["tools"])

    def tasks(self, split: Split) -> Sequence[Task]:
        check_split(split)
        if split not in self._tasks:
            self._about()
            found: list[Task] = []
            while True:
                page = self._ask("tasks", {"split": split, "start": len(found)})
                found += [read_task(fields) for fields in page["tasks"]]
                if len(found) >= page["total"] or not page["tasks"]:
                    break
            self._tasks[split] = found
        return self._tasks[split]

    def corpus(self) -> list[str]:
        return self._ask("corpus", {})["texts"]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode. Raises `EnvironmentFailure`."""
        options = options or {}
        task: Task = options.get("task") or self.tasks("train")[0]
        self.release()
        self._texts = None
        body = {
            "task": task.id,
            "seed": seed or 0,
            "horizon": options.get("horizon", 0),
            "admissible": self._wanted,
        }
        server, opened = self._ring.begin(
            lambda server: self._call(server, "open", body, self._reset_timeout_s)
        )
        self._session = server, opened["session"]
        self._texts = opened["instructions"], opened["rules"]
        self._remember(opened)
        return opened["text"], {"task_id": task.id, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. Raises `EnvironmentFailure`."""
        server, key = self._open_session()
        body = {"session": key, "action": action, "admissible": self._wanted}
        answer = self._call(server, "step", body, self._step_timeout_s)
        self._remember(answer)
        flags = answer["terminated"], answer["truncated"]
        if any(flags):  # the server has closed the session
            self._session = None
        return answer["text"], answer["reward"], *flags, {"success": answer["success"]}

    def admissible_actions(self) -> list[str] | None:
        if not self._known:
            self._admissible = self._of_session("admissible")
            self._known = self._wanted = True
        return self._admissible

    def expert_plan(self) -> list[str] | None:
        return self._of_session("plan")

    def release(self) -> None:
        """Close the session. One that cannot be closed ends with its lease."""
        if self._session is None:
            return
        server, key = self._session
        self._session = None
        try:
            server.call("close", {"session": key}, self._step_timeout_s)
        except (EnvironmentFailure, ServiceError):
            server.close()

    def close(self) -> None:
        """End the episode and close the connections."""
        self.release()
        for server in self._ring.servers:
            server.close()

    def _remember(self, answer: dict[str, Any]) -> None:
        self._admissible, self._known = answer["admissible"], self._wanted

    def _of_session(self, name: str) -> list[str] | None:
        server, key = self._open_session()
        return self._call(server, name, {"session": key}, self._step_timeout_s)["actions"]

    def _open_session(self) -> tuple[Server, str]:
        if self._session is None:
            raise EnvironmentFailure("no episode is open: call reset first")
        return self._session

    def _call(
        self, server: Server, name: str, body: dict[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        try:
            return server.call(name, body, timeout_s)
        except EnvironmentFailure:
            self._session = None  # nobody knows what became of it; its lease ends it
            raise
        except ServiceError as error:
            raise EnvironmentFailure(
                f"{server.address.shown}: {error} (status {error.status})",
                timeout=error.status == TIMED_OUT,
                collateral=bool(error.said.get("collateral")),
            ) from error

    def _about(self) -> dict[str, Any]:
        """Return what the servers say of themselves; they must all say the same."""
        if not self._info:
            found = [self._first_words(server) for server in self._ring.servers]
            for server, info in zip(self._ring.servers, found, strict=True):
                for name in ("environment", "params", "num_tasks"):
                    if info[name] != found[0][name]:
                        raise UserError(
                            f"the servers differ in {name}: "
                            f"{self._ring.servers[0].address.shown} serves {found[0][name]!r}, "
                            f"{server.address.shown} {info[name]!r}; start them alike"
                        )
            self._info = found[0]
        return self._info

    def _first_words(self, server: Server) -> dict[str, Any]:
        info = self._said(server, "info", {})
        if not isinstance(info, dict) or info.get("protocol") != PROTOCOL:
            got = info.get("protocol") if isinstance(info, dict) else None
            raise UserError(
                f"{server.address.shown} speaks protocol {got!r}, this client {PROTOCOL}; start it "
                "with `scalinginter serve-env` of this version, or use the environment `agentgym` "
                "or `agentrl`"
            )
        return info

    def _ask(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._said(self._ring.current, name, body)

    def _said(self, server: Server, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return an answer that is asked for before anything is played: the user is there."""
        try:
            return server.call(name, body, self._reset_timeout_s)
        except EnvironmentFailure as error:
            raise UserError(
                f"{error}; start a server with: scalinginter serve-env ID --port "
                f"{server.address.port}"
            ) from error
        except ServiceError as error:
            hint = "; set SCALINGINTER_ENV_TOKEN" if error.status == 401 else ""
            raise UserError(f"{server.address.shown}: {error}{hint}") from error
