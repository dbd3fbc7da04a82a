"""What an episode says to its engine: ids that are appended to, or messages where none exist."""

from dataclasses import dataclass
from typing import Protocol

from scalinginter.chat.renderer import Renderer
from scalinginter.engine.base import (
    ChatEngine,
    ChatRequest,
    Constraint,
    GenerateRequest,
    Generator,
)
from scalinginter.types import Completion, FinishReason

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Prompt:
    """How one turn's answer is drawn."""

    max_new_tokens: int
    seed: int
    temperature: float
    constraint: Constraint | None


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, and what was appended to the context to get it."""

    text: str
    completion: Completion
    context_ids: tuple[int, ...] = ()
    forked: bool = False


class Dialogue(Protocol):
    """One episode's conversation, which knows how it is put to its engine.

    `next_ids`, `next_forked`: what the next turn would append, as in `Trajectory`.
    """

    next_ids: tuple[int, ...]
    next_forked: bool

    def fits(self, max_new_tokens: int) -> bool:
        """Whether the prompt as it would be sent leaves room for an answer of this length."""
        ...

    async def ask(self, prompt: Prompt) -> Said:
        """Get the next answer."""
        ...

    def go_on(self, said: Said, observation: str) -> None:
        """Append the answer and what came back."""
        ...

    def close(self) -> None:
        """The episode is over."""
        ...


class TokenDialogue:
    """Ids. The context is append-only: sampled ids are never decoded and encoded again."""

    def __init__(
        self,
        engine: Generator,
        renderer: Renderer,
        messages: list[Message],
        *,
        session: str,
        max_context: int,
    ) -> None:
        self.next_ids: tuple[int, ...] = ()
        self.next_forked = False
        self._engine, self._renderer, self._session = engine, renderer, session
        self._max_context = max_context
        self._messages = list(messages)
        self._context: list[int] = []
        self._appended, self._forked = renderer.opening(messages), False

    def fits(self, max_new_tokens: int) -> bool:
        """See `Dialogue`."""
        return len(self._context) + len(self._appended) + max_new_tokens <= self._max_context

    async def ask(self, prompt: Prompt) -> Said:
        """See `Dialogue`."""
        self._context += self._appended
        completion = await self._engine.generate(
            GenerateRequest(
                session=self._session,
                prompt_ids=list(self._context),
                max_new_tokens=prompt.max_new_tokens,
                seed=prompt.seed,
                temperature=prompt.temperature,
                stop_ids=self._renderer.stop_ids,
                constraint=prompt.constraint,
            )
        )
        text = self._renderer.decode(completion.token_ids)
        return Said(text, completion, tuple(self._appended), self._forked)

    def go_on(self, said: Said, observation: str) -> None:
        """See `Dialogue`."""
        self._context += said.completion.token_ids
        self._messages += _exchange(said, observation)
        self._forked = self._renderer.must_fork(self._messages)
        if self._forked:
            self._context, self._appended = [], self._renderer.fork(self._messages)
        else:
            ended = said.completion.finish is FinishReason.STOP
            self._appended = self._renderer.extend(observation, ended)
        self.next_ids = tuple(self._appended) if self.fits(0) else ()
        self.next_forked = self._forked

    def close(self) -> None:
        """See `Dialogue`."""
        self._engine.release(self._session)


class ChatDialogue:
    """Messages, for a service that returns text: its answers have no ids.

    The service alone knows how long a prompt is: one that is too long is refused there
    (`ContextFull`).
    """

    def __init__(self, engine: ChatEngine, messages: list[Message]) -> None:
        self.next_ids: tuple[int, ...] = ()
        self.next_forked = False
        self._engine, self._messages = engine, list(messages)

    def fits(self, max_new_tokens: int) -> bool:
        """See `Dialogue`."""
        return True

    async def ask(self, prompt: Prompt) -> Said:
        """See `Dialogue`."""
        answer = await self._engine.chat(
            ChatRequest(
                tuple(self._messages), prompt.max_new_tokens, prompt.seed, prompt.temperature
            )
        )
        new_tokens = answer.prompt_tokens - answer.cached_tokens + answer.generated_tokens
        completion = Completion(
            token_ids=(),
            logprobs=(),
            forced=(),
            allowed=(),
            finish=answer.finish,
            policy_version=0,
            forwarded_tokens=new_tokens,
            cached_tokens=answer.cached_tokens,
            counted_tokens=answer.generated_tokens,
        )
        return Said(answer.text, completion)

    def go_on(self, said: Said, observation: str) -> None:
        """See `Dialogue`."""
        self._messages += _exchange(said, observation)

    def close(self) -> None:
        """See `Dialogue`; the service keeps nothing."""


def _exchange(said: Said, observation: str) -> list[Message]:
    return [
        {"role": "assistant", "content": said.text},
        {"role": "user", "content": observation},
    ]
