"""Groups ahead of the learner: each environment has its places, and every group one number."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from scalinginter.config.schema import FamilyConfig
from scalinginter.rollout.stream import Ticket
from scalinginter.train.deal import FamilyDeal, shares
from scalinginter.train.tasks import TaskSampler
from scalinginter.types import Task


def family(name, **options):
    return FamilyConfig(id=name, name=name, **options)


def deal(*families, most=8, num_tasks=4, share=(0, 1)):
    tasks = [Task(str(i), "toy") for i in range(6)]
    samplers = {f.name: TaskSampler(tasks, 0) for f in families}
    return FamilyDeal(families, samplers, most, num_tasks, share)


def test_a_slow_environment_cannot_take_the_places_of_the_others():
    dealer, held = deal(family("slow"), family("fast"), most=8), Counter()
    for _ in range(40):
        ticket = dealer.draw(held)
        if ticket is not None and ticket.family == "slow":
            held["slow"] += 1  # never finishes
    assert held["slow"] == 4
    assert dealer.draw(held).family == "fast"


def test_groups_are_dealt_by_weight_and_quota():
    dealer = deal(family("a", weight=2), family("b"), family("c", quota=1), num_tasks=5)
    dealt = Counter(dealer.draw({}).family for _ in range(100))
    # A place of five is the quota of c; the other four go by the weights 2, 1 and 1.
    assert dealt == {"a": 40, "b": 20, "c": 40}


def test_shares_sum_to_one():
    families = [family("a", weight=3), family("b", quota=2)]
    assert sum(shares(families, 8).values()) == 1.0


@given(st.integers(1, 4), st.integers(1, 30))
def test_the_processes_of_a_run_never_deal_the_same_group_or_task(ranks, count):
    dealers = [deal(family("a"), share=(rank, ranks)) for rank in range(ranks)]
    tickets = [dealer.draw({}) for dealer in dealers for _ in range(count)]
    assert {t.number for t in tickets} == set(range(ranks * count))
    assert {t.position for t in tickets} == set(range(ranks * count))


def test_pitfall_36_a_deal_goes_on_where_it_was():
    whole, resumed = (deal(family("a", weight=2), family("b")) for _ in range(2))
    first = [whole.draw({}) for _ in range(5)]
    resumed.load_state_dict(whole.state_dict())
    assert resumed.draw({}) == whole.draw({}) != first[-1]
    assert first[0] == Ticket(0, "a", 0)
