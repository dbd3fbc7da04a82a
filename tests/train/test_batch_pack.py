"""Rows become micro-batches: every trained id once, prompts once, nothing padded."""

import dataclasses

import numpy as np
import pytest
import torch

from scalinginter.train.batch import pack


def longest(samples):
    return max(int(np.flatnonzero(s.mask)[-1]) for s in samples)


def test_every_trained_id_is_in_exactly_one_micro_batch(random_samples):
    samples = random_samples(num_groups=3)
    got = sorted(
        (int(row), int(target))
        for batch in pack(samples, 60)
        for row, target in zip(batch.row_N, batch.targets_N, strict=True)
    )
    expected = sorted((r, int(i)) for r, s in enumerate(samples) for i in s.ids[s.mask])
    assert got == expected


def test_the_logits_of_a_trained_id_are_those_of_the_position_before_it(random_samples):
    samples = random_samples()
    for batch in pack(samples, 60):
        before = batch.positions_T[batch.logit_index_N]
        for n, row in enumerate(batch.row_N.tolist()):
            at = int(before[n])
            assert samples[row].ids[at] == batch.ids_T[batch.logit_index_N[n]]
            assert samples[row].ids[at + 1] == batch.targets_N[n]
            assert samples[row].mask[at + 1]


def test_common_prefixes_are_stored_once(random_samples):
    samples = random_samples(num_groups=3)
    (batch,) = pack([*samples, samples[0]], 10_000)
    contexts = [tuple(s.ids[: np.flatnonzero(s.mask)[-1]].tolist()) for s in samples]
    assert len(batch.ids_T) == len({c[:n] for c in contexts for n in range(1, len(c) + 1)})


def test_rows_are_cut_where_the_fewest_ids_are_repeated(sample_of):
    rows = [[1, 1, 1, 2, 0], [1, 1, 1, 3, 0], [5, 4, 0], [5, 6, 0]]
    batches = pack([sample_of(row) for row in rows], 7)
    assert [batch.ids_T.tolist() for batch in batches] == [[1, 1, 1, 2, 3], [5, 4, 6]]


def test_ids_that_a_cut_repeats_are_not_new(random_samples):
    samples = random_samples(num_groups=3, group_size=4)
    (whole,) = pack(samples, 10_000)
    parts = pack(samples, 40)
    assert sum(part.num_new for part in parts) == whole.num_new == len(whole.ids_T)
    assert sum(len(part.ids_T) for part in parts) > whole.num_new


@pytest.mark.parametrize("budget", [30, 45, 80])
def test_a_micro_batch_keeps_to_its_token_budget(random_samples, budget):
    samples = random_samples(num_groups=4)
    sizes = [len(batch.ids_T) for batch in pack(samples, budget)]
    assert all(size <= max(budget, longest(samples)) for size in sizes)


def test_a_row_over_the_budget_gets_a_micro_batch_of_its_own(random_samples):
    samples = random_samples(num_groups=1, group_size=4)
    assert sorted(batch.rows for batch in pack(samples, 1)) == [[0], [1], [2], [3]]


def test_packing_twice_gives_the_same(random_samples):
    first, second = (pack(random_samples(num_groups=3), 60) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.ids_T, b.ids_T)
        assert torch.equal(a.logit_index_N, b.logit_index_N)


def test_the_order_of_the_rows_does_not_matter(random_samples):
    samples = random_samples(num_groups=2, group_size=4)
    first, second = pack(samples, 60), pack(samples[::-1], 60)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.ids_T, b.ids_T)
        assert torch.equal(a.advantages_N, b.advantages_N)


def test_nothing_trained_packs_to_nothing(random_samples):
    sample = random_samples()[0]
    silent = dataclasses.replace(sample, mask=np.zeros_like(sample.mask))
    assert pack([silent], 100) == []


def test_a_drawn_id_outside_its_allowed_set_is_an_error(random_samples):
    sample = random_samples()[0]
    at = int(np.flatnonzero(sample.mask)[0])
    allowed = list(sample.allowed)
    allowed[at] = (int(sample.ids[at]) + 1,)
    with pytest.raises(ValueError, match="constraint"):
        pack([dataclasses.replace(sample, allowed=tuple(allowed))], 100)
