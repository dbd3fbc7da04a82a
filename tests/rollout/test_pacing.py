"""Staleness is bounded by pacing alone, whatever takes how long."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalinginter.rollout.pacing import Pace


class Simulation:
    """Groups of random lengths and a learner that takes them; time is a number of ticks."""

    def __init__(self, pace, lengths, update_ticks):
        self.pace, self.lengths, self.update_ticks = pace, lengths, update_ticks
        self.version, self.now, self.begun = 0, 0, 0
        self.under_way = []  # (number, began at version, finishes at tick), by number
        self.lags, self.trained, self.most = [], [], 0

    def fill(self, following):
        while self.pace.may_begin(len(self.under_way), self.version, following):
            end = self.now + self.lengths[self.begun % len(self.lengths)]
            self.under_way.append((self.begun, self.version, end))
            self.begun += 1
        self.most = max(self.most, len(self.under_way))

    def step(self):
        self.fill(self.version)
        while True:
            done = sorted((end, n, began) for n, began, end in self.under_way if end <= self.now)
            began = [version for _, version, _ in self.under_way]
            chosen = self.pace.choose(began, [version for _, _, version in done], self.version)
            if chosen is not None:
                break
            self.now += 1
            assert self.now < 100_000, "the learner waits for ever"
        taken = {done[i][1] for i in chosen}
        self.trained += sorted(taken)
        self.lags += [self.version - done[i][2] for i in chosen]
        self.under_way = [entry for entry in self.under_way if entry[0] not in taken]
        self.fill(self.version + 1)
        self.now += self.update_ticks
        self.version += 1


simulations = st.builds(
    Simulation,
    st.builds(
        lambda step, staleness, ahead: Pace(step, staleness, ahead and step + ahead - 1),
        st.integers(1, 5),
        st.integers(0, 4),
        st.none() | st.integers(1, 9),
    ),
    st.lists(st.sampled_from([1, 1, 2, 3, 10, 60]), min_size=1, max_size=12),
    st.integers(0, 8),
)


@settings(deadline=None, max_examples=50)
@given(simulations)
def test_no_group_is_trained_later_than_the_bound_and_none_is_left_out(simulation):
    for _ in range(12):
        simulation.step()
    bound = simulation.pace.max_staleness
    kept = {number for number, _, _ in simulation.under_way}
    assert max(simulation.lags) <= bound
    assert sorted(simulation.trained + list(kept)) == list(range(simulation.begun))


@settings(deadline=None, max_examples=50)
@given(simulations)
def test_no_more_groups_are_under_way_than_the_pace_allows(simulation):
    for _ in range(6):
        simulation.step()
    assert simulation.most <= simulation.pace.most


def test_a_staleness_of_0_begins_the_groups_of_one_step_and_none_during_the_update():
    pace = Pace(3, 0)
    begun = [pace.may_begin(n, version=5, next_version=5) for n in range(5)]
    assert begun == [True, True, True, False, False]
    assert not pace.may_begin(0, version=5, next_version=6)


def test_a_staleness_of_1_begins_the_next_steps_groups_during_the_update():
    pace = Pace(3, 1)
    assert [pace.may_begin(n, 5, 6) for n in range(4)] == [True, True, True, False]


def test_those_that_finish_first_are_taken_first():
    assert Pace(2, 2).choose([0, 0, 0, 0], [0, 0, 0], version=0) == [0, 1]


def test_a_long_group_is_not_waited_for_before_its_last_version():
    pace, under_way = Pace(2, 1), [0, 1, 1, 1]  # the first one of them is not finished
    assert pace.choose(under_way, [1, 1], version=1) is None
    assert pace.choose(under_way, [1, 1], version=0) == [0, 1]


def test_old_groups_come_before_fresh_ones_where_they_would_come_too_late():
    # Four of version 0 are left, the last of which may be trained at version 2: two now, two then.
    assert Pace(2, 2).choose([0] * 4 + [1] * 2, [1, 1, 0, 0], version=1) == [2, 3]


@pytest.mark.parametrize(("limit", "most"), [(None, 12), (5, 5), (99, 12)])
def test_the_limit_and_the_staleness_both_bound_what_is_under_way(limit, most):
    assert Pace(4, 2, limit).most == most
