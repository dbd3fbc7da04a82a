"""The engine in this process: continuous batching over a `transformers` model.

generate() -> waiting --admit--> running --+--> one forward pass of all that is pending
                                    ^      |
                                    |      v
                                    +-- one draw each -- done -> the caller's future
"""

import asyncio
import math
from collections.abc import Callable

import torch
from transformers import PreTrainedModel

from scalinginter.engine.answer import Answer, check_request
from scalinginter.engine.base import EngineStats, GenerateRequest
from scalinginter.engine.packed import PackedForward
from scalinginter.engine.recompute import RecomputeForward
from scalinginter.engine.sampling import choose, uniforms
from scalinginter.errors import EngineFailure
from scalinginter.model.load import copy_weights
from scalinginter.types import Completion

_QUIET_TURNS = 3  # turns of the event loop without a new request, before a pass is put together
_POLL_S = 0.0005  # how often environments in other processes are asked whether they are done


class LocalEngine:
    """Implements `engine.base.Engine`.

    Args:
        model: a causal language model; generation runs where it is, under its present weights.
        packed: `attention.prepare(model)` succeeded. Otherwise whole contexts are recomputed.
        max_context: tokens that a prompt and its completion may have together.
        max_batch_tokens: most tokens of one forward pass; longer prompts are cut in chunks.
        max_sessions: most sessions whose cache is kept; more of them wait or lose their cache.
        pad_id: any id of the vocabulary; fills the rows of the path that is not packed.
        busy: number of environment calls that are still running. While it is above 0 no pass
            starts, so that what runs together does not depend on timing. None: never wait.
        source: the model that is trained, where `model` is a copy of it: `sync` copies its
            weights, and it may be updated while this engine generates. None: `model` is trained.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        packed: bool,
        max_context: int,
        max_batch_tokens: int = 8192,
        max_sessions: int = 1024,
        pad_id: int = 0,
        busy: Callable[[], int] | None = None,
        source: PreTrainedModel | None = None,
    ) -> None:
        self.version = 0
        self.stats = EngineStats()
        self.max_context = max_context
        self._model, self._source = model, source
        self._busy = busy
        self._forward: PackedForward | RecomputeForward = (
            PackedForward(model, max_batch_tokens=max_batch_tokens, max_sessions=max_sessions)
            if packed
            else RecomputeForward(model, max_batch_tokens=max_batch_tokens, pad_id=pad_id)
        )
        self._waiting: list[Answer] = []
        self._running: list[Answer] = []
        self._pending: dict[str, tuple[Answer, asyncio.Future[Completion]]] = {}  # by session
        self._driver: asyncio.Task[None] | None = None

    @property
    def model(self) -> PreTrainedModel:
        """What it samples from."""
        return self._model

    @property
    def load(self) -> int:
        """Requests in progress."""
        return len(self._pending)

    @property
    def forks(self) -> int:
        """Prompts so far that did not start with what their session had in the cache."""
        return self._forward.forks

    async def generate(self, request: GenerateRequest) -> Completion:
        """See `Engine.generate`. One request at a time per session."""
        check_request(request, self.max_context)
        if request.session in self._pending:
            raise ValueError(f"session {request.session!r} already has a request in progress")
        answer = Answer(request, self.version)
        if answer.finish is not None:  # every id was forced
            answer.cached = answer.prompt_length
            return self._counted(answer)
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._pending[request.session] = answer, future
        self._waiting.append(answer)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        try:
            return await future
        finally:
            del self._pending[request.session]

    def release(self, session: str) -> None:
        """See `Engine.release`; a request in progress fails."""
        self._fail(session, EngineFailure(f"session {session!r} was released while it answered"))
        self._forward.close(session)

    async def sync(self, version: int) -> dict[str, float]:
        """See `Engine.sync`. Without a `source` it samples from the learner's own weights, and
        nothing travels."""
        if self._source is not None:
            copy_weights(self._source, self._model)
        self.set_version(version)
        return {}

    def set_version(self, version: int) -> None:
        """Drop every cache; answers in progress go on, their contexts forwarded anew."""
        self.version = version
        for answer in [*self._running, *self._waiting]:
            answer.version = version
        # The learner wants the memory back on a GPU; on a CPU fresh pages would cost time.
        self._restart(free_memory=self._model.device.type == "cuda")

    async def aclose(self) -> None:
        """Stop the driver; requests in progress fail."""
        for session in list(self._pending):
            self._fail(session, EngineFailure("the engine was closed"))
        if self._driver is not None:
            self._driver.cancel()
            await asyncio.gather(self._driver, return_exceptions=True)
        self._waiting.clear()
        self._restart(free_memory=True)
        self._running.clear()
        self._waiting.clear()

    async def _drive(self) -> None:
        was_training = self._model.training
        try:
            await self._serve()
        finally:
            self._model.train(was_training)

    async def _serve(self) -> None:
        while self._waiting or self._running:
            await self._settle()
            if self._model.training:  # dropout off; a learner may have switched it on meanwhile
                self._model.eval()
            try:
                self._step()
            except Exception as error:  # a caller must never wait for an answer that cannot come
                self._restart(free_memory=True)
                for answer in self._waiting:
                    self._fail(answer.request.session, EngineFailure(f"{error!r}"), error)
                self._waiting.clear()

    async def _settle(self) -> None:
        """Let every episode that can go on go on, so that its next request joins this pass."""
        quiet = 0
        while quiet < _QUIET_TURNS:
            before = len(self._waiting)
            await asyncio.sleep(0)
            if self._busy is not None and self._busy() > 0:
                quiet = 0
                await asyncio.sleep(_POLL_S)
            else:
                quiet = quiet + 1 if len(self._waiting) == before else 0

    @torch.inference_mode()
    def _step(self) -> None:
        """One forward pass and one draw for every answer whose context is complete."""
        self._drop_abandoned()
        self._admit()
        if not self._running:
            return
        logits, rows = self._forward.forward(self._running)
        if rows:
            self._draw(logits, rows)

    def _draw(self, logits: torch.Tensor, rows: list[tuple[Answer, int]]) -> None:
        answers = [answer for answer, _ in rows]
        requests = [answer.request for answer in answers]
        ids, logprobs = choose(
            logits,
            [row for _, row in rows],
            [answer.left for answer in answers],
            [request.temperature for request in requests],
            uniforms([r.seed for r in requests], [len(a.logprobs) for a in answers]),
        )
        if not all(map(math.isfinite, logprobs)):
            raise EngineFailure("the model's logits are not finite; the weights have blown up")
        for answer, token_id, logprob in zip(answers, ids, logprobs, strict=True):
            answer.take(token_id, logprob)
            if answer.finish is not None:
                self._finish(answer)
        self._running = [answer for answer in self._running if answer.finish is None]

    def _admit(self) -> None:
        """Move waiting answers to the running ones, in an order that timing cannot change."""
        self._waiting.sort(key=lambda answer: answer.request.session)
        left = [answer for answer in self._waiting if not self._open(answer)]
        self._waiting = left

    def _open(self, answer: Answer) -> bool:
        opened = self._forward.open(answer)
        if opened:
            self._running.append(answer)
        return opened

    def _drop_abandoned(self) -> None:
        """Forget answers whose callers were cancelled or released."""
        for answers in (self._waiting, self._running):
            for answer in [a for a in answers if self._is_abandoned(a)]:
                answers.remove(answer)
                self._forward.pause(answer.request.session)

    def _is_abandoned(self, answer: Answer) -> bool:
        owner, future = self._pending.get(answer.request.session, (None, None))
        return owner is not answer or future is None or future.done()

    def _finish(self, answer: Answer) -> None:
        self._forward.pause(answer.request.session)
        _, future = self._pending[answer.request.session]
        future.set_result(self._counted(answer))

    def _counted(self, answer: Answer) -> Completion:
        completion = answer.completion()
        self.stats.requests += 1
        self.stats.forwarded_tokens += completion.forwarded_tokens
        self.stats.cached_tokens += completion.cached_tokens
        self.stats.generated_tokens += len(completion.token_ids)
        return completion

    def _fail(
        self, session: str, failure: EngineFailure, cause: BaseException | None = None
    ) -> None:
        _, future = self._pending.get(session, (None, None))
        if future is not None and not future.done():
            failure.__cause__ = cause
            future.set_exception(failure)

    def _restart(self, *, free_memory: bool) -> None:
        """Forget every cache; running answers wait to be opened again."""
        self._forward.reset(free_memory=free_memory)
        self._waiting = self._running + self._waiting
        self._running = []
