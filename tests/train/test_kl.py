"""The KL of a learner: it pulls toward its reference, which moves, and whose weight follows."""

import dataclasses
import io

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from scalinginter.algo.registry import make_algorithm
from scalinginter.config.lora import LoRAConfig
from scalinginter.config.schema import GRPOConfig, TrainConfig
from scalinginter.model.lora import add_adapter
from scalinginter.train.batch import pack
from scalinginter.train.learner import Learner
from scalinginter.train.logprobs import score
from scalinginter.train.reference import Reference

KL = {"kl_coefficient": 0.1, "kl_target": 1e-3, "reference_every": 3}


@pytest.fixture
def make_learner(tiny_policy):
    """Return a function that makes a learner of the tiny policy."""

    def make(*, policy=None, learning_rate=1e-2, **algorithm):
        config = TrainConfig(num_steps=10, learning_rate=learning_rate)
        algorithm = make_algorithm(GRPOConfig(**algorithm))
        return Learner(policy or tiny_policy(), config, algorithm, Accelerator(cpu=True))

    return make


@pytest.fixture
def silent_samples(random_samples):
    """Return a function that makes rows without an advantage: only a KL has a gradient."""

    def make(**options):
        return [
            dataclasses.replace(s, advantages=np.zeros_like(s.advantages))
            for s in random_samples(**options)
        ]

    return make


def logprobs(policy, samples):
    (batch,) = pack(samples, 10_000)
    with torch.no_grad():
        return score(policy.model, batch, packed=policy.packed).logprobs


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_pitfall_17_updates_on_the_kl_alone_bring_the_policy_back(
    make_learner, random_samples, silent_samples, estimator
):
    algorithm = {"kl_coefficient": 1.0, "kl_estimator": estimator}
    learner = make_learner(learning_rate=1e-3, **algorithm)
    for step in range(5):
        learner.update(random_samples(seed=step))
    away = [abs(learner.update(silent_samples())["loss/kl"]) for _ in range(6)]
    assert away[-1] < 0.5 * away[0]


def test_the_coefficient_grows_while_the_kl_is_above_its_target(make_learner, random_samples):
    learner = make_learner(kl_coefficient=0.1, kl_target=1e-4)
    found = [learner.update(random_samples())["kl/coefficient"] for _ in range(3)]
    assert found == pytest.approx([0.1, 0.1 * 0.98, 0.1 * 0.98 * 1.02])


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant"])
def test_the_kl_that_is_compared_is_that_of_a_token_whatever_the_aggregation(
    make_learner, random_samples, tiny_policy, aggregation
):
    samples = random_samples()
    samples = [s for s in samples if s.mask.sum() == samples[0].mask.sum()]  # weights are equal
    policy = tiny_policy()
    learner = make_learner(policy=policy, kl_coefficient=0.1, loss_aggregation=aggregation)
    learner.update(random_samples(seed=1))
    gap = logprobs(policy, samples) - logprobs(tiny_policy(), samples)
    expected = (torch.exp(-gap) - 1 + gap).mean().item()
    assert learner.update(samples)["kl/mean"] == pytest.approx(expected, rel=1e-3)


def test_the_reference_moves_every_so_many_updates(make_learner, random_samples):
    learner = make_learner(kl_coefficient=0.1, reference_every=2)
    metrics = [learner.update(random_samples(seed=step)) for step in range(5)]
    assert [m["kl/reference_moved"] for m in metrics] == [0, 1, 0, 1, 0]
    at_reference = [m["kl/mean"] < 1e-7 for m in metrics]
    assert at_reference == [True, False, True, False, True]


def test_a_skipped_step_moves_neither_coefficient_nor_reference(make_learner, random_samples):
    learner = make_learner(**KL)
    learner.update(random_samples())
    state = learner.algorithm.state_dict(), learner.updates
    assert learner.update([])["update/skipped"] == 1.0
    assert (learner.algorithm.state_dict(), learner.updates) == state


def test_pitfall_36_a_resumed_learner_has_the_same_coefficient_and_reference(
    make_learner, random_samples, tiny_policy
):
    whole = make_learner(**KL)
    for step in range(4):
        whole.update(random_samples(seed=step))
    file = io.BytesIO()
    torch.save((whole.state_dict(), whole._model.state_dict()), file)
    file.seek(0)
    state, model = torch.load(file, weights_only=True)
    policy = tiny_policy(seed=1)
    policy.model.load_state_dict(model)
    resumed = make_learner(policy=policy, **KL)
    resumed.load_state_dict(state)
    for step in range(4, 8):
        metrics = [x.update(random_samples(seed=step)) for x in (whole, resumed)]
        assert metrics[0] == metrics[1]


def test_a_fixed_coefficient_is_the_recipes_after_a_resume(make_learner):
    state = make_learner(kl_coefficient=0.1).state_dict()
    learner = make_learner(kl_coefficient=0.2)
    learner.load_state_dict(state)
    assert learner.algorithm.kl_coefficient == 0.2


@pytest.fixture
def adapted(tiny_policy):
    """The tiny policy with a LoRA adapter that is no longer fresh, and what it was before."""
    policy = tiny_policy()
    add_adapter(policy.model, LoRAConfig(r=2), base="tiny", seed=0)
    reference = Reference(policy.model, every=2)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    return policy, reference


def test_with_lora_the_reference_is_the_base_under_the_adapter(
    adapted, tiny_policy, random_samples
):
    policy, reference = adapted
    (batch,) = pack(random_samples(), 10_000)
    found = reference.logprobs(batch, packed=policy.packed, temperature=1.0)
    torch.testing.assert_close(found, logprobs(tiny_policy(), random_samples()))
    assert not torch.allclose(found, logprobs(policy, random_samples()), atol=1e-3)


def test_with_lora_a_moving_reference_takes_the_adapter_of_then(adapted, random_samples):
    policy, reference = adapted
    then = logprobs(policy, random_samples())
    assert [reference.follow(updates) for updates in (0, 1, 2)] == [False, False, True]
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    (batch,) = pack(random_samples(), 10_000)
    found = reference.logprobs(batch, packed=policy.packed, temperature=1.0)
    torch.testing.assert_close(found, then)
