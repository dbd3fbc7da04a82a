"""Messages to token ids, such that appending a turn never touches an id that is there.

A tokenizer's chat template writes a user turn after an assistant turn as

    {answer}  <|im_end|>\\n<|im_start|>user\\n  {observation}  <|im_end|>\\n<|im_start|>assistant\\n
              `------------ between --------'                  `------------ after ------------'

The renderer reads both strings off the template once and checks them on probe conversations. From
then on a turn is `between + observation + after`, encoded on its own and appended; the answer's ids
are the ones that the engine sampled and are never encoded again.

Some templates rewrite earlier turns (Qwen3 drops their <think> blocks). For those `exact_prefix` is
False: before a turn the rollout asks `must_fork(messages)`, and where the template would rewrite
something it starts a new training row from `fork(messages)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from transformers import PreTrainedTokenizerBase

from scalinginter.chat.codec import Codec, Message
from scalinginter.chat.constraint import TokenTrie
from scalinginter.errors import UserError

CACHED_TEXTS = 16384
CACHED_TRIES = 4096

_MARKS = (
    "qzmarka",
    "qzmarkb",
    "qzmarkc",
)  # found again in what a template makes of them
_PROBES: tuple[tuple[str, ...], ...] = (  # user, assistant, user, ...
    ("go", "look around", "You see a door.", "open door", "It is open.\nIt is dark."),
    (
        "go",
        "<think>\nleft?\n</think>\n\nleft",
        "A wall.",
        "<think>\nno\n</think>\n\nright",
        "ok",
    ),
    ("go", "Thought: 1 + 1 = 2\nAction: add", "2", "done", "Yes", "bye", "Bye"),
)


@dataclass(frozen=True, slots=True)
class _Affixes:
    """What a template writes around a user turn that follows an assistant turn."""

    between: str
    after: str


class Renderer:
    """Renders conversations with one tokenizer's chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Read the template. Raises `UserError` for a tokenizer that has none."""
        self._tokenizer = tokenizer
        self._codec = Codec(tokenizer)
        self._folds_system = not self._renders_system()
        self._affixes = self._read_affixes()
        self.exact_prefix = self._affixes is not None and all(map(self._appends, _PROBES))
        """Whether no turn is ever rewritten; else ask `must_fork` before every turn."""
        self.stop_id = self._find_stop()
        """The id that ends an assistant turn."""
        eos = tokenizer.eos_token_id
        self.stop_ids = frozenset({self.stop_id} | ({eos} if eos is not None else set()))
        """Ids after which an answer is over: `stop_id`, and the end of text where it differs."""
        self._turn = lru_cache(CACHED_TEXTS)(self._encode_turn)
        self._plain = lru_cache(CACHED_TEXTS)(self._codec.encode_plain)
        self._trie = lru_cache(CACHED_TRIES)(self._make_trie)

    @classmethod
    def for_tokenizer(cls, tokenizer: PreTrainedTokenizerBase) -> "Renderer":
        """Return the tokenizer's renderer."""
        return cls(tokenizer)

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation and the header of the answer to come.

        Special tokens that are spelled out inside a message stay text.
        """
        return self._codec.encode_rendered(self._render(self._codec.mask(messages)))

    def extend(self, observation: str, completion_ended: bool) -> list[int]:
        """Return the ids to append after an answer: the observation and the next answer's header.

        `completion_ended=False`: the answer was cut and lacks its stop id, which then comes first,
        as context that is not trained.
        """
        ids = self._turn(observation)
        return list(ids[1:] if completion_ended else ids)

    def must_fork(self, messages: Sequence[Message]) -> bool:
        """Whether the template rewrites what stands before the last user message.

        `messages` is the whole conversation so far: ..., the last answer, the new observation.
        Blanks at the ends of an answer do not count as rewriting.
        """
        return not self.exact_prefix and not self._is_appended(messages)

    def fork(self, messages: Sequence[Message]) -> list[int]:
        """Return a whole new prompt for a conversation whose earlier turns are rewritten."""
        return self.opening(messages)

    def decode(self, ids: Sequence[int]) -> str:
        """Return an answer's text without the stop id at its end."""
        end = len(ids) - 1 if len(ids) and ids[-1] in self.stop_ids else len(ids)
        return self._codec.decode(ids[:end])

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text; special tokens spelled out in it stay text."""
        return list(self._plain(text))

    def answer(self, text: str) -> list[int]:
        """Return the ids of an answer as it would have been sampled: its text and the stop id."""
        return [*self._plain(text), self.stop_id]

    def constrain(self, actions: Sequence[str]) -> TokenTrie:
        """Return the constraint under which an answer is exactly one of `actions`."""
        return self._trie(tuple(actions))

    def _make_trie(self, actions: tuple[str, ...]) -> TokenTrie:
        return TokenTrie.from_sequences(
            [(*self._plain(action), self.stop_id) for action in actions]
        )

    def _encode_turn(self, observation: str) -> tuple[int, ...]:
        """The stop id, the observation as a user turn, and the next answer's header."""
        if self._affixes is None:
            raise RuntimeError("this chat template cannot be appended to; use fork")
        between, after = self._affixes.between, self._affixes.after
        masked = self._codec.mask([_user(observation)])[0]["content"]
        ids = self._codec.encode_rendered(between + masked + after)
        return tuple(ids) if ids and ids[0] == self.stop_id else (self.stop_id, *ids)

    def _render(self, messages: Sequence[Message]) -> str:
        if self._folds_system and messages and messages[0]["role"] == "system":
            system, first, *rest = messages
            messages = [_user(f"{system['content']}\n\n{first['content']}"), *rest]
        text = self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        assert isinstance(text, str)
        return text

    def _renders_system(self) -> bool:
        """Whether the template has a system role (Gemma's has none)."""
        self._folds_system = False
        try:
            rendered = self._render([{"role": "system", "content": _MARKS[0]}, _user(_MARKS[1])])
        except Exception as error:  # jinja's raise_exception, whatever class it has today
            if self._tokenizer.chat_template:
                return False
            raise UserError(
                "the model's tokenizer has no chat template; use an instruction-tuned model, or "
                "put a chat_template.jinja into its folder"
            ) from error
        return _MARKS[0] in rendered

    def _read_affixes(self) -> _Affixes | None:
        text = self._render(_conversation(_MARKS))
        _, found_answer, rest = text.partition(_MARKS[1])
        between, found_observation, after = rest.partition(_MARKS[2])
        return _Affixes(between, after) if found_answer and found_observation else None

    def _appends(self, contents: tuple[str, ...]) -> bool:
        messages = _conversation(contents)
        return all(self._is_appended(messages[:end]) for end in range(3, len(messages) + 1, 2))

    def _is_appended(self, messages: Sequence[Message]) -> bool:
        """Whether the rendering of `messages` is the last prompt, the answer and one more turn."""
        if self._affixes is None:
            return False
        *before, answer, observation = messages
        prompt, whole = self._render(before), self._render(messages)
        turn = self._affixes.between + observation["content"] + self._affixes.after
        if not (whole.startswith(prompt) and whole.endswith(turn)):
            return False
        return whole[len(prompt) : len(whole) - len(turn)].strip() == answer["content"].strip()

    def _find_stop(self) -> int:
        """The special token that follows an answer at once, or else the end of text."""
        ids = self._codec.encode_rendered(self._affixes.between) if self._affixes else []
        if ids and ids[0] in self._codec.special_ids:
            return ids[0]
        if self._tokenizer.eos_token_id is None:
            raise UserError("the chat template ends no answer and the tokenizer has no eos_token")
        return self._tokenizer.eos_token_id


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _conversation(contents: Sequence[str]) -> list[Message]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]
