"""Ratios of sequences that packing has taken apart: rows of an episode, micro-batches, turns."""

import dataclasses

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from scalinginter.algo.registry import make_algorithm
from scalinginter.config.algorithms import GSPOConfig
from scalinginter.config.schema import TrainConfig
from scalinginter.train.batch import pack
from scalinginter.train.learner import Learner
from scalinginter.train.logprobs import score
from scalinginter.train.sequences import Sequences

WIDE = {"clip_low": 1.0, "clip_high": 1e9}  # nothing is clipped


@pytest.fixture
def gspo(tiny_policy):
    """Return a function that makes a learner with ratios of sequences."""

    def make(*, policy=None, micro_batch_tokens=10_000, **algorithm):
        train = {"num_steps": 10, "learning_rate": 1e-2, "max_grad_norm": 1e6}
        config = TrainConfig(**train, micro_batch_tokens=micro_batch_tokens)
        algorithm = make_algorithm(GSPOConfig(**(WIDE | algorithm)))
        return Learner(policy or tiny_policy(), config, algorithm, Accelerator(cpu=True))

    return make


@pytest.fixture
def forked_samples(random_samples):
    """Return a function that makes six rows of four episodes; turns change half-way along a row."""

    def make():
        samples = random_samples()
        episodes = [0, 1, 1, 2, 3, 3]
        for sample in samples:
            sample.turn_index[len(sample) // 2 :] = 1
        return [
            dataclasses.replace(
                s, episode=e, advantages=np.full_like(s.advantages, e - 1.5, dtype=np.float32)
            )
            for s, e in zip(samples, episodes, strict=True)
        ]

    return make


def gradient(learner):
    return torch.cat([p.grad.flatten() for p in learner._model.parameters()])


def log_ratios(policy, samples):
    """Return log-ratio, episode and turn of every trained token, row by row."""
    (batch,) = pack(samples, 10_000)
    logprobs = score(policy.model, batch, packed=policy.packed).logprobs
    rows = batch.row_N.tolist()
    turns = [
        samples[row].turn_index[at + 1]
        for row, at in zip(rows, batch.positions_T[batch.logit_index_N].tolist(), strict=True)
    ]
    return logprobs - batch.behaviour_N, [samples[row].episode for row in rows], turns


@pytest.mark.parametrize("sequence", ["episode", "turn"])
def test_the_gradient_is_that_of_the_published_equation_over_an_episodes_rows(
    gspo, forked_samples, tiny_policy, sequence
):
    samples, policy, learner = forked_samples(), tiny_policy(), gspo(sequence=sequence)
    learner.update(samples)
    values, episodes, turns = log_ratios(policy, samples)
    keys = [(e, t if sequence == "turn" else 0) for e, t in zip(episodes, turns, strict=True)]
    loss = 0.0
    for key in set(keys):  # exp(mean log-ratio) of each sequence, weighed by its tokens
        own = torch.tensor([k == key for k in keys])
        share = own.sum() / episodes.count(key[0]) / 4
        loss = loss - values[own].mean().exp() * (key[0] - 1.5) * share
    loss.backward()
    exact = torch.cat([p.grad.flatten() for p in policy.model.parameters()])
    torch.testing.assert_close(gradient(learner), exact, atol=1e-5, rtol=1e-4)


def test_pitfall_11_an_episode_in_several_micro_batches_has_one_ratio(gspo, forked_samples):
    whole, divided = gspo(), gspo(micro_batch_tokens=1)
    metrics = [learner.update(forked_samples()) for learner in (whole, divided)]
    torch.testing.assert_close(gradient(whole), gradient(divided), atol=1e-5, rtol=1e-4)
    assert metrics[0]["loss/ratio_mean"] == pytest.approx(metrics[1]["loss/ratio_mean"], abs=1e-6)


def test_only_an_episode_in_several_micro_batches_costs_another_forward_pass(
    gspo, forked_samples, random_samples
):
    alone = gspo(micro_batch_tokens=1).update(random_samples())["update/forward_tokens"]
    divided = gspo(micro_batch_tokens=1).update(forked_samples())["update/forward_tokens"]
    assert divided == 2 * alone


def test_gradient_checkpointing_does_not_disturb_that_pass(gspo, forked_samples, tiny_policy):
    policy = tiny_policy()
    policy.model.gradient_checkpointing_enable()
    keeping = gspo(micro_batch_tokens=1)
    recomputing = gspo(micro_batch_tokens=1, policy=policy)
    for learner in (keeping, recomputing):
        learner.update(forked_samples())
    torch.testing.assert_close(gradient(keeping), gradient(recomputing), atol=1e-6, rtol=1e-5)


def test_a_row_without_advantage_counts_in_the_ratio_of_its_episode(gspo, forked_samples):
    samples = forked_samples()
    samples[2] = dataclasses.replace(samples[2], advantages=np.zeros_like(samples[2].advantages))
    skipping, forwarding = gspo(), gspo()
    forwarding.algorithm.uses_every_token = True
    for learner in (skipping, forwarding):
        learner.update(samples)
    torch.testing.assert_close(gradient(skipping), gradient(forwarding), atol=1e-6, rtol=1e-5)


def test_means_do_not_depend_on_how_rows_were_packed(forked_samples):
    samples = forked_samples()
    found = []
    for tokens in (10_000, 1):
        batches = pack(samples, tokens)
        means = Sequences(samples, batches, "episode").means([b.behaviour_N for b in batches])
        by_episode = [{} for _ in samples]
        for batch, mean in zip(batches, means, strict=True):
            for row, value in zip(batch.row_N.tolist(), mean.tolist(), strict=True):
                by_episode[samples[row].episode][value] = True
        found.append([list(means) for means in by_episode[:4]])
    assert found[0] == found[1]
    assert [len(means) for means in found[0]] == [1, 1, 1, 1]
