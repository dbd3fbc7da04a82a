"""The engine contract: tokens in, tokens and log-probs out. `local`, `sglang` and `scripted`
implement it.

Services that take messages and return text implement `ChatEngine`: for evaluation only.
"""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from scalinginter.types import Completion, FinishReason


class Constraint(Protocol):
    """What the next token may be, given the tokens of this completion so far.

    A state is a number that means nothing to the engine; `start` is the one before the first token.
    """

    start: int

    def allowed(self, state: int) -> tuple[int, ...]:
        """Return the allowed ids in ascending order (at least one until a stop id was taken)."""
        ...

    def advance(self, state: int, token_id: int) -> int:
        """Return the state after `token_id`."""
        ...


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One turn's request."""

    session: str  # the episode: its KV cache is kept from turn to turn until `release`
    prompt_ids: list[int]  # the whole context, starting with what this session had before
    max_new_tokens: int
    seed: int  # token i of the answer is drawn with (seed, i): independent of the batch
    temperature: float = 1.0  # 0: greedy; log-probs are of the tempered distribution
    stop_ids: frozenset[int] = field(default_factory=frozenset)
    min_new_tokens: int = 0  # stop ids are not allowed before
    constraint: Constraint | None = None


@dataclass(slots=True)
class EngineStats:
    """Counters since the engine was made. Tokens, not bytes."""

    requests: int = 0
    forwarded_tokens: int = 0  # positions pushed through the model, padding included
    cached_tokens: int = 0  # prompt tokens served from a kept cache (own session's or shared)
    generated_tokens: int = 0


class Generator(Protocol):
    """What an episode asks of an engine. No top-p and no top-k: their log-probs are renormalised
    and would not be those of the policy that is trained."""

    max_context: int  # tokens that a prompt and its completion may have together

    async def generate(self, request: GenerateRequest) -> Completion:
        """Answer one request. Raises `EngineFailure` if it cannot, `ValueError` for a request
        that breaks the contract (a prompt over the context, an empty prompt)."""
        ...

    def release(self, session: str) -> None:
        """Forget an episode. Unknown sessions are fine."""
        ...


class Engine(Generator, Protocol):
    """Generates completions for many episodes at once, by the policy that is trained."""

    version: int  # of the weights that it samples from
    stats: EngineStats

    async def sync(self, version: int) -> dict[str, float]:
        """The policy's weights changed: bring them to where tokens are drawn, verify that they
        arrived, drop every cache, and answer under `version` from now on.

        Returns metrics: `sync/*`, and seconds as `time/sync_*`. Raises `RunFailedError` where the
        weights cannot be brought there or did not all arrive; `version` is in force even then, so
        that no answer of other weights is taken for one of these.
        """
        ...

    async def aclose(self) -> None:
        """Stop background work."""
        ...


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One turn's request as messages: `{"role": ..., "content": ...}` each, the first of them the
    system's."""

    messages: tuple[dict[str, str], ...]
    max_new_tokens: int  # as the service counts
    seed: int  # passed on; few services draw by it
    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What it says. The counts are the service's; 0 where it gives none."""

    text: str
    finish: FinishReason
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt
    generated_tokens: int = 0


@runtime_checkable
class ChatEngine(Protocol):
    """Answers conversations in text. Nothing says which ids were drawn, nor by which weights."""

    stats: EngineStats

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request. Raises `ContextFull` if the conversation is too long for the model,
        `EngineFailure` if it cannot be answered."""
        ...
