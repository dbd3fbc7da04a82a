"""An engine that answers from a script: for experts, for evaluation, for tests of what is above."""

from collections.abc import Callable, Sequence

from scalinginter.engine.answer import Answer, check_request
from scalinginter.engine.base import EngineStats, GenerateRequest
from scalinginter.types import Completion

Script = Sequence[Sequence[int] | str] | Callable[[GenerateRequest], Sequence[int] | str]


class ScriptedEngine:
    """Implements `engine.base.Engine` without a model.

    A scripted policy is certain of what it says: every log-prob is 0. Its completions serve
    rollout, evaluation and supervised targets; a policy gradient on them would be that of another
    policy.

    Args:
        script: answers that each session gives in turn, starting again at the end; or a function
            from the request to an answer. An answer is ids, or text for `encode`. Where it holds
            no stop id, the smallest one of the request is put behind it.
        encode: text to ids; needed for answers that are text.
        max_context: as in `Engine`.
    """

    def __init__(
        self,
        script: Script,
        *,
        encode: Callable[[str], Sequence[int]] | None = None,
        max_context: int = 1 << 20,
    ) -> None:
        if not callable(script) and not script:
            raise ValueError("the script is empty; give one answer at least")
        self.version = 0
        self.stats = EngineStats()
        self.max_context = max_context
        self._script = script
        self._encode = encode
        self._turns: dict[str, int] = {}  # requests so far, by session

    async def generate(self, request: GenerateRequest) -> Completion:
        """See `Engine.generate`. Raises `ValueError` where the constraint forbids the script."""
        check_request(request, self.max_context)
        answer = Answer(request, self.version)
        script = self._answer(request)
        while answer.finish is None:
            at = len(answer.logprobs)
            if at == len(script):
                raise ValueError(
                    f"the scripted answer {script} has {at} ids; the request asks for "
                    f"{request.max_new_tokens}, or for one of the stop ids "
                    f"{sorted(request.stop_ids)} from position {request.min_new_tokens} on"
                )
            if answer.left is not None and script[at] not in answer.left:
                raise _forbidden(script, at, answer.left)
            answer.take(script[at], 0.0)
        completion = answer.completion()
        for at, (got, wanted) in enumerate(zip(completion.token_ids, script, strict=False)):
            if got != wanted:  # forced by the constraint
                raise _forbidden(script, at, (got,))
        self._turns[request.session] = self._turns.get(request.session, 0) + 1
        self.stats.requests += 1
        self.stats.generated_tokens += len(completion.token_ids)
        return completion

    def release(self, session: str) -> None:
        """See `Engine.release`; the session's next request gets the first answer again."""
        self._turns.pop(session, None)

    async def sync(self, version: int) -> dict[str, float]:
        """See `Engine.sync`; there are no weights."""
        self.version = version
        return {}

    async def aclose(self) -> None:
        """Nothing runs in the background."""

    def _answer(self, request: GenerateRequest) -> list[int]:
        if callable(self._script):
            said = self._script(request)
        else:
            said = self._script[self._turns.get(request.session, 0) % len(self._script)]
        if isinstance(said, str):
            if self._encode is None:
                raise ValueError("the script holds text; pass encode, text to ids")
            said = self._encode(said)
        ids = list(said)
        if request.stop_ids and request.stop_ids.isdisjoint(ids):
            ids.append(min(request.stop_ids))
        return ids


def _forbidden(script: list[int], at: int, allowed: tuple[int, ...]) -> ValueError:
    return ValueError(
        f"the constraint forbids the scripted answer {script}: "
        f"id {script[at]} at position {at}, allowed {list(allowed)}"
    )
