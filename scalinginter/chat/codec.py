"""Text to ids and back, with the template's special tokens told from those that text spells out.

Observations and answers may hold anything, "<|im_end|>" included. What stands in a message stays
text: it never becomes the token that ends a turn.
"""

import re
from collections.abc import Sequence

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from scalinginter.errors import UserError

Message = dict[str, str]

_MASK = 0xF0000  # private code points that stand for special tokens inside contents


class Codec:
    """Text to ids and back on a copy of the tokenizer that nobody else configures."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Copy the tokenizer. Raises `UserError` for one that is not of the tokenizers library."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise UserError(
                f"{type(tokenizer).__name__} has no fast version (tokenizer.json); save one with "
                "the tokenizers library"
            )
        self._backend = Tokenizer.from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        special = {i: t for i, t in self._backend.get_added_tokens_decoder().items() if t.special}
        self.special_ids = frozenset(special)
        self._specials = {token.content: i for i, token in special.items()}
        longest_first = sorted(self._specials, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._masks = {text: chr(_MASK + i) for i, text in enumerate(longest_first)}
        self._unmask = {mark: text for text, mark in self._masks.items()}

    def mask(self, messages: Sequence[Message]) -> list[Message]:
        """Replace special tokens inside contents, so that a template's own are the only ones."""
        return [
            {
                **m,
                "content": self._special.sub(lambda match: self._masks[match[0]], m["content"]),
            }
            for m in messages
        ]

    def encode_rendered(self, text: str) -> list[int]:
        """Encode a rendered and masked conversation: the template's special tokens become one id
        each, those inside contents their text's ids."""
        if not any(mark in text for mark in self._unmask):
            self._backend.encode_special_tokens = False
            return self._backend.encode(text, add_special_tokens=False).ids
        ids: list[int] = []
        start = 0
        for match in self._special.finditer(text):
            ids += self.encode_plain(self._unmasked(text[start : match.start()]))
            ids.append(self._specials[match[0]])
            start = match.end()
        return ids + list(self.encode_plain(self._unmasked(text[start:])))

    def encode_plain(self, text: str) -> tuple[int, ...]:
        """Encode text in which nothing is special."""
        self._backend.encode_special_tokens = True
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens spelled out."""
        return self._backend.decode(list(ids), skip_special_tokens=False)

    def _unmasked(self, text: str) -> str:
        return "".join(self._unmask.get(char, char) for char in text)
