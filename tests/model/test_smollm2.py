"""The real model, where it was fetched (`scalinginter fetch-model smollm2`)."""

import pytest
import torch

from scalinginter.chat.renderer import Renderer
from scalinginter.config.schema import ModelConfig
from scalinginter.model.load import load_policy
from scalinginter.model.smollm2 import fetch
from scalinginter.model.source import FETCH_COMMAND, SMOLLM2, cache_folder

pytestmark = pytest.mark.skipif(
    not (cache_folder() / SMOLLM2 / "config.json").is_file(),
    reason=f"SmolLM2 is not in the cache; `{FETCH_COMMAND}` puts it there",
)
CONVERSATION = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "The capital of France is Paris."},
    {"role": "user", "content": "And of Italy?"},
]


@pytest.fixture(scope="module")
def policy():
    config = ModelConfig(path=SMOLLM2, dtype="bfloat16")
    return load_policy(config, corpus=list, seed=0, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def renderer(policy):
    return Renderer.for_tokenizer(policy.tokenizer)


def test_fetching_twice_downloads_once():
    lines = []
    fetch(progress=lines.append)
    assert [line.split(" in ")[0] for line in lines] == ["smollm2 is already"]


def test_smollm2_takes_packed_rows(policy):
    assert policy.packed


def test_pitfall_02_smollm2_is_appended_to_as_its_template_says(policy, renderer):
    question, answer, follow_up = CONVERSATION
    played = renderer.opening([question]) + renderer.answer(answer["content"])
    played += renderer.extend(follow_up["content"], completion_ended=True)
    template = policy.tokenizer.apply_chat_template(
        CONVERSATION, add_generation_prompt=True, return_dict=False
    )
    assert (renderer.exact_prefix, played) == (True, template)


def test_smollm2_answers_a_question(policy, renderer):
    policy.model.set_attn_implementation("sdpa")
    prompt = renderer.opening(CONVERSATION[:1])
    ids = policy.model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)
    assert renderer.decode(ids[0, len(prompt) :].tolist()) == CONVERSATION[1]["content"]
