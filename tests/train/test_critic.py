"""The critic: where values are read, what is bootstrapped, and what each part of it trains."""

import dataclasses
import io

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from scalinginter.algo.gae import estimate
from scalinginter.algo.ppo import PPO
from scalinginter.config.algorithms import PPOConfig
from scalinginter.config.schema import TrainConfig
from scalinginter.train.batch import to_samples
from scalinginter.train.learner import Learner
from scalinginter.types import Completion, FinishReason, StopReason, Task, Trajectory, Turn

LEVELS = ["token", "turn"]
KINDS = ["head", "model"]


def turn(context, ids, reward=0.0, *, forked=False, forced=False):
    count = len(ids)
    completion = Completion(
        token_ids=tuple(ids),
        logprobs=(-1.0,) * count,
        forced=(forced,) * count,
        allowed=(None,) * count,
        finish=FinishReason.STOP,
        policy_version=0,
    )
    return Turn(tuple(context), completion, "go", "go", "ok", reward, forked)


def episode(*turns, stop=StopReason.TERMINATED, **fields):
    return Trajectory(
        task=Task("t", "toy"),
        group_id="g",
        index=0,
        seed=0,
        horizon=5,
        turns=turns,
        stop=stop,
        success=False,
        **fields,
    )


TURNS = (turn([1, 2, 3], [4, 5], 0.25), turn([6, 7], [8, 9, 10]), turn([11], [12], 0.5))
ENDED = episode(*TURNS)
CUT = episode(*TURNS, stop=StopReason.HORIZON, next_ids=(13, 14))
TIGHT = episode(*TURNS, stop=StopReason.CONTEXT)
FORKED = episode(
    turn([1, 2, 3], [4, 5]), turn([6, 1, 7], [8], 0.5, forked=True),
    stop=StopReason.TOKENS, next_ids=(3, 1, 4), next_forked=True,
)  # fmt: skip


@pytest.fixture
def make(tiny_policy):
    """Return a function that makes a learner with a critic whose values are not all 0."""

    def build(*, packed=True, stirred=True, train=None, **algorithm):
        learner = Learner(
            tiny_policy(packed=packed),
            TrainConfig(**({"num_steps": 9, "learning_rate": 1e-2} | (train or {}))),
            PPO(PPOConfig(**algorithm)),
            Accelerator(cpu=True),
        )
        if stirred:
            source = torch.Generator().manual_seed(3)
            weight = learner._critic.module.head.weight
            weight.data.copy_(0.3 * torch.randn(weight.shape, generator=source))
        return learner

    return build


def rows_of(*episodes):
    return [
        row
        for number, played in enumerate(episodes)
        for row in to_samples(played, np.zeros(len(played.turns), np.float32), number)
    ]


def value_after(tiny_policy, learner, ids):
    """The value at the end of some ids, from the hidden states of a plain model."""
    model = tiny_policy(packed=False).model
    with torch.no_grad():
        hidden = model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state
        return float(learner._critic.module.head(hidden[0, -1]))


def everything(played):
    return [i for t in played.turns for i in (*t.context_ids, *t.completion.token_ids)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packed", [True, False])
def test_a_value_is_that_of_the_state_before_its_token(make, tiny_policy, packed, kind):
    learner = make(packed=packed, critic={"kind": kind})
    (row,), _ = learner.estimate(rows_of(ENDED), [ENDED])
    ids = everything(ENDED)
    for at in np.flatnonzero(row.mask):
        expected = value_after(tiny_policy, learner, ids[:at])
        assert row.values[at] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("played", "after"),
    [
        (CUT, [*everything(CUT), 13, 14]),
        (TIGHT, everything(TIGHT)),
        (FORKED, [3, 1, 4]),
    ],
    ids=["the next prompt", "the last token, where that did not fit", "a new prompt"],
)
def test_pitfall_12_a_cut_episode_ends_with_the_value_of_what_comes_after(
    make, tiny_policy, played, after, level
):
    learner = make(gae=level, lam=0.9, gamma=0.9, normalize_advantages=False)
    rows, metrics = learner.estimate(rows_of(played), [played])
    advantages, targets = estimate(
        np.array([t.reward for t in played.turns]),
        np.concatenate([row.turn_index[row.mask] for row in rows]),
        np.concatenate([row.values[row.mask] for row in rows]),
        value_after(tiny_policy, learner, after),
        level=level,
        gamma=0.9,
        lam=0.9,
    )
    got = np.concatenate([row.advantages[row.mask] for row in rows])
    np.testing.assert_allclose(got, advantages, atol=1e-5)
    got = np.concatenate([row.targets[row.mask] for row in rows])
    np.testing.assert_allclose(got, targets, atol=1e-5)
    assert metrics["value/bootstrapped_share"] == 1.0


@pytest.mark.parametrize("level", LEVELS)
def test_pitfall_12_nothing_comes_after_an_episode_that_the_environment_ended(make, level):
    learner = make(gae=level, lam=1.0, gamma=0.5, normalize_advantages=False)
    (ended,), metrics = learner.estimate(rows_of(ENDED), [ENDED])
    first = ended.mask.argmax()
    assert ended.targets[first] == pytest.approx(0.25 + 0.25 * 0.5, abs=1e-6)
    assert metrics["value/bootstrapped_share"] == 0.0


def test_bootstrapping_can_be_left_out(make):
    learner = make(lam=1.0, gamma=1.0, normalize_advantages=False, bootstrap_truncated=False)
    (cut,), _ = learner.estimate(rows_of(CUT), [CUT])
    assert cut.targets[cut.mask.argmax()] == pytest.approx(0.75, abs=1e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_pitfall_09_the_last_action_of_a_success_has_an_advantage_on_trained_tokens(make, level):
    win = episode(turn([1, 2], [3, 4]), turn([5], [6, 7], 1.0))
    learner = make(gae=level, stirred=False, normalize_advantages=False)
    (row,), _ = learner.estimate(rows_of(win), [win])
    assert (row.advantages[row.mask & (row.turn_index == 1)] > 0).all()


def test_a_turn_of_forced_ids_hands_its_reward_to_the_decision_before_it(make):
    played = episode(turn([1, 2], [3, 4]), turn([5], [6, 7], 1.0, forced=True))
    learner = make(stirred=False, normalize_advantages=False, lam=1.0)
    (row,), _ = learner.estimate(rows_of(played), [played])
    np.testing.assert_allclose(row.advantages[row.mask], [1.0, 1.0])


@pytest.mark.parametrize("level", LEVELS)
def test_advantages_are_whitened_over_the_decisions_of_the_batch(make, level):
    episodes = [ENDED, CUT, FORKED]
    learner = make(gae=level)
    rows, metrics = learner.estimate(rows_of(*episodes), episodes)
    decisions = np.concatenate([row.advantages[np.isfinite(row.targets)] for row in rows])
    assert decisions.mean() == pytest.approx(0.0, abs=1e-5)
    assert decisions.std(ddof=1) == pytest.approx(1.0, abs=1e-5)
    assert metrics["value/explained_variance"] < 1.0


def test_each_environment_is_whitened_by_itself_on_request(make):
    small = episode(turn([1, 2], [4, 5], 0.01), turn([6], [8]), family="small")
    episodes = [dataclasses.replace(ENDED, family="large"), small]
    rows, _ = make(normalize_by_task=True).estimate(rows_of(*episodes), episodes)
    for row in rows:
        decisions = row.advantages[row.mask]
        assert decisions.mean() == pytest.approx(0.0, abs=1e-5)
        assert decisions.std(ddof=1) == pytest.approx(1.0, abs=1e-5)


def test_whitening_by_environment_needs_whitening():
    with pytest.raises(ValueError, match="normalize_advantages: true"):
        PPOConfig(normalize_by_task=True, normalize_advantages=False)


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
def test_values_approach_the_returns(make, level, kind, packed):
    lost = episode(turn([1, 2, 15], [4, 16]), turn([17], [18]))
    learner = make(packed=packed, gae=level, critic={"kind": kind}, value_clip=None, lam=1.0)
    losses, explained = [], []
    for _ in range(15):
        rows, metrics = learner.estimate(rows_of(ENDED, lost), [ENDED, lost])
        still = [dataclasses.replace(r, advantages=np.zeros_like(r.advantages)) for r in rows]
        losses.append(learner.update(still)["loss/value"])
        explained.append(metrics["value/explained_variance"])
    assert losses[-1] < 0.3 * losses[0]
    assert explained[-1] > max(0.5, explained[0])


def test_a_critic_of_its_own_leaves_the_policy_to_the_policys_loss(make):
    learner = make(critic={"kind": "model"})
    policy = learner._critic.module.policy
    before = weights(policy)
    rows, _ = learner.estimate(rows_of(ENDED), [ENDED])
    learner.update([dataclasses.replace(r, advantages=np.zeros_like(r.advantages)) for r in rows])
    assert torch.equal(weights(policy), before)


@pytest.mark.parametrize("kind", KINDS)
def test_the_critic_warms_up_alone(make, kind):
    learner = make(critic={"kind": kind, "warmup_steps": 1})
    module = learner._critic.module
    before = weights(module.policy), weights(module.head)
    for still in (True, False):
        rows, _ = learner.estimate(rows_of(ENDED, CUT), [ENDED, CUT])
        learner.update(rows)
        assert torch.equal(weights(module.policy), before[0]) == still
    assert not torch.equal(weights(module.head), before[1])


def test_the_critic_learns_at_a_rate_of_its_own(make):
    learner = make(critic={"learning_rate": 0.5}, train={"warmup_steps": 2})
    rows, _ = learner.estimate(rows_of(ENDED), [ENDED])
    learner.update(rows)
    assert [g["lr"] for g in learner._optimizer.param_groups] == pytest.approx([0.005, 0.25])


@pytest.mark.parametrize("level", LEVELS)
def test_many_micro_batches_have_the_gradient_of_one(make, level):
    episodes = [ENDED, CUT, FORKED]
    results = []
    for tokens in (10_000, 1):
        train = {"micro_batch_tokens": tokens, "max_grad_norm": 1e6}
        learner = make(gae=level, train=train)
        metrics = learner.update(learner.estimate(rows_of(*episodes), episodes)[0])
        module = learner._critic.module
        results.append((torch.cat([p.grad.flatten() for p in module.parameters()]), metrics))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-6, rtol=1e-5)
    assert results[0][1]["loss/value"] == pytest.approx(results[1][1]["loss/value"], rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_pitfall_36_a_resumed_critic_goes_on_to_the_bit(make, kind):
    episodes, options = [ENDED, CUT, FORKED], {"critic": {"kind": kind}}

    def go_on(learner):
        rows, values = learner.estimate(rows_of(*episodes), episodes)
        return learner.update(rows) | values

    whole = make(**options)
    go_on(whole)
    file = io.BytesIO()
    torch.save((whole.state_dict(), whole._critic.module.policy.state_dict()), file)
    file.seek(0)
    state, policy = torch.load(file, weights_only=True)
    resumed = make(stirred=False, **options)
    resumed._critic.module.policy.load_state_dict(policy)
    resumed.load_state_dict(state)
    assert [go_on(whole), go_on(whole)] == [go_on(resumed), go_on(resumed)]
    assert torch.equal(weights(whole._critic.module), weights(resumed._critic.module))
