"""PPO's loss: the policy's part, the values' part, and what a mask leaves of them."""

import pytest
import torch

from scalinginter.algo.loss import LossBatch, ValueBatch, value_loss
from scalinginter.algo.ppo import PPO
from scalinginter.algo.registry import make_algorithm
from scalinginter.config.algorithms import GRPOConfig, PPOConfig
from scalinginter.config.load import validate
from scalinginter.errors import ConfigError

NAN = float("nan")


def errors(values, old, targets, clip):
    return value_loss(*map(torch.tensor, (values, old, targets)), clip)


def batch(values, *, targets=(1.0, NAN, 0.0), advantages=(1.0, -1.0, 0.5)):
    return LossBatch(
        logprobs=torch.full((3,), -1.0),
        old=torch.full((3,), -1.0),
        reference=None,
        entropy=torch.zeros(3),
        advantages=torch.tensor(advantages),
        weights=torch.full((3,), 1 / 3),
        mask=torch.ones(3, dtype=torch.bool),
        values=ValueBatch(
            values=values,
            old=torch.tensor([0.0, 0.0, 0.5]),
            targets=torch.tensor(targets),
            weights=torch.tensor([0.5, 0.0, 0.5]),
        ),
    )


def test_the_value_loss_is_half_the_squared_error():
    assert errors([0.5, 2.0], [0.0, 0.0], [1.0, 0.0], None).tolist() == [0.125, 2.0]


def test_a_value_that_moved_too_far_toward_its_target_has_no_gradient():
    values = torch.tensor([0.5, 0.1, -0.5], requires_grad=True)
    old, targets = torch.zeros(3), torch.ones(3)
    losses = value_loss(values, old, targets, 0.2)
    losses.sum().backward()
    assert losses.tolist() == pytest.approx([0.5 * 0.8**2, 0.5 * 0.9**2, 0.5 * 1.5**2])
    assert values.grad.tolist() == pytest.approx([0.0, -0.9, -1.5])


def test_pitfall_16_a_value_without_a_target_adds_nothing_whatever_it_holds():
    values = torch.tensor([0.5, NAN], requires_grad=True)
    losses = value_loss(values, torch.zeros(2), torch.tensor([1.0, NAN]), 0.2)
    losses.sum().backward()
    assert losses[1].item() == 0.0
    assert values.grad[1].item() == 0.0


def test_the_loss_is_that_of_the_policy_plus_that_of_the_values():
    terms = PPO(PPOConfig(value_clip=None, value_coefficient=0.5)).loss(
        batch(torch.tensor([0.5, 7.0, 0.5]))
    )
    policy, value = -0.5 / 3, 0.5 * 0.125 + 0.5 * 0.125
    assert terms.loss.item() == pytest.approx(policy + 0.5 * value)
    assert terms.sums["loss/value"].item() == pytest.approx(value)


def test_the_share_of_clipped_values_is_told():
    terms = PPO(PPOConfig(value_clip=0.2)).loss(batch(torch.tensor([0.5, 7.0, 0.5])))
    assert terms.sums["loss/value_clip_share"].item() == pytest.approx(0.5)


def test_a_missing_critic_is_an_error():
    tokens = batch(torch.zeros(3))
    without = LossBatch(**{n: getattr(tokens, n) for n in LossBatch.__slots__} | {"values": None})
    with pytest.raises(ValueError, match="critic"):
        PPO(PPOConfig()).loss(without)


def recipe(algorithm):
    return {
        "environment": {"id": "toy_corridor"},
        "horizon": {"kind": "fixed", "turns": 5},
        "train": {"num_steps": 3},
        "eval": {"horizon": 5},
        "algorithm": algorithm,
    }


def test_an_algorithm_without_a_kind_is_grpo():
    config = validate(recipe({"kl_coefficient": 0.1}), "r").algorithm
    assert config == GRPOConfig(kl_coefficient=0.1)


def test_a_recipe_names_ppo_and_its_critic():
    algorithm = {"kind": "ppo", "gae": "turn", "critic": {"kind": "model", "warmup_steps": 3}}
    config = validate(recipe(algorithm), "r").algorithm
    assert isinstance(make_algorithm(config), PPO)
    assert config.critic.warmup_steps == 3


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        ({"kind": "pppo"}, "did you mean 'ppo'"),
        ({"kind": "ppo", "gea": "turn"}, "algorithm.gea: unknown key (did you mean 'gae'?)"),
        ({"kind": "ppo", "critic": {"kind": "haed"}}, "did you mean 'head'"),
        ({"kind": "ppo", "lam": 1.5}, "algorithm.lam: "),
        ({"kind": "ppo", "gamma": 1.0}, "set gamma below 1 (0.99) or bootstrap_truncated: false"),
        ({"kl_coeficient": 0.1}, "did you mean 'kl_coefficient'"),
    ],
)
def test_pitfall_39_a_wrong_key_of_an_algorithm_names_the_nearest(algorithm, sentence):
    with pytest.raises(ConfigError) as caught:
        validate(recipe(algorithm), "r")
    assert sentence in str(caught.value)
