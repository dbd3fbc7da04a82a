"""What an environment holds beside its episodes: task lists, texts, what its expert does.

An environment with `isolation = "process"` answers from a worker process of its own, which starts
with the first question: neither a hang nor a crash in native code reaches the trainer.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from scalinginter.env.base import Split
from scalinginter.env.host import EnvHost, ExpertEpisode, expert_call
from scalinginter.env.registry import make
from scalinginter.env.remote import WorkerProcess, end_workers
from scalinginter.env.worker import pack_task, unpack_expert
from scalinginter.errors import EnvironmentFailure, RunFailedError, UserError
from scalinginter.types import Task

LISTING_FACTOR = 10.0  # a task list or a corpus may take as long as this many resets

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class EnvCatalog:
    """Answers from outside any event loop; every answer is a function of the parameters.

    Args:
        env_id: Registry id, or "module:Class".
        params: The environment's own arguments.
        reset_timeout_s: Seconds that the expert may take for one task; ten times as long for a
            task list or the corpus. Inline environments have no deadline.
        want_admissible: Whether the expert's observations carry the admissible actions.
        run: Runs a coroutine to its end, e.g. `StopSignal.run`, which a signal interrupts.

    Raises `UserError` for an unknown environment, for wrong parameters and for what an environment
    tells the user, `RunFailedError` when it fails, dies or misses a deadline.
    """

    def __init__(
        self,
        env_id: str,
        params: dict[str, Any],
        *,
        reset_timeout_s: float = 120.0,
        want_admissible: bool = False,
        run: Run = asyncio.run,
    ) -> None:
        self._env_id = env_id
        self._greeting = {
            "reference": env_id,
            "params": params,
            "want_admissible": want_admissible,
        }
        self._reset_timeout_s = reset_timeout_s
        self._run = run
        self._worker: WorkerProcess | None = None
        self._tasks: dict[str, list[Task]] = {}
        env = make(env_id, **params)
        self.tools = tuple(env.tools())
        self._host = EnvHost(**self._greeting) if env.isolation == "inline" else None

    def tasks(self, split: Split) -> list[Task]:
        """Return the tasks of a split, in a fixed order; they are asked for once."""
        if split not in self._tasks:
            what, limit = f"tasks({split!r})", LISTING_FACTOR * self._reset_timeout_s
            if self._host is not None:
                found = self._ask(self._here(self._host.tasks, split))
            else:
                rows = self._ask(self._there(what, limit, "tasks", split))
                found = [Task(*fields) for fields in rows]
            if not found:
                raise UserError(
                    f"environment {self._env_id!r} has no tasks in the split {split!r}; "
                    "change environment.params"
                )
            self._tasks[split] = found
        return self._tasks[split]

    def corpus(self) -> list[str]:
        """Return texts that cover the environment's words."""
        if self._host is not None:
            return self._ask(self._here(self._host.corpus))
        return self._ask(self.corpus_meanwhile())

    async def corpus_meanwhile(self) -> list[str]:
        """Return the same inside an event loop, which goes on.

        Raises `EnvironmentFailure` where `corpus` raises `RunFailedError`.
        """
        if self._host is not None:
            return await asyncio.to_thread(self._host.corpus)
        limit = LISTING_FACTOR * self._reset_timeout_s
        return await self._there("corpus()", limit, "corpus")

    def expert(self, task: Task) -> ExpertEpisode | None:
        """Let the expert play a task, with seed 0; None if there is no plan."""
        if self._host is not None:
            return self._ask(self._here(self._host.expert, task))
        what, limit = expert_call(task), self._reset_timeout_s
        return unpack_expert(self._ask(self._there(what, limit, "expert", pack_task(task))))

    async def aclose(self) -> None:
        """End the worker process, within about half a second; a later question starts another."""
        if self._worker is not None:
            await end_workers([self._worker], "the catalog was closed")
            self._worker = None

    def _ask(self, answer: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._run(answer)
        except EnvironmentFailure as failure:
            hint = "raise environment.reset_timeout_s, or " if failure.timeout else ""
            raise RunFailedError(
                f"environment {self._env_id!r}: {failure}\n"
                f"{hint}check it with: scalinginter check-env {self._env_id}"
            ) from failure

    async def _here(self, question: Callable[..., Any], *arguments: Any) -> Any:
        return question(*arguments)

    async def _there(self, what: str, timeout_s: float, *message: Any) -> Any:
        if self._worker is None or self._worker.failure is not None:
            self._worker = WorkerProcess(self._greeting, lambda dead: None)
        return await self._worker.call(what, timeout_s, *message)
