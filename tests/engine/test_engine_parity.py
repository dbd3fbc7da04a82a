"""What the engine says a token's log-prob was is what a plain forward of the sequence says."""

import random

import pytest
import torch
import transformers as hf

from scalinginter.model.attention import supports_packing

SHAPE = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
GROUPED = SHAPE | {"num_key_value_heads": 2}
GPT2 = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}
FAMILIES = {
    "llama": (hf.LlamaForCausalLM, lambda: hf.LlamaConfig(**SHAPE)),
    "llama_one_key_head": (
        hf.LlamaForCausalLM,
        lambda: hf.LlamaConfig(**SHAPE, num_key_value_heads=1),
    ),
    "qwen3_normed_keys": (hf.Qwen3ForCausalLM, lambda: hf.Qwen3Config(**GROUPED, head_dim=16)),
    "mistral_window_of_8": (
        hf.MistralForCausalLM,
        lambda: hf.MistralConfig(**GROUPED, sliding_window=8),
    ),
    "gemma3_mixed_windows": (
        hf.Gemma3ForCausalLM,
        lambda: hf.Gemma3TextConfig(
            **GROUPED,
            head_dim=16,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    "gpt2_learned_positions": (
        hf.GPT2LMHeadModel,
        lambda: hf.GPT2Config(**GPT2, bos_token_id=0, eos_token_id=0),
    ),
    "gemma2_capped_logits": (
        hf.Gemma2ForCausalLM,
        lambda: hf.Gemma2Config(**GROUPED, head_dim=16, sliding_window=8),
    ),
}


def episodes(engine, ask, request_of):
    """Six sessions of three turns; prompts share beginnings, observations have 1 to 81 tokens."""
    source = random.Random(0)
    words = [source.randrange(61) for _ in range(400)]
    contexts = [words[:70] + words[70 + i // 2 : 73 + 2 * (i // 2)] for i in range(6)]
    answered = []
    for turn in range(3):
        requests = [
            request_of(context, f"s{i}", new=2 + (i + turn) % 4, seed=10 * i + turn)
            for i, context in enumerate(contexts)
        ]
        completions = ask(engine, *requests)
        answered += zip(requests, completions, strict=True)
        contexts = [
            [*context, *completion.token_ids, *words[i : i + 1 + 16 * i]]
            for i, (context, completion) in enumerate(zip(contexts, completions, strict=True))
        ]
    return answered


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_are_those_of_a_plain_forward(
    family, build_model, make_engine, ask, request_of, reference_logprobs
):
    model_class, config = FAMILIES[family]
    model = build_model(model_class, config())
    gaps = [
        abs(ours - theirs)
        for request, completion in episodes(make_engine(model), ask, request_of)
        for ours, theirs in zip(
            completion.logprobs,
            reference_logprobs(model, request.prompt_ids, completion),
            strict=True,
        )
    ]
    assert max(gaps) <= 1e-4


def test_capped_attention_logits_take_the_path_without_packing(build_model):
    model_class, config = FAMILIES["gemma2_capped_logits"]
    assert not supports_packing(build_model(model_class, config()))


def test_the_cache_changes_no_token(build_model, make_engine, ask, request_of):
    model = build_model()
    kept = episodes(make_engine(model), ask, request_of)
    recomputed = episodes(make_engine(model, packed=False), ask, request_of)
    assert [c.token_ids for _, c in kept] == [c.token_ids for _, c in recomputed]


def test_a_prompt_cut_in_chunks_gives_the_same_log_probs(build_model, make_engine, ask, request_of):
    model = build_model()
    whole = episodes(make_engine(model), ask, request_of)
    chunked = episodes(make_engine(model, max_batch_tokens=17), ask, request_of)
    assert [c.logprobs for _, c in whole] == [
        pytest.approx(c.logprobs, abs=1e-5) for _, c in chunked
    ]


@pytest.mark.parametrize("packed", [True, False])
def test_tempered_log_probs_are_of_the_tempered_distribution(
    packed, build_model, make_engine, ask, request_of, reference_logprobs
):
    model = build_model()
    request = request_of([3, 1, 4], new=6, temperature=0.7)
    (completion,) = ask(make_engine(model, packed=packed), request)
    expected = reference_logprobs(model, [3, 1, 4], completion, temperature=0.7)
    assert completion.logprobs == pytest.approx(expected, abs=1e-4)


def test_pitfall_18_log_probs_are_of_the_full_distribution(
    build_model, make_engine, ask, request_of
):
    model = build_model()
    engine = make_engine(model)
    requests = [request_of([5, 6, 7], f"s{i}", new=1, seed=i) for i in range(600)]
    seen = {c.token_ids[0]: c.logprobs[0] for c in ask(engine, *requests)}
    with torch.no_grad():
        full = model(torch.tensor([[5, 6, 7]])).logits[0, -1].log_softmax(-1)
    # Rare tokens are drawn too, each with its own probability: nothing was cut or renormalised.
    rare = full.argsort(descending=True)[20:].tolist()
    assert set(rare) & set(seen)
    assert seen == {token: pytest.approx(full[token].item(), abs=1e-4) for token in seen}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_log_probs_on_a_gpu_are_those_of_a_plain_forward_there(
    build_model, make_engine, ask, request_of, reference_logprobs
):
    model = build_model()
    engine = make_engine(model.cuda())
    answered = episodes(engine, ask, request_of)
    model = model.cpu()
    for request, completion in answered:
        expected = reference_logprobs(model, request.prompt_ids, completion)
        assert completion.logprobs == pytest.approx(expected, abs=1e-3)
