"""The cold start imitates what it is shown, under the constraint it was shown it."""

import dataclasses

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from scalinginter.config.schema import SFTConfig
from scalinginter.train.sft import cold_start


@pytest.fixture
def run():
    """Return a function that runs a cold start and returns its metrics."""

    def start(policy, demonstrations, **options):
        lines = []
        config = SFTConfig(**({"num_epochs": 4, "batch_size": 2, "learning_rate": 1e-2} | options))
        cold_start(
            policy,
            demonstrations,
            config,
            accelerator=Accelerator(cpu=True),
            micro_batch_tokens=64,
            seed=3,
            report=lambda step, metrics: lines.append((step, metrics)),
        )
        return lines

    return start


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


def test_the_loss_falls_below_half(run, tiny_policy, random_samples):
    losses = [
        m["loss/sft"] for _, m in run(tiny_policy(), random_samples(num_groups=1), num_epochs=12)
    ]
    assert np.mean(losses[-3:]) < 0.5 * np.mean(losses[:3])


def test_every_epoch_shows_every_demonstration_once(run, tiny_policy, random_samples):
    lines = run(tiny_policy(), random_samples(num_groups=1, group_size=5), num_epochs=2)
    trained = sum(int(s.mask.sum()) for s in random_samples(num_groups=1, group_size=5))
    assert [step for step, _ in lines] == list(range(6))  # 5 demonstrations, 2 a step, 2 epochs
    assert sum(m["update/tokens"] for _, m in lines) == 2 * trained


def test_the_same_start_twice_is_identical_to_the_bit(run, tiny_policy, random_samples):
    policies = [tiny_policy(), tiny_policy()]
    lines = [run(policy, random_samples(), num_epochs=1) for policy in policies]
    assert lines[0] == lines[1]
    assert torch.equal(*map(weights, policies))


def test_log_probs_and_advantages_of_demonstrations_are_not_read(run, tiny_policy, random_samples):
    blind = [
        dataclasses.replace(
            s,
            logprobs=np.full_like(s.logprobs, np.nan),
            advantages=np.full_like(s.advantages, np.nan),
        )
        for s in random_samples()
    ]
    policies = [tiny_policy(), tiny_policy()]
    run(policies[0], random_samples(), num_epochs=1)
    run(policies[1], blind, num_epochs=1)
    assert torch.equal(*map(weights, policies))


def test_the_first_loss_is_the_cross_entropy_over_the_allowed_ids(run, tiny_policy, random_samples):
    (sample,) = random_samples(num_groups=1, group_size=1)
    plain = tiny_policy(packed=False).model
    logits = plain(input_ids=torch.from_numpy(sample.ids)[None]).logits[0]
    losses = []
    for t in np.flatnonzero(sample.mask).tolist():
        allowed = sample.allowed[t] or tuple(range(logits.shape[-1]))
        at = allowed.index(int(sample.ids[t]))
        losses.append(-logits[t - 1, list(allowed)].log_softmax(0)[at].item())
    _, metrics = run(tiny_policy(), [sample])[0]
    assert metrics["loss/sft"] == pytest.approx(np.mean(losses), abs=1e-5)
