"""Packed rows give what separate rows give: log-probs, entropies and gradients."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalinginter.train.batch import pack
from scalinginter.train.logprobs import score
from scalinginter.train.packed import PackedLayout
from scalinginter.train.trie import PrefixTree

TRIES = st.lists(  # two different ids: rows share prefixes, are prefixes of others, or are equal
    st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1, max_size=8
)


def separately(model, samples, temperature=1.0):
    """Log-prob and entropy of each trained id, row by row, from the full logits."""
    logprobs, entropies = {}, {}
    for row, sample in enumerate(samples):
        logits = model(input_ids=torch.from_numpy(sample.ids)[None]).logits[0] / temperature
        for t in np.flatnonzero(sample.mask).tolist():
            allowed = sample.allowed[t] or tuple(range(logits.shape[-1]))
            distribution = logits[t - 1, list(allowed)].log_softmax(0)
            logprobs[row, t] = distribution[allowed.index(int(sample.ids[t]))]
            entropies[row, t] = -(distribution.exp() * distribution).sum()
    return logprobs, entropies


def packed(policy, samples, max_tokens=10_000, **options):
    """The same from micro-batches."""
    logprobs, entropies = {}, {}
    for batch in pack(samples, max_tokens):
        scores = score(policy.model, batch, packed=policy.packed, **options)
        positions = (batch.positions_T[batch.logit_index_N] + 1).tolist()
        for n, key in enumerate(zip(batch.row_N.tolist(), positions, strict=True)):
            logprobs[key], entropies[key] = scores.logprobs[n], scores.entropy[n]
    return logprobs, entropies


def values(scores):
    return torch.stack([scores[key] for key in sorted(scores)])


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def assert_equal(got, expected):
    """To 1e-5 of the largest: in fp32 the order of a sum changes that much from CPU to CPU."""
    bound = 1e-5 * max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(got, expected, atol=bound, rtol=0)


@pytest.mark.parametrize("max_tokens", [10_000, 60, 1])
@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("window", [None, 6])
def test_log_probs_and_entropies_are_those_of_separate_rows(
    tiny_policy, random_samples, max_tokens, is_packed, window
):
    policy, plain = (
        tiny_policy(packed=is_packed, window=window),
        tiny_policy(packed=False, window=window),
    )
    samples = random_samples()
    for got, expected in zip(
        packed(policy, samples, max_tokens), separately(plain.model, samples), strict=True
    ):
        assert_equal(values(got), values(expected))


@pytest.mark.parametrize("max_tokens", [10_000, 60])
@pytest.mark.parametrize("is_packed", [True, False])
def test_gradients_are_those_of_separate_rows(tiny_policy, random_samples, max_tokens, is_packed):
    policy, plain = tiny_policy(packed=is_packed), tiny_policy(packed=False)
    samples = random_samples()
    for scores in (
        packed(policy, samples, max_tokens, entropy_gradient=True),
        separately(plain.model, samples),
    ):
        (values(scores[0]) * torch.linspace(-1, 1, len(scores[0]))).sum().backward(
            retain_graph=True
        )
        values(scores[1]).sum().backward()
    assert_equal(gradients(policy.model), gradients(plain.model))


@settings(max_examples=30, deadline=None)
@given(rows=TRIES, window=st.sampled_from([None, 3]), seed=st.integers(0, 99))
def test_any_tree_attends_as_each_row_alone_would(rows, window, seed):
    tree = PrefixTree([np.array(row) for row in rows])
    torch.manual_seed(seed)
    query, key, value = (torch.randn(1, h, len(tree), 4, dtype=torch.float64) for h in (4, 2, 2))
    got = PackedLayout(tree).attend(0, query, key, value, scaling=0.5, sliding_window=window)[0]
    for row in range(len(rows)):
        at = tree.index(row)
        q, k, v = (x[0, :, at].repeat_interleave(4 // x.shape[1], 0) for x in (query, key, value))
        distance = torch.arange(len(at))[:, None] - torch.arange(len(at))
        unseen = (distance < 0) | (distance >= (window or 10**6))
        weights = (q @ k.transpose(1, 2) * 0.5).masked_fill(unseen, -torch.inf).softmax(-1)
        torch.testing.assert_close(got[at], (weights @ v).transpose(0, 1), atol=1e-9, rtol=0)


def test_the_temperature_divides_the_logits(tiny_policy, random_samples):
    samples = random_samples()
    got, _ = packed(tiny_policy(), samples, temperature=0.5)
    expected, _ = separately(tiny_policy(packed=False).model, samples, temperature=0.5)
    assert_equal(values(got), values(expected))


def test_pitfall_03_exactly_the_logits_before_sampled_ids_get_gradient(tiny_policy, random_samples):
    policy, sample = tiny_policy(packed=False), random_samples(num_groups=1, group_size=1)[0]
    seen = []
    policy.model.lm_head.register_forward_hook(lambda module, given, out: seen.append((given, out)))
    hidden = {}

    def keep(module, given, out):
        out.retain_grad()
        hidden["states"] = out

    policy.model.model.norm.register_forward_hook(keep)
    (batch,) = pack([sample], 1000)
    score(policy.model, batch, packed=False).logprobs.sum().backward()
    with_gradient = hidden["states"].grad[0].abs().sum(-1).nonzero().squeeze(1)
    assert with_gradient.tolist() == (np.flatnonzero(sample.mask) - 1).tolist()
    assert seen[0][1].shape[1] == sample.mask.sum()  # no other logits were computed at all


def test_pitfall_05_ids_that_were_not_drawn_change_nothing_but_the_context(
    tiny_policy, random_samples
):
    policy, sample = tiny_policy(), random_samples(num_groups=1, group_size=1)[0]
    silent = ~sample.mask
    poisoned = dataclasses.replace(
        sample,
        logprobs=np.where(silent, np.nan, sample.logprobs).astype(np.float32),
        advantages=np.where(silent, np.inf, sample.advantages).astype(np.float32),
    )
    clean, dirty = (pack([s], 1000)[0] for s in (sample, poisoned))
    assert torch.equal(clean.behaviour_N, dirty.behaviour_N)
    assert torch.equal(clean.advantages_N, dirty.advantages_N)
    scores = [score(policy.model, batch, packed=True).logprobs for batch in (clean, dirty)]
    assert torch.equal(*scores)


def test_the_ids_that_a_constraint_forbade_get_no_gradient(tiny_policy, random_samples):
    policy, sample = tiny_policy(), random_samples(num_groups=1, group_size=1, constrained=False)[0]
    first = int(np.flatnonzero(sample.mask)[0])
    only = np.zeros_like(sample.mask)
    only[first] = True
    allowed: list = [None] * len(sample)
    allowed[first] = tuple(sorted({int(sample.ids[first]), 3, 11}))
    sample = dataclasses.replace(sample, mask=only, allowed=tuple(allowed))
    (batch,) = pack([sample], 1000)
    score(policy.model, batch, packed=True).logprobs.sum().backward()
    rows = policy.model.lm_head.weight.grad.abs().sum(1).nonzero().squeeze(1)
    assert rows.tolist() == list(allowed[first])
