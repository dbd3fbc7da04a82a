"""Tokens that another policy drew: who says pi_old, what weighs them, what is logged."""

import dataclasses

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from scalinginter.algo.registry import make_algorithm
from scalinginter.config.algorithms import GRPOConfig
from scalinginter.config.schema import TrainConfig
from scalinginter.train.batch import pack
from scalinginter.train.learner import Learner
from scalinginter.train.logprobs import score
from scalinginter.train.off_policy import recomputes


@pytest.fixture
def make_learner(tiny_policy):
    """Return a function that makes a learner of the tiny policy."""

    def make(*, policy=None, tokens=10_000, num_minibatches=1, **algorithm):
        train = {"num_steps": 10, "learning_rate": 1e-2, "max_grad_norm": 1e6}
        config = TrainConfig(**train, micro_batch_tokens=tokens, num_minibatches=num_minibatches)
        algorithm = make_algorithm(GRPOConfig(**algorithm))
        return Learner(policy or tiny_policy(), config, algorithm, Accelerator(cpu=True))

    return make


@pytest.fixture
def drawn(tiny_policy, random_samples):
    """Return a function that gives rows the policy's own log-probs, less `lag(row)` per token."""

    def make(lag=lambda row: 0.0, **options):
        policy, samples = tiny_policy(), random_samples(**options)
        arrays = [sample.logprobs.copy() for sample in samples]
        for batch in pack(samples, 10_000):
            logprobs = score(policy.model, batch, packed=policy.packed).logprobs.detach()
            positions = batch.positions_T[batch.logit_index_N] + 1
            for row, at, value in zip(batch.row_N.tolist(), positions, logprobs, strict=True):
                arrays[row][at] = value - lag(row)
        return [dataclasses.replace(s, logprobs=a) for s, a in zip(samples, arrays, strict=True)]

    return make


def gradient(learner):
    return torch.cat([p.grad.flatten() for p in learner._model.parameters()])


def tokens_of(samples):
    return np.array([int(s.mask.sum()) for s in samples])


@pytest.mark.parametrize(
    ("choice", "correction", "gap", "expected"),
    [
        ("engine", "none", 1.0, False),
        ("recompute", "none", 0.0, True),
        ("auto", "none", 1.0, False),  # the ratio to the engine's log-probs is the correction
        ("auto", "token", 1e-4, False),
        ("auto", "token", 1e-2, True),
        ("auto", "token", float("nan"), True),
    ],
)
def test_pi_old_is_the_engines_where_parity_holds(choice, correction, gap, expected):
    config = GRPOConfig(old_logprobs=choice, correction=correction)
    assert recomputes(config, lambda: gap) is expected


@pytest.mark.parametrize(("lag", "recomputed"), [(0.0, 0.0), (0.1, 1.0)])
def test_auto_looks_at_the_tokens_of_this_very_step(make_learner, drawn, lag, recomputed):
    metrics = make_learner(correction="token").update(drawn(lag=lambda row: lag))
    assert metrics["update/old_logprobs_recomputed"] == recomputed


def test_with_parity_all_weights_are_one(make_learner, drawn):
    metrics = make_learner(correction="token").update(drawn())
    assert metrics["correction/weight_mean"] == metrics["correction/weight_max"] == 1.0


def test_on_the_policys_own_tokens_both_ways_have_the_same_gradient(make_learner, drawn):
    learners = make_learner(), make_learner(correction="token", old_logprobs="recompute")
    for learner in learners:
        learner.update(drawn())
    torch.testing.assert_close(*map(gradient, learners), atol=1e-6, rtol=1e-5)


def test_a_recomputed_ratio_starts_at_one_whatever_the_engine_said(make_learner, drawn):
    metrics = make_learner(old_logprobs="recompute").update(drawn(lag=lambda row: 0.4))
    assert metrics["loss/ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["update/logprob_gap_max"] == pytest.approx(0.4, abs=1e-4)


def test_recomputing_costs_one_forward_pass(make_learner, drawn):
    names = ("engine", "recompute")
    engine, recompute = (
        make_learner(old_logprobs=name).update(drawn())["update/forward_tokens"] for name in names
    )
    assert recompute == 2 * engine


def test_token_weights_scale_the_gradient_up_to_their_bound(make_learner, drawn):
    plain = make_learner(old_logprobs="recompute")
    plain.update(drawn())
    for lag, factor in ((np.log(1.5), 1.5), (np.log(5.0), 2.0), (-np.log(4.0), 0.25)):
        learner = make_learner(correction="token")
        learner.update(drawn(lag=lambda row, lag=lag: lag))
        torch.testing.assert_close(
            gradient(learner), factor * gradient(plain), atol=1e-5, rtol=1e-4
        )


def test_weights_of_tokens_are_logged_by_their_share_in_the_loss(make_learner, drawn):
    lags = np.log([1.0, 1.0, 1.5, 1.5, 8.0, 0.5])
    samples = drawn(lag=lambda row: lags[row])
    metrics = make_learner(correction="token").update(samples)
    share = tokens_of(samples) / tokens_of(samples).sum()
    expected = {
        "correction/weight_mean": share @ [1.0, 1.0, 1.5, 1.5, 2.0, 0.5],
        "correction/weight_max": 8.0,
        "correction/truncated_share": share[4],
        "correction/masked_share": 0.0,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-4)


def test_a_sequences_weight_is_the_product_over_all_rows_of_the_episode(make_learner, drawn):
    samples = drawn(lag=lambda row: 0.01)
    samples = [dataclasses.replace(s, episode=i // 2) for i, s in enumerate(samples)]
    counts = tokens_of(samples).reshape(3, 2).sum(1)
    metrics = make_learner(correction="sequence", correction_max=10.0).update(samples)
    expected = (counts * np.exp(0.01 * counts)).sum() / counts.sum()
    assert metrics["correction/weight_mean"] == pytest.approx(expected, abs=1e-4)


def test_a_sequence_that_is_a_turn_has_the_product_of_its_own_tokens(make_learner, drawn):
    samples = drawn(lag=lambda row: 0.01)
    for sample in samples:
        sample.turn_index[:] = np.cumsum(sample.mask)  # every token a turn of its own
    options = {"correction": "sequence", "correction_max": 10.0, "sequence": "turn"}
    metrics = make_learner(**options).update(samples)
    assert metrics["correction/weight_mean"] == pytest.approx(np.exp(0.01), abs=1e-5)


def test_pitfall_11_masked_episodes_leave_the_normaliser(make_learner, drawn):
    lags = [0.0, 0.0, 0.0, 0.0, 0.9, -0.9]
    masking = make_learner(correction="geometric_mask")
    metrics = masking.update(drawn(lag=lambda row: lags[row]))
    alone = make_learner()
    alone.update(drawn()[:4])
    torch.testing.assert_close(gradient(masking), gradient(alone), atol=1e-5, rtol=1e-4)
    samples = drawn()
    share = tokens_of(samples)[4:].sum() / tokens_of(samples).sum()
    assert metrics["correction/masked_share"] == pytest.approx(share, abs=1e-5)


def test_pitfall_15_a_step_whose_episodes_are_all_masked_changes_nothing(make_learner, drawn):
    learner = make_learner(correction="geometric_mask")
    before = [p.detach().clone() for p in learner._model.parameters()]
    metrics = learner.update(drawn(lag=lambda row: 2.0))
    assert (metrics["update/skipped"], metrics["correction/masked_share"]) == (1.0, 1.0)
    assert all(map(torch.equal, before, learner._model.parameters()))


@pytest.mark.parametrize("kind", ["token", "sequence", "geometric_mask"])
def test_many_micro_batches_have_the_gradient_of_one(make_learner, drawn, kind):
    found = []
    for tokens in (10_000, 1):
        samples = drawn(lag=lambda row: 0.1 * row)
        samples = [dataclasses.replace(s, episode=i // 2) for i, s in enumerate(samples)]
        learner = make_learner(correction=kind, tokens=tokens, correction_band=[0.5, 1.3])
        learner.update(samples)
        found.append(gradient(learner))
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)
