"""Adapters: what they change, what they leave, and that every path computes with them."""

import copy

import pytest
import torch
from peft import PeftModel
from transformers import LlamaConfig, LlamaForCausalLM

from scalinginter.config.lora import LoRAConfig
from scalinginter.engine.base import GenerateRequest
from scalinginter.engine.local import LocalEngine
from scalinginter.errors import UserError
from scalinginter.model.attention import prepare
from scalinginter.model.lora import (
    adapter_state,
    add_adapter,
    load_adapter,
    load_adapter_state,
    merge,
    merged_tensors,
    save_adapter,
    swapped,
)

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


@pytest.fixture
def build():
    """Return a function that makes a tiny Llama, with an adapter that changes it if asked for."""

    def make(*, adapted=True, stirred=True, seed=0, **lora):
        torch.manual_seed(seed)
        sizes = {"vocab_size": 29, "hidden_size": 24, "intermediate_size": 40}
        heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
        config = LlamaConfig(**sizes, **heads, initializer_range=0.3, tie_word_embeddings=True)
        model = LlamaForCausalLM(config).eval()
        if adapted:
            add_adapter(model, LoRAConfig(r=3, alpha=6.0, **lora), base="here", seed=7)
            if stirred:
                stir(model)
        return model

    return make


def stir(model, seed=1):
    """Move every tensor of the adapter away from where it began."""
    source = torch.Generator().manual_seed(seed)
    state = adapter_state(model).items()
    load_adapter_state(
        model, {n: t + 0.2 * torch.randn(t.shape, generator=source) for n, t in state}
    )


@torch.no_grad()
def logits(model):
    return model(input_ids=IDS, use_cache=False).logits


def test_a_fresh_adapter_changes_nothing(build):
    assert torch.equal(logits(build(stirred=False)), logits(build(adapted=False)))


def test_only_the_adapter_is_trained(build):
    trained = {n for n, p in build().named_parameters() if p.requires_grad}
    assert trained == set(adapter_state(build()))
    assert len(trained) == 2 * 7 * 2  # A and B of seven linear layers in two blocks


def test_an_adapter_on_two_kinds_of_layers(build):
    model = build(target_modules=["q_proj", "v_proj"])
    assert {n.split(".")[4] for n in adapter_state(model)} == {"q_proj", "v_proj"}


def test_a_layer_that_is_not_there_is_refused_with_the_nearest(build):
    with pytest.raises(UserError, match="did you mean 'q_proj'"):
        build(target_modules=["q_pro"])


def test_the_same_seed_makes_the_same_adapter_and_leaves_the_generator(build):
    first = adapter_state(build(stirred=False))
    torch.manual_seed(5)
    expected = torch.rand(1)
    model = build(adapted=False)
    torch.manual_seed(5)
    add_adapter(model, LoRAConfig(r=3, alpha=6.0), base="here", seed=7)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(first[n], t) for n, t in adapter_state(model).items())


def test_merged_tensors_are_those_of_a_plain_model_that_computes_the_same(build):
    model, plain = build(), build(adapted=False)
    merged = dict(merged_tensors(model))
    assert [(n, t.shape) for n, t in merged.items()] == [
        (n, t.shape) for n, t in plain.state_dict().items()
    ]
    plain.load_state_dict(merged)
    torch.testing.assert_close(logits(plain), logits(model), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(logits(plain), logits(build(adapted=False)), atol=1e-2)


def test_merging_leaves_a_plain_model_that_computes_the_same(build):
    model = build()
    expected = logits(model)
    merge(model)
    assert list(model.state_dict()) == list(build(adapted=False).state_dict())
    assert all(parameter.requires_grad for parameter in model.parameters())
    torch.testing.assert_close(logits(model), expected, atol=1e-5, rtol=1e-5)


def test_a_saved_adapter_loads_into_its_base_to_the_bit(build, tmp_path):
    model, again = build(), build(adapted=False)
    save_adapter(model, tmp_path)
    load_adapter(again, tmp_path)
    assert torch.equal(logits(again), logits(model))
    assert {n for n, p in again.named_parameters() if p.requires_grad} == set(adapter_state(model))


def test_a_saved_adapter_is_one_of_peft(build, tmp_path):
    model = build()
    save_adapter(model, tmp_path)
    theirs = PeftModel.from_pretrained(build(adapted=False), tmp_path)
    torch.testing.assert_close(logits(theirs), logits(model))


def test_an_adapter_of_another_base_is_refused(build, tmp_path):
    save_adapter(build(), tmp_path)
    with pytest.raises(UserError, match="trained on other weights"):
        load_adapter(build(adapted=False, seed=1), tmp_path)


def test_a_swapped_adapter_computes_for_a_while(build):
    model, fresh = build(), adapter_state(build(stirred=False))
    before = logits(model)
    with swapped(model, fresh):
        assert torch.equal(logits(model), logits(build(adapted=False)))
    assert torch.equal(logits(model), before)


def test_the_lean_pass_is_taken_and_gives_the_same_gradients(build, monkeypatch):
    model = build()
    loss = model(input_ids=IDS, use_cache=False).logits.log_softmax(-1)[..., 3].sum()
    loss.backward()
    expected = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
    lean = build()
    assert prepare(lean)
    monkeypatch.setattr(type(lean.model.layers[0]), "forward", None)
    packed(lean).log_softmax(-1)[..., 3].sum().backward()
    for name, parameter in lean.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(parameter.grad, expected[name], atol=1e-4, rtol=1e-4)
        else:
            assert parameter.grad is None


class Causal:
    """One causal row, by the definition."""

    outputs = None

    def attend(self, layer, query, key, value, *, scaling, sliding_window):
        key, value = (x.repeat_interleave(2, 1) for x in (key, value))
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling
        ).transpose(1, 2)


def packed(model):
    return model(
        input_ids=IDS,
        position_ids=torch.arange(IDS.shape[1])[None],
        attention_layout=Causal(),
        use_cache=False,
    ).logits


async def _answer(engine):
    completion = await engine.generate(
        GenerateRequest(session="s", prompt_ids=IDS[0].tolist(), max_new_tokens=5, seed=0)
    )
    await engine.aclose()
    return completion


@pytest.mark.parametrize("is_packed", [True, False])
def test_the_engine_samples_from_the_adapted_weights(build, is_packed):
    import asyncio

    model = build()
    plain = copy.deepcopy(model)
    prepared = prepare(model) if is_packed else False
    completion = asyncio.run(_answer(LocalEngine(model, packed=prepared, max_context=64)))
    ids = torch.tensor([[*IDS[0].tolist(), *completion.token_ids]])
    with torch.no_grad():
        expected = plain(input_ids=ids, use_cache=False).logits.log_softmax(-1)[0]
    start = IDS.shape[1] - 1
    said = [float(expected[start + i, t]) for i, t in enumerate(completion.token_ids)]
    assert completion.logprobs == pytest.approx(said, abs=1e-4)
