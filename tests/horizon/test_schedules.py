"""Horizon schedules: closed forms, properties, and resuming."""

import json

from hypothesis import given
from hypothesis import strategies as st

from scalinginter.config.horizon_blocks import (
    FixedHorizon,
    LinearHorizon,
    StagedHorizon,
    SuccessGatedHorizon,
)
from scalinginter.horizon import Outcome, Progress, make_schedule

STEPS = 40

ascending = st.lists(st.integers(1, 50), min_size=1, max_size=5).map(sorted)


@st.composite
def configs(draw):
    stages = draw(ascending)
    kind = draw(st.sampled_from(["fixed", "every", "at_step", "at_fraction", "linear", "gated"]))
    starts = sorted(draw(st.sets(st.integers(1, STEPS), min_size=4, max_size=4)))
    starts = [0, *starts][: len(stages)]
    match kind:
        case "fixed":
            return FixedHorizon(kind="fixed", turns=stages[0])
        case "every":
            return StagedHorizon(kind="staged", stages=stages, every=draw(st.integers(1, 15)))
        case "at_step":
            return StagedHorizon(kind="staged", stages=stages, at_step=starts)
        case "at_fraction":
            return StagedHorizon(
                kind="staged", stages=stages, at_fraction=[s / STEPS for s in starts]
            )
        case "linear":
            over = draw(st.integers(1, STEPS))
            return LinearHorizon(kind="linear", start=stages[0], end=stages[-1], over_steps=over)
    return SuccessGatedHorizon(
        kind="success_gated",
        stages=stages,
        threshold=draw(st.floats(0.05, 1.0)),
        window=draw(st.integers(1, 4)),
        patience=draw(st.integers(1, 3)),
        min_steps_per_stage=draw(st.integers(1, 3)),
        max_steps_per_stage=draw(st.none() | st.integers(3, 9)),
    )


def bounds(config):
    match config:
        case FixedHorizon():
            return config.turns, config.turns
        case LinearHorizon():
            return config.start, config.end
    return config.stages[0], config.stages[-1]


def play(schedule, results, start=0):
    """The horizons of the steps from `start` on, given each step's successes out of 4."""
    turns = []
    for step in range(start, len(results)):
        horizon = schedule.horizon(Progress(step, step / STEPS))
        turns.append(horizon.turns)
        schedule.observe(Outcome(horizon.turns, i < results[step]) for i in range(4))
    return turns


results = st.lists(st.integers(0, 4), min_size=STEPS, max_size=STEPS)


@given(configs(), results)
def test_the_horizon_stays_between_the_first_and_the_last(config, wins):
    low, high = bounds(config)
    assert all(low <= turns <= high for turns in play(make_schedule(config), wins))


@given(configs(), results)
def test_the_horizon_never_shrinks(config, wins):
    turns = play(make_schedule(config), wins)
    assert turns == sorted(turns)


@given(configs(), results, st.integers(0, STEPS))
def test_pitfall_21_a_schedule_resumed_at_any_step_goes_on_as_if_uninterrupted(config, wins, cut):
    whole = play(make_schedule(config), wins)
    first = make_schedule(config)
    before = play(first, wins[:cut])
    state = json.loads(json.dumps(first.state_dict()))
    second = make_schedule(config)
    second.load_state_dict(state)
    assert before + play(second, wins, start=cut) == whole


def test_a_staged_horizon_changes_every_so_many_steps():
    schedule = make_schedule(StagedHorizon(kind="staged", stages=[5, 10, 20], every=2))
    turns = [schedule.horizon(Progress(step)).turns for step in range(7)]
    assert turns == [5, 5, 10, 10, 20, 20, 20]


def test_a_staged_horizon_changes_at_its_steps():
    schedule = make_schedule(StagedHorizon(kind="staged", stages=[5, 10, 20], at_step=[0, 1, 4]))
    turns = [schedule.horizon(Progress(step)).turns for step in range(6)]
    assert turns == [5, 10, 10, 10, 20, 20]


def test_a_staged_horizon_changes_when_its_share_of_the_budget_is_spent():
    config = StagedHorizon(kind="staged", stages=[6, 12, 24], at_fraction=[0, 0.45, 0.9])
    schedule = make_schedule(config)
    turns = [schedule.horizon(Progress(9, f)).turns for f in (0.0, 0.44, 0.45, 0.89, 0.9, 1.0)]
    assert turns == [6, 6, 12, 12, 24, 24]


def test_a_linear_horizon_rounds_to_whole_turns_and_stays_at_its_end():
    config = LinearHorizon(kind="linear", start=2, end=4, over_steps=4)
    schedule = make_schedule(config)
    assert [schedule.horizon(Progress(s)).turns for s in range(6)] == [2, 3, 3, 4, 4, 4]


def test_a_shrinking_schedule_shrinks_where_it_is_asked_to():
    config = StagedHorizon(kind="staged", stages=[8, 4], every=1, allow_shrink=True)
    schedule = make_schedule(config)
    assert [schedule.horizon(Progress(s)).turns for s in range(3)] == [8, 4, 4]


def gated(**changes):
    config = {"stages": [2, 4, 8], "threshold": 0.5, "window": 2, "patience": 2}
    return make_schedule(SuccessGatedHorizon(kind="success_gated", **(config | changes)))


def test_a_gate_opens_after_patience_steps_above_the_threshold():
    assert play(gated(), [0, 4, 4, 4, 4, 4]) == [2, 2, 2, 4, 4, 8]


def test_a_gate_stays_shut_below_the_threshold():
    assert play(gated(), [1] * 6) == [2] * 6


def test_a_gate_counts_steps_above_the_threshold_in_a_row_only():
    assert play(gated(window=1), [4, 0, 4, 0, 4, 4, 0]) == [2] * 6 + [4]


def test_a_gate_opens_at_the_longest_stay():
    assert play(gated(max_steps_per_stage=3), [0] * 7) == [2, 2, 2, 4, 4, 4, 8]


def test_a_gate_ignores_episodes_that_ran_under_another_horizon():
    schedule = gated(patience=1)
    schedule.observe(Outcome(horizon=4, success=True) for _ in range(9))
    assert schedule.horizon(Progress(1)).turns == 2
