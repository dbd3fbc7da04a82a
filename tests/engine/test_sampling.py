"""Draws follow the distribution and depend on nothing but their own seed and index."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.engine.sampling import choose, draw, uniforms


def frequencies(columns, width):
    return np.bincount(np.asarray(columns), minlength=width) / len(columns)


def test_uniform_numbers_fill_the_unit_interval_evenly():
    values = uniforms(range(20_000), [0] * 20_000)
    counts, _ = np.histogram(values, bins=50, range=(0, 1))
    chi_square = ((counts - 400) ** 2 / 400).sum()
    assert chi_square < 85.4  # 49 degrees of freedom, p = 0.001


def test_numbers_of_neighbouring_tokens_and_seeds_are_uncorrelated():
    grid = uniforms(np.repeat(range(300), 300).tolist(), list(range(300)) * 300).reshape(300, 300)
    along_tokens = np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]
    along_seeds = np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]
    diagonal = np.corrcoef(grid[:-1, 1:].ravel(), grid[1:, :-1].ravel())[0, 1]
    assert max(map(abs, (along_tokens, along_seeds, diagonal))) < 0.015


@given(st.lists(st.tuples(st.integers(-(2**80), 2**80), st.integers(0, 10_000)), min_size=2))
def test_a_number_depends_on_its_own_seed_and_index_only(pairs):
    seeds, indices = zip(*pairs, strict=True)
    together = uniforms(seeds, indices)
    alone = [uniforms([seed], [index])[0] for seed, index in pairs]
    assert together.tolist() == alone
    assert ((together >= 0) & (together < 1)).all()


def test_draws_follow_the_softmax():
    logits = torch.tensor([0.0, 1.0, -2.0, 3.0, 0.5, -torch.inf])
    columns, _ = draw(
        logits.expand(20_000, 6), [1.0] * 20_000, uniforms(range(20_000), [3] * 20_000)
    )
    gap = np.abs(frequencies(columns, 6) - logits.softmax(-1).numpy()).sum() / 2
    assert gap < 0.015


def test_draws_follow_the_tempered_softmax():
    logits = torch.tensor([0.0, 1.0, -2.0, 3.0])
    columns, logprobs = draw(
        logits.expand(20_000, 4), [2.0] * 20_000, uniforms(range(20_000), [0] * 20_000)
    )
    tempered = (logits / 2).log_softmax(-1)
    assert np.abs(frequencies(columns, 4) - tempered.exp().numpy()).sum() / 2 < 0.015
    assert torch.allclose(logprobs, tempered[columns])


@pytest.mark.parametrize("edge", [0.0, 1 - 2.0**-52])
def test_a_token_of_probability_zero_is_never_drawn(edge):
    logits = torch.tensor([[-torch.inf, -2000.0, 0.0, 1.0, -2000.0, -torch.inf]])
    columns, _ = draw(logits, [1.0], np.array([edge]))
    assert columns.item() == (2 if edge == 0 else 3)


def test_greedy_draws_the_largest_logit_with_its_plain_log_prob():
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    columns, logprobs = draw(logits, [0.0, 1.0], np.array([0.99, 0.0]))
    assert columns.tolist() == [1, 0]
    assert torch.allclose(logprobs, logits.log_softmax(-1)[[0, 1], [1, 0]])


def test_free_and_constrained_answers_are_drawn_side_by_side():
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0], [5.0, 1.0, 0.0, -1.0]])
    ids, logprobs = choose(
        logits, [1, 0, 0], [None, (1, 2), (0, 1, 3)], [1.0, 1.0, 0.0], np.array([0.0, 0.999, 0.5])
    )
    assert ids == [0, 2, 3]
    expected = [
        logits[1].log_softmax(-1)[0].item(),
        logits[0, [1, 2]].log_softmax(-1)[1].item(),
        logits[0, [0, 1, 3]].log_softmax(-1)[2].item(),
    ]
    assert logprobs == pytest.approx(expected, abs=1e-6)


def test_half_precision_logits_give_single_precision_log_probs():
    logits = torch.randn(1, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    columns, logprobs = draw(logits, [1.0], np.array([0.5]))
    expected = logits.float().log_softmax(-1)[0, columns[0]]
    assert (logprobs.dtype, logprobs[0]) == (torch.float32, expected)
