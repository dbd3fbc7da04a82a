"""Tokenizers with the template families that are met in the wild, made without a download."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from scalinginter.model.tiny import make_tokenizer

CORPUS = [
    "goal: stick\nget log",
    "get 2 oak log",
    "craft 4 oak planks using 1 oak log",
    "Got 1 oak log. You see a door.",
    "user assistant system abab cdcd abab cdcd",
]

CHATML = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start|>' + m['role'] + '<|stop|>\n\n'"
    " + m['content'] | trim + '<|eot|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant<|stop|>\n\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<|start|>' + role + '\n' + m['content'] | trim + '<|eot|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>model\n' }}{% endif %}"
)
# As Qwen3: thoughts are kept in the answer that is being written and dropped from earlier ones.
QWEN3 = (
    "{% for m in messages %}{% set text = m['content'] %}"
    "{% if m['role'] == 'assistant' and '</think>' in text and not loop.last %}"
    "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + text + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# A template that leaves system messages out without a word.
SILENT = (
    "{% for m in messages if m['role'] != 'system' %}{{ m['content'] + '<|eot|>' }}{% endfor %}"
)
APPEND_ONLY = {"chatml": CHATML, "llama3": LLAMA3, "gemma": GEMMA}
SPECIALS = ["<|bos|>", "<|im_start|>", "<|im_end|>", "<|start|>", "<|stop|>", "<|eot|>"]


def bpe_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with merges, hence texts that more than one id list spells."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    end = "<|im_end|>" if "<|im_end|>" in template else "<|eot|>"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|bos|>", eos_token=end, pad_token=end
    )
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture(scope="session")
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer(CORPUS)


@pytest.fixture(scope="session")
def chatml_tokenizer() -> PreTrainedTokenizerFast:
    return bpe_tokenizer(CHATML)


@pytest.fixture(scope="session")
def qwen3_tokenizer() -> PreTrainedTokenizerFast:
    return bpe_tokenizer(QWEN3)


@pytest.fixture(scope="session", params=["tiny", *APPEND_ONLY])
def append_only_tokenizer(request, tiny_tokenizer) -> PreTrainedTokenizerFast:
    return tiny_tokenizer if request.param == "tiny" else bpe_tokenizer(APPEND_ONLY[request.param])


@pytest.fixture(scope="session", params=[GEMMA, SILENT], ids=["gemma", "silent"])
def systemless_tokenizer(request) -> PreTrainedTokenizerFast:
    return bpe_tokenizer(request.param)
