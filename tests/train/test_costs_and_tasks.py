"""Budgets, and which tasks a step trains on."""

from hypothesis import given
from hypothesis import strategies as st

from scalinginter.config.schema import BudgetConfig, TrainConfig
from scalinginter.seeds import derive
from scalinginter.train.costs import Budget, Costs
from scalinginter.train.tasks import TaskSampler
from scalinginter.types import Task

TASKS = [Task(f"t{i}", "toy") for i in range(7)]


def test_the_limit_that_is_nearest_decides():
    budget = Budget(TrainConfig(num_steps=100, budget=BudgetConfig(turns=1000)))
    assert budget.fraction(Costs(turns=300, steps=10)) == 0.3


def test_the_number_of_steps_is_a_limit_of_its_own():
    assert Budget(TrainConfig(num_steps=4)).fraction(Costs(steps=3)) == 0.75


def test_the_share_that_is_spent_never_passes_one():
    assert Budget(TrainConfig(budget=BudgetConfig(turns=10))).fraction(Costs(turns=99)) == 1.0


@given(st.integers(0, 10**6))
def test_every_epoch_holds_every_task_once(seed):
    sampler = TaskSampler(TASKS, seed)
    for epoch in range(3):
        assert {t.id for t in sampler.take(7 * epoch, 7)} == {t.id for t in TASKS}


@given(st.integers(0, 30), st.integers(1, 9), st.integers(1, 9))
def test_pitfall_36_the_sequence_of_tasks_does_not_depend_on_where_it_was_cut(start, first, second):
    whole = TaskSampler(TASKS, 1).take(start, first + second)
    sampler = TaskSampler(TASKS, 1)
    parts = sampler.take(start, first) + TaskSampler(TASKS, 1).take(start + first, second)
    assert parts == whole


def test_epochs_differ_in_their_order():
    sampler = TaskSampler(TASKS, 0)
    assert sampler.take(0, 7) != sampler.take(7, 7)


def test_a_seed_tells_numbers_from_words():
    assert derive(1) != derive("1")


def test_a_seed_tells_where_one_part_ends():
    assert derive("ab", "c") != derive("a", "bc")


def test_a_seed_is_the_same_on_every_machine():
    assert derive("train", 0, 3) == 8335716240343943109
