"""What an estimator's gradient is on average, against the gradient of the expected reward.

Two decisions, worked out exactly: `stop` ends an episode after one turn, `go` leads to a second one
that is good or bad. The policy has a logit for each decision, and every group of three is counted
with its probability.
"""

import itertools
import math

import numpy as np
import pytest

from scalinginter.algo.registry import make_algorithm
from scalinginter.config.algorithms import (
    DrGRPOConfig,
    GRPOConfig,
    RLAnythingConfig,
    RLOOConfig,
    TurnGRPOConfig,
)

GO, GOOD = 0.3, 0.6  # probabilities of the first and of the second decision
EPISODES = [  # rewards of the turns, decisions, probability
    ([0.4], [0], 1 - GO),
    ([0.2, 0.6], [1, 1], GO * GOOD),
    ([0.2, 0.0], [1, 0], GO * (1 - GOOD)),
]
SIZE = 3
SCORES = ({1: 1 - GO, 0: -GO}, {1: 1 - GOOD, 0: -GOOD})  # gradient of the decision's log-prob
TRUE = np.array([GO * (1 - GO) * (0.2 + GOOD * 0.6 - 0.4), GO * GOOD * (1 - GOOD) * 0.6])


def expected_gradient(group, config):
    """Return the mean over groups and episodes of the sum over turns of advantage times score."""
    algorithm, gradient = make_algorithm(config), np.zeros(2)
    for members in itertools.product(EPISODES, repeat=SIZE):
        rewards, decisions, probabilities = zip(*members, strict=True)
        (found,) = algorithm.advantages([group(*rewards)])
        for advantages, taken in zip(found, decisions, strict=True):
            for turn, (advantage, decision) in enumerate(zip(advantages, taken, strict=True)):
                share = math.prod(probabilities) / SIZE
                gradient[turn] += share * advantage * SCORES[turn][decision]
    return gradient


def test_rloo_has_the_gradient_of_the_expected_reward(group):
    np.testing.assert_allclose(expected_gradient(group, RLOOConfig()), TRUE, atol=1e-7)


@pytest.mark.parametrize(
    "config",
    [
        GRPOConfig(normalize_advantages=False),
        DrGRPOConfig(),
        TurnGRPOConfig(normalize_advantages=False),
    ],
    ids=lambda config: config.kind,
)
def test_a_baseline_with_the_episode_itself_shortens_the_gradient_and_does_not_turn_it(
    group, config
):
    expected = TRUE * (SIZE - 1) / SIZE
    np.testing.assert_allclose(expected_gradient(group, config), expected, atol=1e-7)


def test_pitfall_14_comparing_the_running_ones_teaches_rare_turns_less(group):
    config = TurnGRPOConfig(compare="running", normalize_advantages=False)
    others = [math.comb(2, n) * GO**n * (1 - GO) ** (2 - n) for n in range(3)]  # that run, too
    shortened = sum(share * n / (n + 1) for n, share in enumerate(others))
    expected = TRUE * [(SIZE - 1) / SIZE, shortened]
    np.testing.assert_allclose(expected_gradient(group, config), expected, atol=1e-7)


def test_pitfall_14_rlanything_prefers_rewards_that_come_at_once(group):
    config = RLAnythingConfig(normalize_advantages=False)
    first, _ = expected_gradient(group, config)
    at_once = GO * (1 - GO) * (0.2 - 0.4)  # what the first turn earns itself counts once more
    assert first == pytest.approx((TRUE[0] + at_once) * (SIZE - 1) / SIZE, abs=1e-7)
