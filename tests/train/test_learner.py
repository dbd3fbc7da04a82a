"""The learner: normalisation, equivalences, guards, exact resume, and that it learns."""

import dataclasses
import io

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from scalinginter.algo.advantage import group_advantages
from scalinginter.algo.registry import make_algorithm
from scalinginter.config.schema import GRPOConfig, TrainConfig
from scalinginter.train.batch import pack
from scalinginter.train.learner import Learner
from scalinginter.train.logprobs import score
from scalinginter.train.minibatch import split
from scalinginter.train.packed import PackedLayout
from scalinginter.train.trie import PrefixTree
from scalinginter.types import TrainingSample


@pytest.fixture
def make_learner(tiny_policy):
    """Return a function that makes a learner of the tiny policy."""

    def make(*, algorithm=None, policy=None, total_steps=None, **train):
        config = TrainConfig(**({"num_steps": 10, "learning_rate": 1e-2} | train))
        return Learner(
            policy or tiny_policy(),
            config,
            make_algorithm(GRPOConfig(**(algorithm or {}))),
            Accelerator(cpu=True),
            total_steps,
        )

    return make


def weights(learner):
    return torch.cat([p.detach().flatten() for p in learner._model.parameters()])


def gradient(learner):
    return torch.cat([p.grad.flatten() for p in learner._model.parameters()])


def with_behaviour(policy, samples):
    """Give samples the log-probs of the policy itself, as if it had just drawn them."""
    arrays = [sample.logprobs.copy() for sample in samples]
    for batch in pack(samples, 10_000):
        logprobs = score(policy.model, batch, packed=policy.packed).logprobs.detach()
        positions = batch.positions_T[batch.logit_index_N] + 1
        for row, at, value in zip(batch.row_N, positions, logprobs, strict=True):
            arrays[row][at] = value
    return [dataclasses.replace(s, logprobs=a) for s, a in zip(samples, arrays, strict=True)]


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
def test_many_micro_batches_have_the_gradient_of_one(make_learner, random_samples, aggregation):
    samples = random_samples(num_groups=2, group_size=4)
    algorithm = {"loss_aggregation": aggregation, "kl_coefficient": 0.1, "entropy_bonus": 0.1}
    learners = [
        make_learner(algorithm=algorithm, micro_batch_tokens=tokens, max_grad_norm=1e6)
        for tokens in (10_000, 1)
    ]
    metrics = [learner.update(samples) for learner in learners]
    torch.testing.assert_close(gradient(learners[0]), gradient(learners[1]), atol=1e-6, rtol=1e-5)
    for name in ("loss/policy", "loss/entropy", "loss/ratio_mean", "loss/clip_low_share"):
        assert metrics[0][name] == pytest.approx(metrics[1][name], abs=1e-6)


def test_the_same_update_twice_is_identical_to_the_bit(make_learner, random_samples):
    results = []
    for _ in range(2):
        learner = make_learner(num_minibatches=2, num_epochs=2)
        metrics = [learner.update(random_samples(seed=step)) for step in range(2)]
        results.append((metrics, weights(learner)))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


def test_pitfall_11_a_token_mean_weighs_every_trained_token_alike(make_learner, random_samples):
    samples = random_samples(num_groups=1, group_size=3)
    learner = make_learner()
    (minibatch,) = [learner._minibatch(samples)]
    num_tokens = sum(int(s.mask.sum()) for s in samples)
    for weights_of_batch in minibatch.weights:
        torch.testing.assert_close(
            weights_of_batch, torch.full_like(weights_of_batch, 1 / num_tokens)
        )


def test_pitfall_11_a_sequence_mean_weighs_episodes_alike_however_many_rows(
    make_learner, random_samples
):
    samples = random_samples(num_groups=1, group_size=3)
    samples[2] = dataclasses.replace(samples[2], episode=samples[1].episode)
    learner = make_learner(algorithm={"loss_aggregation": "sequence"})
    row_weights = learner._row_weights(samples)
    shares = [w * s.mask.sum() for w, s in zip(row_weights, samples, strict=True)]
    assert shares[0] == pytest.approx(0.5)
    assert shares[1] + shares[2] == pytest.approx(0.5)


def test_rows_without_a_gradient_count_in_the_normaliser_but_are_not_forwarded(
    make_learner, random_samples
):
    samples = random_samples(num_groups=2, group_size=2)
    silent = [dataclasses.replace(s, advantages=np.zeros_like(s.advantages)) for s in samples[:2]]
    options = {"algorithm": {"loss_aggregation": "sequence"}, "max_grad_norm": 1e6}
    skipping, forwarding = make_learner(**options), make_learner(**options)
    forwarding.algorithm.uses_every_token = True
    fewer, all_of_them = (x.update(silent + samples[2:]) for x in (skipping, forwarding))
    assert fewer["update/forward_tokens"] < all_of_them["update/forward_tokens"]
    torch.testing.assert_close(gradient(skipping), gradient(forwarding), atol=1e-7, rtol=1e-5)


def test_a_kl_to_the_reference_uses_the_tokens_of_every_group(make_learner, random_samples):
    samples = random_samples()
    silent = [dataclasses.replace(s, advantages=np.zeros_like(s.advantages)) for s in samples]
    assert make_learner(algorithm={"kl_coefficient": 0.1}).update(silent)["update/skipped"] == 0


def test_pitfall_15_a_step_without_a_usable_group_changes_nothing(make_learner, random_samples):
    samples = random_samples()
    silent = [dataclasses.replace(s, advantages=np.zeros_like(s.advantages)) for s in samples]
    learner = make_learner(warmup_steps=4, weight_decay=0.1)
    first = learner.update(samples)["update/learning_rate"]
    before = weights(learner)
    metrics = [learner.update(silent), learner.update([])]
    assert [m["update/skipped"] for m in metrics] == [1.0, 1.0]
    assert torch.equal(weights(learner), before)
    assert learner.update(samples)["update/learning_rate"] == pytest.approx(2 * first)


def test_pitfall_16_poison_at_masked_positions_does_not_reach_the_weights(
    make_learner, random_samples
):
    samples = random_samples()
    poisoned = [
        dataclasses.replace(
            s,
            logprobs=np.where(s.mask, s.logprobs, np.nan).astype(np.float32),
            advantages=np.where(s.mask, s.advantages, np.inf).astype(np.float32),
        )
        for s in samples
    ]
    clean, dirty = make_learner(), make_learner()
    assert clean.update(samples) == dirty.update(poisoned)
    assert torch.equal(weights(clean), weights(dirty))


def test_a_gradient_that_is_not_finite_is_refused_and_counted(make_learner, random_samples):
    samples = random_samples()
    broken = dataclasses.replace(samples[0], logprobs=np.full_like(samples[0].logprobs, -np.inf))
    broken = dataclasses.replace(broken, advantages=-np.ones_like(broken.advantages))
    learner = make_learner()
    before = weights(learner)
    assert learner.update([broken, *samples[1:]])["update/nonfinite"] == 1.0
    assert torch.equal(weights(learner), before)
    assert learner.updates == 0


def test_on_policy_the_ratio_is_one_and_the_gap_to_the_engine_is_measured(
    make_learner, random_samples, tiny_policy
):
    policy = tiny_policy()
    samples = with_behaviour(policy, random_samples())
    at = int(np.flatnonzero(samples[0].mask)[0])
    samples[0].logprobs[at] += 0.25
    metrics = make_learner(policy=policy).update(samples)
    assert metrics["update/logprob_gap_max"] == pytest.approx(0.25, abs=1e-4)
    assert metrics["loss/ratio_max"] == pytest.approx(1.0, abs=1e-4)


def test_minibatches_of_whole_episodes_share_out_the_samples(random_samples):
    samples = random_samples(num_groups=2, group_size=4)
    parts = split(samples, 3, np.random.default_rng(0))
    episodes = [{s.episode for s in part} for part in parts]
    assert sorted(e for part in episodes for e in part) == list(range(8))
    assert [len(part) for part in episodes] == [3, 3, 2]


def test_epochs_and_minibatches_are_optimizer_steps(make_learner, random_samples):
    metrics = make_learner(num_epochs=3, num_minibatches=2).update(random_samples())
    assert metrics["update/optimizer_steps"] == 6.0


def test_the_reference_is_forwarded_once_however_many_epochs(make_learner, random_samples):
    samples = random_samples()
    algorithm = {"kl_coefficient": 0.1}
    once, thrice = (
        make_learner(algorithm=algorithm, num_epochs=n).update(samples)["update/forward_tokens"]
        for n in (1, 3)
    )
    assert thrice == 2 * once


def test_the_kl_to_the_reference_starts_at_zero_and_grows(make_learner, random_samples):
    learner = make_learner(algorithm={"kl_coefficient": 0.01, "kl_estimator": "k3"})
    kl = [learner.update(random_samples())["loss/kl"] for _ in range(3)]
    assert kl[0] == pytest.approx(0.0, abs=1e-7)
    assert kl[2] > kl[1] > 0


def test_a_resumed_learner_goes_on_to_the_bit(make_learner, random_samples, tiny_policy):
    options = {
        "algorithm": {"kl_coefficient": 0.1},
        "num_minibatches": 2,
        "warmup_steps": 3,
        "decay": "cosine",
        "total_steps": 6,
    }
    whole = make_learner(**options)
    for step in range(2):
        whole.update(random_samples(seed=step))
    file = io.BytesIO()
    torch.save((whole.state_dict(), whole._model.state_dict()), file)
    file.seek(0)
    state, model = torch.load(file, weights_only=True)
    policy = tiny_policy(seed=1)
    policy.model.load_state_dict(model)
    resumed = make_learner(policy=policy, **options)
    resumed.load_state_dict(state)
    results = [x.update(random_samples(seed=2)) for x in (whole, resumed)]
    assert results[0] == results[1]
    assert torch.equal(weights(whole), weights(resumed))


def test_small_updates_of_bf16_weights_are_not_rounded_away(
    make_learner, random_samples, tiny_policy
):
    policy = tiny_policy(dtype=torch.bfloat16)
    before = policy.model.lm_head.weight.detach().clone()
    learner = make_learner(policy=policy, learning_rate=3e-4)
    for _ in range(7):
        learner.update(random_samples(num_groups=1, group_size=2))
    moved = (policy.model.lm_head.weight.detach() != before).float().mean().item()
    assert moved > 0.3
    assert policy.model.dtype == torch.bfloat16


def test_a_model_that_cannot_be_packed_learns_the_same(make_learner, random_samples, tiny_policy):
    samples = random_samples()
    packed, rows = make_learner(), make_learner(policy=tiny_policy(packed=False))
    for learner in (packed, rows):
        learner.update(samples)
    torch.testing.assert_close(gradient(packed), gradient(rows), atol=1e-5, rtol=1e-4)


def test_gradient_checkpointing_changes_no_gradient(make_learner, random_samples, tiny_policy):
    samples, policy = random_samples(), tiny_policy()
    policy.model.gradient_checkpointing_enable()
    keeping, recomputing = make_learner(), make_learner(policy=policy)
    for learner in (keeping, recomputing):
        learner.update(samples)
    assert recomputing._checkpointing
    torch.testing.assert_close(gradient(keeping), gradient(recomputing), atol=1e-6, rtol=1e-5)


def draw_from_five(policy, contexts, rng):
    """Draw one id of 0 to 4 per context; return ids and log-probs."""
    layout = PackedLayout(PrefixTree(list(contexts)))
    ends = [layout.tree.path(row)[-1].stop - 1 for row in range(len(contexts))]
    with torch.no_grad():
        logits = policy.model(
            input_ids=torch.from_numpy(layout.tree.ids)[None],
            position_ids=torch.from_numpy(layout.tree.positions)[None],
            attention_layout=layout,
            logits_to_keep=torch.tensor(ends),
        ).logits[0, :, :5]
    logprobs = logits.log_softmax(-1).numpy()
    chances = np.exp(logprobs.astype(np.float64))
    ids = [rng.choice(5, p=p / p.sum()) for p in chances]
    return np.array(ids), logprobs[np.arange(len(ids)), ids]


def play_bandit(policy, rng):
    """64 episodes of two turns in 8 groups: reward 1 if the second answer is the first plus 1.

    Returns the ids [64, 6] (prompt, prompt, answer, reply, answer, reply), their log-probs and the
    rewards.
    """
    ids = np.stack([20 + np.arange(64) // 8, np.full(64, 28)], axis=1)
    logprobs = np.zeros((64, 6), dtype=np.float32)
    for turn in range(2):
        answers, logprobs[:, 2 + 2 * turn] = draw_from_five(policy, ids, rng)
        ids = np.concatenate([ids, answers[:, None], np.full((64, 1), 27)], axis=1)
    return ids, logprobs, (ids[:, 4] == ids[:, 2] + 1).astype(np.float64)


def test_grpo_learns_a_bandit_of_two_turns(make_learner, tiny_policy):
    policy, rng = tiny_policy(), np.random.default_rng(0)
    learner = make_learner(policy=policy, learning_rate=5e-3)
    mask = np.array([False, False, True, False, True, False])
    successes = []
    for _ in range(20):
        ids, logprobs, rewards = play_bandit(policy, rng)
        samples = [
            TrainingSample(
                ids=ids[n],
                mask=mask,
                logprobs=logprobs[n],
                advantages=np.full(6, advantage, dtype=np.float32),
                turn_index=np.array([0, 0, 0, 1, 1, 1], dtype=np.int32),
                allowed=tuple((0, 1, 2, 3, 4) if drawn else None for drawn in mask),
                group_id=str(n // 8),
                episode=n,
                prefix_length=2,
            )
            for n, advantage in enumerate(
                a
                for group in rewards.reshape(8, 8)
                for a in group_advantages(group, np.ones(8, dtype=np.bool_), normalize=True)
            )
        ]
        learner.update(samples)
        successes.append(rewards.mean())
    assert np.mean(successes[:2]) < 0.5
    assert np.mean(successes[-2:]) > 0.9
