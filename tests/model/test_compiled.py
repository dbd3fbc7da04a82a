"""Compiled layers give what layers as they are give: losses, gradients, and once for all shapes."""

import copy

import numpy as np
import pytest
import torch
import transformers as hf
from torch._dynamo.testing import CompileCounter

from scalinginter.config.lora import LoRAConfig
from scalinginter.errors import UserError
from scalinginter.model import compiled
from scalinginter.model.attention import prepare
from scalinginter.model.compiled import compile_layers, is_compiled
from scalinginter.model.lora import add_adapter
from scalinginter.train.packed import PackedLayout
from scalinginter.train.trie import PrefixTree

# torch hides this warning of its own tracer by another means than a filter
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
    pytest.mark.timeout(900),  # the compiler is another process: a busy machine may keep it waiting
]

SHAPE = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture
def fresh():
    """Forget compiled code before and after, so that a test can count."""
    torch._dynamo.reset()
    compiled._compiled.cache_clear()
    yield
    torch._dynamo.reset()
    compiled._compiled.cache_clear()


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = hf.Qwen3ForCausalLM(hf.Qwen3Config(**SHAPE, head_dim=16)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    assert prepare(model)
    return model


def loss_of(model, seed):
    """A loss over a micro-batch of two groups with shared prompts; its size comes from the seed."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(2):
        prompt = rng.integers(0, 61, int(rng.integers(3, 9)))
        own = [rng.integers(0, 61, int(rng.integers(2, 14))) for _ in range(3)]
        rows += [np.concatenate([prompt, ids]) for ids in own]
    tree = PrefixTree(rows)
    logits = model(
        input_ids=torch.from_numpy(tree.ids)[None],
        position_ids=torch.from_numpy(tree.positions)[None],
        attention_layout=PackedLayout(tree),
        use_cache=False,
    ).logits
    return logits.log_softmax(-1)[..., ::7].mean()


def loss_and_gradients(model, seed):
    model.zero_grad()
    loss = loss_of(model, seed)
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def assert_equal(got, expected):
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)


def test_losses_and_gradients_are_those_of_eager_layers(compiler, fresh, model):
    eager = copy.deepcopy(model)
    compile_layers(model)
    for seed in range(3):
        assert_equal(loss_and_gradients(model, seed), loss_and_gradients(eager, seed))


def test_so_they_are_with_an_adapter_and_gradient_checkpointing(compiler, fresh, model):
    add_adapter(model, LoRAConfig(r=2), base="tiny", seed=0)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    eager = copy.deepcopy(model)
    compile_layers(model)
    assert_equal(loss_and_gradients(model, 1), loss_and_gradients(eager, 1))


def count_compilations(monkeypatch):
    counter = CompileCounter()
    original = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, **options: original(f, **options, backend=counter)
    )
    return counter


def test_other_lengths_and_trees_are_not_compiled_again(fresh, model, monkeypatch):
    counter = count_compilations(monkeypatch)
    compile_layers(model)
    counter.clear()
    loss_of(model, 0)
    first = counter.frame_count
    for seed in range(1, 12):
        loss_of(model, seed)
    assert (first > 0, counter.frame_count) == (True, first)


def test_a_pass_without_gradient_is_neither_compiled_nor_changed(fresh, model, monkeypatch):
    with torch.no_grad():
        expected = loss_of(model, 0)
        counter = count_compilations(monkeypatch)
        compile_layers(model)
        counter.clear()
        assert (float(loss_of(model, 0)), counter.frame_count) == (float(expected), 0)


def test_a_copy_is_compiled_and_has_weights_of_its_own(fresh, model, monkeypatch):
    counter = count_compilations(monkeypatch)
    compile_layers(model)
    other = copy.deepcopy(model)
    counter.clear()
    loss_and_gradients(other, 0)
    touched = {p.grad is not None for p in model.parameters()}
    assert (counter.frame_count > 0, touched) == (True, {False})


def test_the_names_of_weights_stay(fresh, model, monkeypatch):
    count_compilations(monkeypatch)
    before = list(model.state_dict())
    compile_layers(model)
    assert list(model.state_dict()) == before


def test_a_machine_that_cannot_compile_is_told_so_at_once(model, monkeypatch):
    def no_compiler(*_args, **_options):
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", lambda *a, **k: no_compiler)
    with pytest.raises(UserError, match=r"cannot compile for cpu here \(RuntimeError: no C\+\+"):
        compile_layers(model)
    assert not is_compiled(model.model.layers[0])


def test_a_model_of_other_parts_is_refused():
    with pytest.raises(UserError, match="Linear has no decoder layers"):
        compile_layers(torch.nn.Linear(2, 2))
