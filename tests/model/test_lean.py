"""The lean pass gives what transformers gives: values, gradients, and its own way out."""

import copy

import pytest
import torch
import transformers as hf
from torch import nn

from scalinginter.model import lean
from scalinginter.model.attention import ATTENTION, prepare
from scalinginter.model.lean import make_lean

SHAPE = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
FAMILIES = {
    "llama": (hf.LlamaForCausalLM, lambda: hf.LlamaConfig(**SHAPE)),
    "llama_with_biases": (
        hf.LlamaForCausalLM,
        lambda: hf.LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True),
    ),
    "llama_scaled_positions": (
        hf.LlamaForCausalLM,
        lambda: hf.LlamaConfig(**SHAPE, rope_scaling={"rope_type": "linear", "factor": 2.0}),
    ),
    "qwen2": (hf.Qwen2ForCausalLM, lambda: hf.Qwen2Config(**SHAPE)),
    "qwen3": (hf.Qwen3ForCausalLM, lambda: hf.Qwen3Config(**SHAPE, head_dim=16)),
}


class Causal:
    """One causal row, by the definition."""

    def __init__(self, outputs=None):
        self.outputs = outputs

    def attend(self, layer, query, key, value, *, scaling, sliding_window):
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
        scores = query @ key.transpose(-1, -2) * scaling
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value).transpose(1, 2)


@pytest.fixture
def build():
    """Return a function: two copies of a model, one as transformers runs it, one lean."""

    def make(family="qwen3", dtype=torch.float32):
        model_class, config = FAMILIES[family]
        torch.manual_seed(0)
        plain = model_class(config()).to(dtype).eval()
        with torch.no_grad():
            for parameter in plain.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        slim = copy.deepcopy(plain)
        plain.set_attn_implementation(ATTENTION)
        assert prepare(slim)
        return plain, slim

    return make


def run(model, num_tokens=40, outputs=None):
    source = torch.Generator().manual_seed(1)
    return model(
        input_ids=torch.randint(0, 61, (1, num_tokens), generator=source),
        position_ids=torch.arange(num_tokens)[None],
        attention_layout=Causal(outputs),
        use_cache=False,
    ).logits


def gradients(model):
    run(model).log_softmax(-1)[..., ::7].sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("with_gradient", [True, False])
def test_the_lean_pass_gives_the_same_logits(family, with_gradient, build):
    plain, slim = build(family)
    with torch.set_grad_enabled(with_gradient):
        torch.testing.assert_close(run(slim), run(plain), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("with_gradient", [True, False])
def test_the_last_layer_leaves_out_tokens_that_nobody_looks_at(with_gradient, build):
    _, slim = build()
    widths, looked_at = [], torch.tensor([3, 17, 39])
    original = lean._feed
    with torch.set_grad_enabled(with_gradient), pytest.MonkeyPatch.context() as patch:
        expected = run(slim)[:, looked_at]
        patch.setattr(lean, "_feed", lambda m, *x: widths.append(len(x[1])) or original(m, *x))
        got = run(slim, outputs=looked_at)[:, looked_at]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert widths == [40] * (len(widths) - 1) + [3]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block_bytes", [1, 1 << 30])  # one row at a time; all at once
def test_the_lean_pass_gives_the_same_gradients(family, block_bytes, build, monkeypatch):
    monkeypatch.setattr(lean, "BLOCK_BYTES", block_bytes)
    plain, slim = build(family)
    expected = gradients(plain)
    for name, got in gradients(slim).items():
        torch.testing.assert_close(got, expected[name], atol=1e-4, rtol=1e-4, msg=name)


def test_the_lean_pass_is_taken(build, monkeypatch):
    _, slim = build()
    monkeypatch.setattr(type(slim.model.layers[0]), "forward", None)
    assert run(slim).isfinite().all()


@pytest.mark.parametrize("why", ["bf16", "checkpointing", "hidden states"])
def test_what_the_lean_pass_does_not_know_goes_through_transformers(why, build, monkeypatch):
    _, slim = build(dtype=torch.bfloat16 if why == "bf16" else torch.float32)
    layers = []
    slim.model.layers[0].register_forward_hook(lambda *seen: layers.append(seen))
    if why == "checkpointing":
        slim.gradient_checkpointing_enable()
        slim.train()
    options = {"output_hidden_states": True} if why == "hidden states" else {}
    slim(
        input_ids=torch.zeros(1, 3, dtype=torch.long),
        position_ids=torch.arange(3)[None],
        attention_layout=Causal(),
        use_cache=False,
        **options,
    )
    assert layers


def test_a_model_with_an_adapter_is_left_as_it_is(build):
    plain, _ = build()
    plain.model.layers[1].mlp.up_proj = nn.Sequential(plain.model.layers[1].mlp.up_proj)

    class Adapted(nn.Linear):
        pass

    plain.model.layers[1].self_attn.q_proj = Adapted(32, 64)
    assert not make_lean(plain)


def test_an_unknown_family_is_left_as_it_is():
    config = hf.GPT2Config(vocab_size=61, n_embd=32, n_layer=1, n_head=4)
    assert not make_lean(hf.GPT2LMHeadModel(config))


def test_a_copy_runs_with_its_own_weights(build):
    _, slim = build()
    before = run(slim)
    twin = copy.deepcopy(slim)
    with torch.no_grad():
        slim.model.norm.weight.zero_()
    torch.testing.assert_close(run(twin), before)
