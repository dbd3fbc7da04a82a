"""Models small enough to learn a text environment in minutes on a CPU, made on the spot.

A word is one token together with the space before it, so a turn costs about as many tokens as it
has words; a word that the corpus did not hold falls back to its bytes. Nothing is lost on the way:
`decode(encode(text)) == text` for every text. The same corpus gives the same tokenizer, to the
byte, and the same seed the same weights.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import torch
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)
from transformers import LlamaConfig, PreTrainedTokenizerFast
from transformers.models.llama.modeling_llama import LlamaForCausalLM

PAD, END, SYSTEM, USER, ASSISTANT = SPECIALS = (
    "<|pad|>",
    "<|end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
)

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Three tokens a turn beside the text: the roles of the user and the assistant, and the end."""

MAX_WORDS = 8192
MAX_POSITIONS = 16384
INITIAL_STD = 0.05
"""Of all weights. Transformers' 0.02 learns slower at this width: 120 steps on TextCraft plans
bring the loss per token from 6.4 to 0.66 with it, to 0.38 with 0.05; 0.1 starts far from uniform.
"""

_WORD = Regex(
    r" ?[\p{L}\p{M}_]+(?:['’-][\p{L}\p{M}]+)*"  # a word, and the space before it
    r"| ?\p{N}+"  # a number
    r"|\n (?=\n|\z)|\n"  # a line's end; before another one it takes the space along
    r"| ?[^\s\p{L}\p{M}\p{N}_]"  # one sign
    r"|\s"
)


class _Shape(NamedTuple):
    hidden: int
    layers: int
    feed_forward: int


_SHAPES = {  # parameters in the blocks: 0.11 M, 0.30 M, 0.85 M
    "nano": _Shape(hidden=64, layers=2, feed_forward=192),
    "small": _Shape(hidden=96, layers=2, feed_forward=384),
    "base": _Shape(hidden=128, layers=4, feed_forward=384),
}


def make_tokenizer(corpus: Iterable[str]) -> PreTrainedTokenizerFast:
    """Build the word tokenizer of a corpus: special tokens, the 256 bytes, then the words by
    falling frequency, ties in alphabetical order."""
    tokenizer = Tokenizer(models.BPE())
    # A space before every line's first word makes it the same token as inside a line.
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(" "), normalizers.Replace("\n", "\n ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_WORD, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Replace("\n ", "\n"), decoders.Strip(" ", 1, 0)]
    )
    vocabulary = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary += _words(tokenizer, corpus, known=set(vocabulary))
    # BPE without merges looks a whole word up first and else takes its bytes.
    tokenizer.model = models.BPE(
        vocab={token: i for i, token in enumerate(vocabulary)},
        merges=[],
        ignore_merges=True,
    )
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        model_max_length=MAX_POSITIONS,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_model(
    preset: str, tokenizer: PreTrainedTokenizerFast, *, seed: int, dtype: torch.dtype
) -> LlamaForCausalLM:
    """Build a Llama of the preset's shape with fresh weights; torch's global generator is left
    as it was."""
    shape = _SHAPES[preset]
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        intermediate_size=shape.feed_forward,
        num_attention_heads=4,
        max_position_embeddings=MAX_POSITIONS,
        initializer_range=INITIAL_STD,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    for parameter in model.parameters():  # not the rotary frequencies, which stay float32
        parameter.data = parameter.data.to(dtype)
    return model.eval()


def _words(tokenizer: Tokenizer, corpus: Iterable[str], known: set[str]) -> list[str]:
    counts: Counter[str] = Counter()
    for text, repeats in Counter(corpus).items():
        normal = tokenizer.normalizer.normalize_str(text)
        for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal):
            counts[piece] += repeats
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return [word for word in ranked if word not in known][:MAX_WORDS]
