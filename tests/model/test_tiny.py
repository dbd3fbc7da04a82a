import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalinginter.model.source import PRESETS
from scalinginter.model.tiny import SPECIALS, make_model, make_tokenizer

CORPUS = ["get log\nget stick", "craft 4 oak planks using 1 oak log", "get log"]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(CORPUS)


def weights(tokenizer, seed):
    model = make_model("nano", tokenizer, seed=seed, dtype=torch.float32)
    return torch.cat([parameter.flatten() for parameter in model.parameters()])


@given(text=st.text())
@settings(deadline=None)
def test_no_text_is_lost_by_encoding_it(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert tokenizer.decode(ids) == text


def test_a_word_is_one_token_wherever_it_stands(tokenizer):
    first, second, _, third, _ = tokenizer.encode("log log\nlog log", add_special_tokens=False)
    assert first == second == third


def test_a_word_that_the_corpus_lacks_falls_back_to_its_bytes(tokenizer):
    assert len(tokenizer.encode("zinc")) == len(" zinc")


def test_words_are_ranked_by_frequency_then_alphabet(tokenizer):
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)[len(SPECIALS) + 256 :]
    assert words[:3] == ["Ġget", "Ġlog", "Ġoak"]
    assert words[3:] == ["Ġ1", "Ġ4", "Ġcraft", "Ġplanks", "Ġstick", "Ġusing"]


def test_the_same_corpus_gives_the_same_tokenizer_to_the_byte(tokenizer):
    shuffled = random.Random(0).sample(CORPUS, k=len(CORPUS))
    assert make_tokenizer(shuffled).backend_tokenizer.to_str() == (
        tokenizer.backend_tokenizer.to_str()
    )


def test_the_same_seed_gives_the_same_weights(tokenizer):
    assert torch.equal(weights(tokenizer, seed=1), weights(tokenizer, seed=1))


def test_another_seed_gives_other_weights(tokenizer):
    assert not torch.equal(weights(tokenizer, seed=1), weights(tokenizer, seed=2))


def test_making_a_model_leaves_the_global_generator_alone(tokenizer):
    before = torch.random.get_rng_state()
    weights(tokenizer, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(("preset", "millions"), zip(PRESETS, (0.11, 0.30, 0.85), strict=True))
def test_a_preset_has_the_size_that_it_states(tokenizer, preset, millions):
    model = make_model(preset, tokenizer, seed=0, dtype=torch.float32)
    blocks = sum(parameter.numel() for parameter in model.model.layers.parameters())
    assert blocks / 1e6 == pytest.approx(millions, rel=0.05)


def test_a_fresh_model_is_near_uniform(tokenizer):
    model = make_model("small", tokenizer, seed=0, dtype=torch.float32)
    ids = torch.tensor([tokenizer.encode("craft 4 oak planks using 1 oak log")])
    loss = model(input_ids=ids, labels=ids).loss.item()
    assert loss == pytest.approx(torch.log(torch.tensor(len(tokenizer))).item(), abs=0.5)


def test_rotary_frequencies_stay_float32_in_a_bfloat16_model(tokenizer):
    model = make_model("nano", tokenizer, seed=0, dtype=torch.bfloat16)
    assert (model.dtype, model.model.rotary_emb.inv_freq.dtype) == (torch.bfloat16, torch.float32)
