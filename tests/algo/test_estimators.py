"""What each estimator makes of episodes worked out by hand, and what holds for all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.algo.advantage import leave_one_out_advantages, returns_to_go
from scalinginter.algo.estimator import Estimator
from scalinginter.algo.registry import ALGORITHMS, make_algorithm
from scalinginter.config.load import validate
from scalinginter.rollout.record import without_tokens
from scalinginter.train.batch import to_samples
from scalinginter.types import Group, StopReason

ESTIMATORS = sorted(k for k, v in ALGORITHMS.items() if issubclass(v, Estimator))
NORMALISED = [kind for kind in ESTIMATORS if kind not in {"dr_grpo", "rloo"}]
OF_GROUPS = [kind for kind in ESTIMATORS if kind != "reinforce_pp"]


@pytest.fixture(scope="session")
def advantages(toy_recipe):
    """Return a function: the advantages of groups under an algorithm block, as lists."""

    def find(groups, **block):
        recipe = validate(toy_recipe(algorithm=block), "here")
        found = make_algorithm(recipe.algorithm).advantages(groups)
        return [[np.asarray(a).tolist() for a in per_group] for per_group in found]

    return find


def close(found, expected, within=1e-4):
    return [[pytest.approx(a, abs=within) for a in group] for group in expected] == found


def test_rloo_takes_away_the_mean_of_the_others():
    rewards = np.array([1.0, 0.0, 0.5])
    np.testing.assert_allclose(leave_one_out_advantages(rewards), [0.75, -0.75, 0.0])


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_rloo_is_the_reward_less_the_mean_of_the_others(rewards):
    rewards = np.array(rewards)
    others = [np.delete(rewards, i).mean() for i in range(len(rewards))]
    np.testing.assert_allclose(leave_one_out_advantages(rewards), rewards - others, atol=1e-8)


def test_every_turn_of_an_rloo_episode_has_its_advantage(group, advantages):
    found = advantages([group([0, 1.0], [0])], kind="rloo")
    assert found == [[[1.0, 1.0], [-1.0]]]


def test_reinforce_pp_normalises_over_the_step(group, advantages):
    found = advantages([group([1.0], [1.0]), group([0], [0])], kind="reinforce_pp")
    scale = np.std([1, 1, 0, 0], ddof=1)
    assert close(found, [[[0.5 / scale]] * 2, [[-0.5 / scale]] * 2])


def test_reinforce_pp_with_a_group_baseline_leaves_equal_groups_at_zero(group, advantages):
    groups = [group([1.0], [0]), group([1.0], [1.0])]
    found = advantages(groups, kind="reinforce_pp", group_baseline=True)
    scale = np.std([0.5, -0.5, 0, 0], ddof=1)
    assert close(found, [[[0.5 / scale], [-0.5 / scale]], [[0.0], [0.0]]])


def test_reinforce_pp_counts_an_episode_once_however_long_it_is(group, advantages):
    found = advantages([group([0] * 6 + [1.0], [0])], kind="reinforce_pp")
    assert found[0][0][0] == pytest.approx(-found[0][1][0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0, 1))
def test_returns_to_go_obey_their_recursion(rewards, gamma):
    returns = returns_to_go(np.array(rewards), gamma)
    after = np.append(returns[1:], 0.0)
    np.testing.assert_allclose(returns, np.array(rewards) + gamma * after)


def test_turn_grpo_with_one_reward_at_the_end_is_grpo(group, advantages):
    groups = [group([0, 0, 1.0], [0, 0], [0, 0, 0, 1.0])]
    assert close(advantages(groups, kind="turn_grpo"), advantages(groups, kind="grpo"))


def test_pitfall_14_late_turns_are_compared_with_episodes_that_have_won_already(group, advantages):
    groups = [group([1.0], [0, 0, 0], [0, 0, 0])]
    found = advantages(groups, kind="turn_grpo", normalize_advantages=False)
    assert close(found, [[[2 / 3], [-1 / 3] * 3, [-1 / 3] * 3]])


def test_pitfall_14_comparing_the_running_ones_compares_failures_with_failures(group, advantages):
    groups = [group([1.0], [0, 0, 0], [0, 0, 0])]
    found = advantages(groups, kind="turn_grpo", compare="running", normalize_advantages=False)
    assert close(found, [[[2 / 3], [-1 / 3, 0, 0], [-1 / 3, 0, 0]]])


def test_pitfall_20_rewards_of_turns_give_turns_of_one_episode_different_advantages(
    group, advantages
):
    groups = [group([0.5, 0, 0.5], [0.5, 0, 0])]
    found = advantages(groups, kind="turn_grpo", normalize_advantages=False)
    assert close(found, [[[0.25, 0.25, 0.25], [-0.25, -0.25, -0.25]]])


def test_pitfall_20_the_tokens_of_a_turn_are_trained_on_what_their_turn_earned(group, advantages):
    episodes = group([0.5, 0.25], [0.5, 0], [0, 0])
    (found,) = advantages([episodes], kind="turn_grpo", normalize_advantages=False)
    (row,) = to_samples(episodes.trajectories[0], np.array(found[0], np.float32), 0)
    expected = np.array([0.75 - 1.25 / 3, 0.25 - 0.25 / 3])
    np.testing.assert_allclose(row.advantages, expected[row.turn_index], atol=1e-6)


def test_a_discount_makes_early_turns_worth_less(group, advantages):
    groups = [group([0, 0, 1.0], [0, 0, 0])]
    found = advantages(groups, kind="turn_grpo", gamma=0.5, normalize_advantages=False)
    assert close(found, [[[0.125, 0.25, 0.5], [-0.125, -0.25, -0.5]]])


def test_rlanything_adds_what_a_turn_earned_to_the_outcome(group, advantages):
    groups = [group([0.5, 0.25], [0, 0.25])]
    found = advantages(groups, kind="rlanything", turn_weight=2, normalize_advantages=False)
    assert close(found, [[[(0.75 + 1.0 - 0.25) / 2, 0.25], [-(0.75 + 1.0 - 0.25) / 2, -0.25]]])


def test_pitfall_14_rlanything_compares_failures_with_failures(group, advantages):
    groups = [group([1.0], [0, 0, 0], [0, 0, 0])]
    found = advantages(groups, kind="rlanything", turn_weight=0, normalize_advantages=False)
    assert close(found, [[[2 / 3], [-1 / 3, 0, 0], [-1 / 3, 0, 0]]])


def test_the_last_episode_that_runs_is_compared_with_none_under_rlanything(group, advantages):
    found = advantages([group([1.0], [0, 0, 0.25])], kind="rlanything")
    assert found[0][1][1:] == [0.0, 0.0]


def test_gigpo_adds_a_comparison_of_turns_that_met_one_state(group, advantages):
    groups = [group([0, 1.0], [0, 0], seen=[["start", "hall"], ["start", "hall"]])]
    found = advantages(groups, kind="gigpo", gamma=0.5, normalize_advantages=False)
    assert close(found, [[[0.5 + 0.25, 0.5 + 0.5], [-0.5 - 0.25, -0.5 - 0.5]]])


def test_gigpo_compares_turns_of_one_episode_that_came_back_to_a_state(group, advantages):
    groups = [group([0, 0, 1.0], [0], seen=[["a", "b", "a"], ["c"]])]
    found = advantages(groups, kind="gigpo", gamma=0.5, normalize_advantages=False)
    assert close(found, [[[0.5 - 0.375, 0.5, 0.5 + 0.375], [-0.5]]])


def test_gigpo_gives_a_state_that_was_met_once_nothing(group, advantages):
    groups = [group([0, 1.0], [0, 0])]
    found = advantages(groups, kind="gigpo", normalize_advantages=False)
    assert close(found, [[[0.5, 0.5], [-0.5, -0.5]]])


def test_gigpo_without_a_step_weight_is_grpo(group, advantages):
    groups = [group([0, 1.0], [0, 0], seen=[["s", "h"], ["s", "h"]])]
    assert close(advantages(groups, kind="gigpo", step_weight=0), advantages(groups, kind="grpo"))


def test_gigpo_tells_states_apart_by_more_observations_on_request(group, advantages):
    seen = [["a", "nothing happens"], ["b", "nothing happens"]]
    groups = [group([0, 1.0], [0, 0], seen=seen)]
    one, two = (advantages(groups, kind="gigpo", state_observations=n)[0] for n in (1, 2))
    assert (one[0][1] > one[0][0], two[0][1] == two[0][0]) == (True, True)


def test_an_episode_as_good_as_its_group_has_no_advantage_of_rounding(group, advantages):
    assert advantages([group([0.1], [0.2], [0.3])], kind="grpo")[0][1] == [0.0]


rewards_of_groups = st.lists(
    st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=4), min_size=3, max_size=3
)


@pytest.mark.parametrize("kind", ESTIMATORS)
@given(rewards=rewards_of_groups, order=st.permutations(range(3)))
def test_the_order_of_a_group_does_not_matter(group, advantages, kind, rewards, order):
    seen = [["s"] * len(per_turn) for per_turn in rewards]
    (found,) = advantages([group(*rewards, seen=seen)], kind=kind)
    shuffled = group(*(rewards[i] for i in order), seen=[seen[i] for i in order])
    assert close(advantages([shuffled], kind=kind), [[found[i] for i in order]])


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_pitfall_15_a_step_whose_rewards_are_all_equal_says_nothing(group, advantages, kind):
    groups = [group([0.1] * 3, [0.1] * 3, seen=[["a", "b", "c"]] * 2)]
    assert advantages(groups, kind=kind) == [[[0.0] * 3] * 2]


@pytest.mark.parametrize("kind", ESTIMATORS)
@given(rewards=rewards_of_groups)
def test_every_turn_has_one_finite_advantage_however_unequal_the_lengths(
    group, advantages, kind, rewards
):
    (found,) = advantages([group(*rewards, [])], kind=kind)
    assert [len(turns) for turns in found] == [*map(len, rewards), 0]
    assert np.isfinite([a for turns in found for a in turns]).all()


@pytest.mark.parametrize("kind", NORMALISED)
@given(rewards=rewards_of_groups)
def test_the_scale_of_the_rewards_does_not_matter_where_they_are_normalised(
    group, advantages, kind, rewards
):
    seen = [["s"] * len(per_turn) for per_turn in rewards]
    (found,) = advantages([group(*rewards, seen=seen)], kind=kind)
    halves = group(*([r / 2 for r in per_turn] for per_turn in rewards), seen=seen)
    # what is added to a deviation (1e-4) weighs more where rewards are smaller
    assert close(advantages([halves], kind=kind), [found], within=0.02)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_processes_find_for_their_own_episodes_what_one_process_finds(group, advantages, kind):
    seen = [["s", "h"], ["s", "h"]]
    first = group([0, 1.0], [0, 0], seen=seen)
    second = group([0.5, 0], [0, 0.25], seen=seen)
    together = advantages([first, second], kind=kind)
    gone = [Group("g", tuple(map(without_tokens, g.trajectories))) for g in (first, second)]
    apart = [
        advantages([first, gone[1]], kind=kind)[0],
        advantages([gone[0], second], kind=kind)[1],
    ]
    assert apart == together


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_pitfall_10_no_estimator_takes_a_group_of_one(group, advantages, kind):
    with pytest.raises(ValueError, match="at least 2"):
        advantages([group([1.0])], kind=kind)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_pitfall_12_truncated_episodes_leave_every_estimator_on_request(group, advantages, kind):
    ended, cut = StopReason.TERMINATED, StopReason.HORIZON
    groups = [group([0, 1.0], [0], [0], stops=[ended, ended, cut])]
    (without,) = advantages([group([0, 1.0], [0])], kind=kind)
    assert advantages(groups, kind=kind, truncated="drop") == [[*without, []]]


@pytest.mark.parametrize("kind", OF_GROUPS)
def test_a_constant_added_to_every_reward_changes_nothing(group, advantages, kind):
    low = [group([0, 0.25], [0, 0], seen=[["a", "b"]] * 2)]
    high = [group([0, 0.75], [0, 0.5], seen=[["a", "b"]] * 2)]
    assert close(advantages(low, kind=kind), advantages(high, kind=kind))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_pitfall_09_the_last_turn_of_a_success_is_worth_more_than_nothing(group, advantages, kind):
    found = advantages([group([0, 1.0], [0, 0])], kind=kind)
    assert found[0][0][-1] > 0


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_pitfall_11_an_episode_of_many_rows_counts_once_in_every_estimator(group, advantages, kind):
    rewards = ([0, 0, 1.0], [0], [0, 0])
    whole, forked = group(*rewards), group(*rewards, forked=True)
    assert advantages([whole], kind=kind) == advantages([forked], kind=kind)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_pitfall_13_a_failed_episode_leaves_every_estimator(group, advantages, kind):
    ended, failed = StopReason.TERMINATED, StopReason.ENV_ERROR
    (found,) = advantages([group([0, 1.0], [0], [0], stops=[ended, ended, failed])], kind=kind)
    (without,) = advantages([group([0, 1.0], [0])], kind=kind)
    assert found == [*without, []]
