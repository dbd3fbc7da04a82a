"""SGLang servers as an engine.

generate() -> Answer --body--> the group's server --piece--> Answer ... until it is finished
                  ^                  |
                  |  retried         | lost: killed, hung, slow, stale weights
                  +--- elsewhere <---+---> watched, revived, given the present weights again

An answer is asked for in as many pieces as it takes: one that a server cut short (paused for new
weights, say) goes on from the ids that are there. Nothing is ever decoded and encoded again.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from scalinginter.engine.answer import Answer, check_request
from scalinginter.engine.base import EngineStats, GenerateRequest
from scalinginter.engine.sglang.grammar import ServerConstraint, to_ebnf
from scalinginter.engine.sglang.server import Server, ServerError
from scalinginter.engine.sglang.upkeep import QUICK_S, Upkeep
from scalinginter.engine.sglang.versions import grammar_stops
from scalinginter.engine.sglang.wire import Piece, generate_body, parse_piece
from scalinginter.errors import EngineFailure
from scalinginter.types import Completion

_ATTEMPTS = 4  # of one piece, each on a server that was usable when it was asked
_POLL_S = 0.5

T = TypeVar("T")


class SGLangEngine:
    """Implements `engine.base.Engine`.

    A request's seed is passed on, but SGLang draws by it only under its deterministic inference;
    else two runs differ. Log-probs are those of the tempered distribution, renormalised over the
    ids that a constraint allows.

    Args:
        upkeep: the servers.
        max_context: tokens that a prompt and its completion may have together.
        vocabulary: number of ids; another id in a prompt would bring a server down.
        request_timeout_s: of one answer.
    """

    def __init__(
        self,
        upkeep: Upkeep,
        *,
        max_context: int,
        vocabulary: int,
        request_timeout_s: float,
    ) -> None:
        self.version = 0
        self.stats = EngineStats()
        self.max_context = max_context
        self.num_retries = 0  # pieces that were asked for again
        self.upkeep = upkeep
        self._timeout_s, self._vocabulary = request_timeout_s, vocabulary
        self._pending: dict[str, asyncio.Task[Completion]] = {}  # by session
        self._numbers = itertools.count()
        self._aborts: set[asyncio.Task[None]] = set()

    async def generate(self, request: GenerateRequest) -> Completion:
        """See `Engine.generate`. One request at a time per session.

        Raises `UserError` if the servers cannot be started or are of the wrong kind.
        """
        check_request(request, self.max_context)
        strange = [i for i in request.prompt_ids if not 0 <= i < self._vocabulary]
        if strange:
            raise ValueError(f"id {strange[0]} is not among the {self._vocabulary} of the model")
        if request.session in self._pending:
            raise ValueError(f"session {request.session!r} already has a request in progress")
        task = asyncio.ensure_future(self._answer(request))
        self._pending[request.session] = task
        try:
            return await task
        except asyncio.CancelledError:
            if task.cancelled() and not _being_cancelled():
                name = request.session
                raise EngineFailure(
                    f"session {name!r} was released, or the engine closed"
                ) from None
            task.cancel()
            raise
        finally:
            del self._pending[request.session]

    def release(self, session: str) -> None:
        """See `Engine.release`; a request in progress fails."""
        task = self._pending.get(session)
        if task is not None:
            task.cancel()
        self.upkeep.fleet.release(session)

    async def start(self) -> None:
        """Start or find the servers, check them, and give them the policy's weights.

        Raises `UserError` for servers that do not come up or are not what is needed.
        """
        await self.upkeep.start(self.version)

    async def sync(self, version: int) -> dict[str, float]:
        """The policy's weights changed: bring them to the servers as `version`.

        Verified (`delivery`). A server that does not take them gets no more requests until it has;
        of answers in progress `engine.sync.pause` decides. Returns metrics. Raises
        `RunFailedError` if no server takes them.
        """
        self.version = version
        if not self.upkeep.started:
            await self.start()
            return {}
        metrics = await self.upkeep.push(version)
        return metrics | {
            "engine/retries": float(self.num_retries),
            "engine/lost_servers": float(self.upkeep.fleet.num_lost),
        }

    async def aclose(self) -> None:
        """Stop what was started; requests in progress fail."""
        for task in list(self._pending.values()):
            task.cancel()
        await asyncio.gather(*self._aborts, return_exceptions=True)
        await self.upkeep.aclose()

    async def _answer(self, request: GenerateRequest) -> Completion:
        if not self.upkeep.started:
            await self.start()
        stops: frozenset[int] = frozenset()
        if request.constraint is not None:
            stops = await self._grammar_stops(request)
            constraint = ServerConstraint(request.constraint, stops)
            request = replace(request, constraint=constraint)
        answer, versions = Answer(request, self.version), list[int]()
        if answer.finish is not None:  # every id was forced
            answer.cached = answer.prompt_length
        while answer.finish is None:
            piece = await self._piece(answer, stops)
            answer.cached += 0 if versions else piece.cached_tokens
            answer.forwarded += piece.prompt_tokens - piece.cached_tokens + len(piece.ids) - 1
            versions += [self.version] * (len(answer.logprobs) - len(versions))
            _take(answer, piece, [self._number(w) for w in piece.weights], versions)
        return self._counted(answer, versions)

    async def _grammar_stops(self, request: GenerateRequest) -> frozenset[int]:
        async def ask(server: Server, _: int | None) -> frozenset[int]:
            return await grammar_stops(server, request.stop_ids, timeout_s=QUICK_S)

        return await self._tried(request.session, ask)

    async def _piece(self, answer: Answer, stops: frozenset[int]) -> Piece:
        """Ask for the rest of an answer."""

        async def ask(server: Server, rank: int | None) -> Piece | None:
            body = self._body(answer, stops, server.weights or "")
            floor = self.upkeep.version_of(server.weights or "")
            if rank is not None:
                body["routed_dp_rank"] = rank
            piece = await self._ask(server, body)
            self._refuse_stale(server, piece, floor)
            return piece if piece.ids else None

        return await self._tried(answer.request.session, ask)

    async def _tried(
        self, session: str, ask: Callable[[Server, int | None], Awaitable[T | None]]
    ) -> T:
        """Ask the session's server; another one, or the same when it is back, where that fails.

        None from `ask`: the server cut the request before its first id, as when it is paused.
        """
        problem = "the server gave no ids"
        for _ in range(_ATTEMPTS):
            server, rank = await self.upkeep.fleet.take(session)
            try:
                found = await ask(server, rank)
            except ServerError as error:
                if error.refused:
                    raise EngineFailure(str(error)) from error
                problem = str(error)
                self.num_retries += 1
                self.upkeep.fleet.lost(server, problem)
                continue
            if found is not None:
                return found
            await asyncio.sleep(_POLL_S)
        raise EngineFailure(f"given up after {_ATTEMPTS} attempts: {problem}")

    def _body(self, answer: Answer, stops: frozenset[int], weights: str) -> dict[str, object]:
        request = answer.request
        ebnf = None
        if request.constraint is not None:
            ebnf = to_ebnf(request.constraint, answer.state, request.stop_ids, stops)
        rid = f"{self.upkeep.tag}-{next(self._numbers)}"
        return generate_body(
            request, answer.ids, len(answer.logprobs), rid=rid, weights=weights, ebnf=ebnf
        )

    async def _ask(self, server: Server, body: dict[str, object]) -> Piece:
        try:
            reply = await server.generate(body, timeout_s=self._timeout_s)
        except (asyncio.CancelledError, ServerError) as error:
            if isinstance(error, asyncio.CancelledError) or error.status is None:
                self._abort(server, body["rid"])
            raise
        try:
            return parse_piece(reply)
        except (ValueError, KeyError, TypeError) as error:
            raise ServerError(server.url, f"/generate: {error}") from error

    def _abort(self, server: Server, rid: object) -> None:
        """Tell a server that nobody waits for an answer any more."""

        async def tell() -> None:
            try:
                await server.post("/abort_request", {"rid": rid}, timeout_s=5.0)
            except ServerError:
                return  # then it does not work on the answer either

        task = asyncio.ensure_future(tell())
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    def _refuse_stale(self, server: Server, piece: Piece, floor: int | None) -> None:
        """Raise `ServerError` for ids of other weights than those in force meanwhile."""
        for name in piece.weights:
            version = self.upkeep.version_of(name)
            if version is None or floor is None or not floor <= version <= self.version:
                wanted = self.upkeep.present()
                raise ServerError(server.url, f"answered with weights {name!r}, not {wanted!r}")

    def _number(self, name: str) -> int:
        version = self.upkeep.version_of(name)
        assert version is not None  # _refuse_stale
        return version

    def _counted(self, answer: Answer, versions: list[int]) -> Completion:
        completion = answer.completion()
        versions += [self.version] * (len(completion.token_ids) - len(versions))
        changed = len(set(versions)) > 1
        self.stats.requests += 1
        self.stats.forwarded_tokens += completion.forwarded_tokens
        self.stats.cached_tokens += completion.cached_tokens
        self.stats.generated_tokens += len(completion.token_ids)
        return replace(
            completion,
            policy_version=min(versions, default=self.version),
            token_versions=tuple(versions) if changed else None,
        )


def _take(answer: Answer, piece: Piece, drawn_by: list[int], versions: list[int]) -> None:
    """Put the ids of a piece behind an answer, and the version of each.

    Ids that the constraint forces are put there by the answer itself; those of the piece must be
    the same. Raises `EngineFailure` for ids that the constraint forbids.
    """
    at = 0
    while at < len(piece.ids) and answer.finish is None:
        if answer.left is not None and piece.ids[at] not in answer.left:
            raise EngineFailure(f"id {piece.ids[at]} came, which the constraint does not allow")
        before = len(answer.logprobs)
        answer.take(piece.ids[at], piece.logprobs[at])
        added = answer.ids[answer.prompt_length + before :]
        theirs = piece.ids[at : at + len(added)]
        if added[: len(theirs)] != theirs:
            raise EngineFailure(f"ids {theirs} came where the constraint leaves {added} alone")
        versions += [drawn_by[at]] * len(added)
        at += len(added)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
