"""GRPO from groups to its loss."""

import numpy as np
import pytest
import torch

from scalinginter.algo.grpo import GRPO
from scalinginter.algo.loss import LossBatch
from scalinginter.algo.registry import make_algorithm
from scalinginter.config.schema import GRPOConfig
from scalinginter.train.batch import to_samples
from scalinginter.types import Completion, FinishReason, Group, StopReason, Task, Trajectory, Turn


def turn(context, ids, *, reward=0.0, forked=False):
    completion = Completion(
        token_ids=tuple(ids),
        logprobs=(-1.0,) * len(ids),
        forced=(False,) * len(ids),
        allowed=(None,) * len(ids),
        finish=FinishReason.STOP,
        policy_version=0,
    )
    return Turn(tuple(context), completion, "go", "go", "ok", reward, forked)


def trajectory(index, reward, *, stop=StopReason.TERMINATED, turns=3, forked=False):
    return Trajectory(
        task=Task("t", "toy"),
        group_id="g",
        index=index,
        seed=0,
        horizon=5,
        turns=tuple(
            turn([1, 2], [3, 4], reward=reward if i == turns - 1 else 0.0, forked=forked and i > 0)
            for i in range(turns)
        ),
        stop=stop,
        success=reward == 1.0,
    )


def advantages(trajectories, **config):
    return GRPO(GRPOConfig(**config)).advantages([Group("g", tuple(trajectories))])[0]


def test_every_turn_of_an_episode_has_the_advantage_of_the_episode():
    good, _ = advantages([trajectory(0, 1.0), trajectory(1, 0.0)], normalize_advantages=False)
    assert good.tolist() == [0.5, 0.5, 0.5]


def test_pitfall_09_the_last_action_of_a_success_has_an_advantage_on_trained_tokens():
    episode = trajectory(0, 1.0)
    good, _ = advantages([episode, trajectory(1, 0.0)])
    (sample,) = to_samples(episode, good, 0)
    last_action = sample.mask & (sample.turn_index == 2)
    assert last_action.any()
    assert (sample.advantages[last_action] > 0).all()


def test_pitfall_09_actions_that_the_environment_answers_have_an_advantage_too():
    episode = trajectory(0, 1.0)
    good, _ = advantages([episode, trajectory(1, 0.0)])
    (sample,) = to_samples(episode, good, 0)
    assert (sample.advantages[sample.mask] > 0).all()
    assert not sample.mask[sample.turn_index == 1][:2].any()  # the answer to turn 0


def test_pitfall_10_a_group_of_one_is_an_error():
    with pytest.raises(ValueError, match="at least 2"):
        advantages([trajectory(0, 1.0)])


def test_pitfall_10_groups_of_different_sizes_are_an_error():
    two = Group("g", (trajectory(0, 1.0), trajectory(1, 0.0)))
    three = Group("g", (*two.trajectories, trajectory(2, 0.0)))
    with pytest.raises(ValueError, match="one size"):
        GRPO(GRPOConfig()).advantages([two, three])


def test_pitfall_11_an_episode_of_many_rows_counts_once_in_its_baseline():
    forked = [trajectory(0, 1.0, forked=True), trajectory(1, 0.0), trajectory(2, 0.0)]
    whole = [trajectory(0, 1.0), trajectory(1, 0.0), trajectory(2, 0.0)]
    np.testing.assert_array_equal(advantages(forked), advantages(whole))


@pytest.mark.parametrize("stop", [StopReason.HORIZON, StopReason.TOKENS, StopReason.CONTEXT])
def test_pitfall_12_truncated_episodes_keep_what_they_earned_or_leave(stop):
    episodes = [trajectory(0, 1.0), trajectory(1, 0.0), trajectory(2, 0.5, stop=stop)]
    kept = advantages(episodes, normalize_advantages=False)
    dropped = advantages(episodes, normalize_advantages=False, truncated="drop")
    assert [a.tolist() for a in kept] == [[0.5] * 3, [-0.5] * 3, [0.0] * 3]
    assert [a.tolist() for a in dropped] == [[0.5] * 3, [-0.5] * 3, []]


@pytest.mark.parametrize(
    "stop", [StopReason.ENV_ERROR, StopReason.TIMEOUT, StopReason.ENGINE_ERROR]
)
def test_pitfall_13_a_failure_of_the_infrastructure_is_not_a_reward_of_zero(stop):
    episodes = [trajectory(0, 1.0), trajectory(1, 0.0), trajectory(2, 0.0, stop=stop)]
    without = advantages(episodes[:2])
    assert [a.tolist() for a in advantages(episodes)] == [*(a.tolist() for a in without), []]


def test_pitfall_13_a_failed_episode_has_no_training_rows():
    failed = trajectory(0, 0.0, stop=StopReason.ENV_ERROR)
    assert to_samples(failed, np.ones(3, dtype=np.float32), 0) == []


def batch(logprobs, **changes):
    count = len(logprobs)
    fields = {
        "logprobs": logprobs,
        "old": torch.full((count,), -1.0),
        "reference": torch.full((count,), -1.2),
        "entropy": torch.full((count,), 0.7),
        "advantages": torch.linspace(-1, 1, count),
        "weights": torch.full((count,), 1 / count),
        "mask": torch.ones(count, dtype=torch.bool),
    }
    return LossBatch(**(fields | changes))


def test_on_policy_the_gradient_is_that_of_the_policy_gradient():
    logprobs = torch.full((4,), -1.0, requires_grad=True)
    tokens = batch(logprobs)
    make_algorithm(GRPOConfig()).loss(tokens).loss.backward()
    torch.testing.assert_close(logprobs.grad, -tokens.advantages / 4)


def test_the_loss_is_policy_plus_kl_minus_entropy():
    config = GRPOConfig(kl_coefficient=0.5, kl_estimator="k2", entropy_bonus=0.1)
    terms = GRPO(config).loss(batch(torch.full((4,), -1.0)))
    expected = 0.0 + 0.5 * 0.5 * 0.2**2 - 0.1 * 0.7
    assert terms.loss.item() == pytest.approx(expected, abs=1e-6)


def test_a_kl_in_the_reward_does_not_enter_the_loss_twice():
    config = GRPOConfig(kl_coefficient=0.5, kl_estimator="k1", kl_in="reward")
    terms = GRPO(config).loss(batch(torch.full((4,), -1.0), advantages=torch.zeros(4)))
    assert terms.loss.item() == pytest.approx(0.5 * 0.2, abs=1e-6)  # -(A - 0.5 * 0.2) at ratio 1


def test_a_missing_reference_is_an_error_where_the_loss_needs_it():
    with pytest.raises(ValueError, match="reference"):
        GRPO(GRPOConfig(kl_coefficient=0.1)).loss(batch(torch.zeros(2), reference=None))


def test_metrics_of_micro_batches_add_up_to_those_of_the_whole():
    logprobs = torch.linspace(-2, -0.5, 6)
    whole = batch(logprobs)
    algorithm = GRPO(GRPOConfig())

    def part(span):
        names = ("logprobs", "old", "reference", "entropy", "advantages", "weights", "mask")
        return LossBatch(**{name: getattr(whole, name)[span] for name in names})

    total = algorithm.loss(whole)
    parts = [algorithm.loss(part(slice(0, 2))), algorithm.loss(part(slice(2, 6)))]
    for name, value in (total.sums | total.averages).items():
        assert sum((p.sums | p.averages)[name] for p in parts) == pytest.approx(
            value.item(), abs=1e-6
        )
