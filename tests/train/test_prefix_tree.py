"""Rows that share prefixes give what each of them gives alone: the tree, values and gradients."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalinginter.train.batch import pack
from scalinginter.train.logprobs import score
from scalinginter.train.trie import PrefixTree

ROWS = st.lists(  # two different ids: rows share prefixes, are prefixes of others, or are equal
    st.lists(st.integers(0, 1), min_size=2, max_size=9), min_size=1, max_size=8
)
PLAIN = settings(max_examples=100, deadline=None)
MODEL = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def prefixes(rows):
    return {tuple(row[:n]) for row in rows for n in range(1, len(row) + 1)}


def random_rows(sample_of, rows, seed):
    """Rows with masks, advantages and constraints of their own."""
    rng = np.random.default_rng(seed)
    samples = []
    for number, ids in enumerate(rows):
        mask = np.append(False, rng.random(len(ids) - 1) < 0.6)
        allowed = [
            tuple(sorted({i, *rng.integers(0, 29, 3).tolist()})) if rng.random() < 0.4 else None
            for i in ids
        ]
        samples.append(
            sample_of(ids, mask=mask, advantage=rng.normal(), allowed=allowed, episode=number)
        )
    return samples


def loss(policy, samples, max_tokens=10_000):
    """A sum over all trained tokens that no two of them enter alike."""
    total = torch.zeros(())
    for batch in pack(samples, max_tokens):
        scores = score(policy.model, batch, packed=policy.packed, entropy_gradient=True)
        ratio = torch.exp(scores.logprobs - batch.behaviour_N)
        total = total + (ratio * batch.advantages_N + 0.1 * scores.entropy).sum()
    return total


def value_and_gradient(policy, losses):
    """The sum of the losses, and its gradient by all parameters as one vector."""
    policy.model.zero_grad()
    total = sum(losses)
    if total.requires_grad:
        total.backward()
    parameters = policy.model.parameters()
    return total.detach(), torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
    )


def assert_equal(got, expected):
    for left, right in zip(got, expected, strict=True):
        bound = 1e-5 * max(1.0, float(right.abs().max()))
        torch.testing.assert_close(left, right, atol=bound, rtol=0)


@PLAIN
@given(rows=ROWS)
def test_a_tree_holds_every_prefix_of_its_rows_once(rows):
    tree = PrefixTree([np.array(row) for row in rows])
    assert len(tree) == len(prefixes(rows))


@PLAIN
@given(rows=ROWS)
def test_a_row_reads_its_ids_along_its_path(rows):
    tree = PrefixTree([np.array(row) for row in rows])
    for number, row in enumerate(rows):
        at = tree.index(number)
        assert tree.ids[at].tolist() == row
        assert tree.positions[at].tolist() == list(range(len(row)))


@PLAIN
@given(rows=ROWS)
def test_an_id_is_seen_by_what_lies_between_it_and_the_end_of_its_subtree(rows):
    tree = PrefixTree([np.array(row) for row in rows])
    at, ends = np.arange(len(tree)), tree.ends()
    for number in range(len(rows)):
        last = tree.index(number)[-1]
        assert at[(at <= last) & (last < ends)].tolist() == tree.index(number).tolist()


@MODEL
@given(rows=ROWS, seed=st.integers(0, 99), max_tokens=st.sampled_from([10_000, 8]))
def test_rows_together_give_what_they_give_alone(tiny_policy, sample_of, rows, seed, max_tokens):
    samples = random_rows(sample_of, rows, seed)
    shared, plain = tiny_policy(), tiny_policy(packed=False)
    assert_equal(
        value_and_gradient(shared, [loss(shared, samples, max_tokens)]),
        value_and_gradient(plain, [loss(plain, [sample]) for sample in samples]),
    )


@MODEL
@given(rows=ROWS, seed=st.integers(0, 99), data=st.data())
def test_the_order_of_rows_changes_no_sum(tiny_policy, sample_of, rows, seed, data):
    samples, policy = random_rows(sample_of, rows, seed), tiny_policy()
    moved = data.draw(st.permutations(samples))
    assert_equal(
        value_and_gradient(policy, [loss(policy, moved)]),
        value_and_gradient(policy, [loss(policy, samples)]),
    )


FORKS = {
    "equal rows": [[1, 2, 3, 4], [1, 2, 3, 4]],
    "a row that is the start of another": [[1, 2, 3], [1, 2, 3, 4, 5]],
    "a fork within a fork": [[1, 2, 3, 4, 5], [1, 2, 3, 6], [1, 2, 3, 4, 7], [1, 8]],
    "nothing in common": [[1, 2, 3], [4, 5, 6]],
}


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("rows", FORKS.values(), ids=FORKS)
def test_forks_give_what_their_rows_give_alone(tiny_policy, sample_of, rows, is_packed):
    samples = [sample_of(row, advantage=1.0 - n) for n, row in enumerate(rows)]
    shared, plain = tiny_policy(packed=is_packed), tiny_policy(packed=False)
    assert_equal(
        value_and_gradient(shared, [loss(shared, samples)]),
        value_and_gradient(plain, [loss(plain, [sample]) for sample in samples]),
    )


def test_a_draw_that_rows_share_is_scored_once_and_trained_by_each(sample_of):
    rows = [sample_of([1, 2, 3, 4], advantage=a) for a in (1.0, -1.0)]
    (batch,) = pack([*rows, sample_of([1, 2, 5], advantage=3.0)], 100)
    assert sorted(zip(batch.context_D.tolist(), batch.targets_D.tolist(), strict=True)) == [
        (0, 2),
        (1, 3),
        (1, 5),
        (2, 4),
    ]
    assert sorted(batch.advantages_N[batch.targets_N == 2].tolist()) == [-1.0, 1.0, 3.0]


def test_one_draw_under_two_constraints_is_two(sample_of):
    rows = [sample_of([1, 2], allowed=[None, allowed]) for allowed in ((2, 3), (2, 3, 4), None)]
    (batch,) = pack(rows, 100)
    assert batch.targets_D.tolist() == [2, 2, 2]
