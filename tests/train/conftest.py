"""A tiny Llama and rows of random ids, for the tests of packing and of the learner."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from scalinginter.model.attention import prepare
from scalinginter.model.load import Policy
from scalinginter.types import TrainingSample

VOCABULARY = 29


@pytest.fixture
def tiny_policy():
    """Return a function that makes a policy; the same weights for the same seed."""

    def make(*, packed=True, seed=0, window=None, dtype=torch.float32):
        torch.manual_seed(seed)
        sizes = {
            "vocab_size": VOCABULARY,
            "hidden_size": 24,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 256,
            "initializer_range": 0.3,
        }
        if window is None:
            model = LlamaForCausalLM(LlamaConfig(**sizes))
        else:
            model = MistralForCausalLM(MistralConfig(**sizes, sliding_window=window))
        model = model.to(dtype).eval()
        return Policy(model, None, packed and prepare(model), "a tiny model")

    return make


@pytest.fixture
def random_samples():
    """Return a function that makes rows in groups with a common prompt."""

    def make(*, num_groups=2, group_size=3, prompt=7, seed=0, constrained=True):
        rng = np.random.default_rng(seed)
        samples = []
        for group in range(num_groups):
            prefix = rng.integers(0, VOCABULARY, prompt)
            for _ in range(group_size):
                own = rng.integers(0, VOCABULARY, int(rng.integers(3, 25)))
                ids = np.concatenate([prefix, own])
                mask = np.zeros(len(ids), dtype=np.bool_)
                mask[prompt:] = rng.random(len(own)) < 0.5
                mask[prompt] = True
                allowed = [None] * len(ids)
                for t in np.flatnonzero(mask):
                    if constrained and rng.random() < 0.5:
                        others = rng.integers(0, VOCABULARY, int(rng.integers(1, 6)))
                        allowed[t] = tuple(sorted({int(ids[t]), *others.tolist()}))
                samples.append(
                    TrainingSample(
                        ids=ids,
                        mask=mask,
                        logprobs=rng.normal(-2, 0.3, len(ids)).astype(np.float32),
                        advantages=np.full(len(ids), rng.normal(), dtype=np.float32),
                        turn_index=np.zeros(len(ids), dtype=np.int32),
                        allowed=tuple(allowed),
                        group_id=str(group),
                        episode=len(samples),
                        prefix_length=prompt,
                    )
                )
        return samples

    return make


@pytest.fixture
def sample_of():
    """Return a function that makes a row of given ids; all but the first are trained."""

    def make(ids, *, mask=None, advantage=1.0, allowed=None, episode=0):
        trained = np.arange(len(ids)) > 0 if mask is None else np.array(mask, dtype=np.bool_)
        return TrainingSample(
            ids=np.array(ids, dtype=np.int64),
            mask=trained,
            logprobs=np.linspace(-2, -1, len(ids), dtype=np.float32),
            advantages=np.full(len(ids), advantage, dtype=np.float32),
            turn_index=np.zeros(len(ids), dtype=np.int32),
            allowed=tuple(allowed or [None] * len(ids)),
            group_id="0",
            episode=episode,
        )

    return make
