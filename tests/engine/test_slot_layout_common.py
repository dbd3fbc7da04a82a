"""What rows have in common is read once, and nothing that is attended to changes."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalinginter.engine import buckets, slot_attention
from scalinginter.engine.layout import SlotLayout
from scalinginter.engine.slots import Round, SlotCache

HEADS, KEY_HEADS, SIZE, NUM_SLOTS = 4, 2, 8, 9
CPU = torch.device("cpu")

GROUPS = st.lists(  # of slots 0 to 8, dealt in turn: tokens in common, and each slot's own
    st.tuples(st.integers(1, 40), st.lists(st.integers(1, 30), min_size=2, max_size=4)),
    min_size=1,
    max_size=3,
)


def fill(groups, scattered, counts, seed):
    """A cache whose groups start alike, and a round that forwards the last tokens of each slot."""
    source = torch.Generator().manual_seed(seed)
    cache, plan = SlotCache(), Round()
    cache.ensure(NUM_SLOTS + 3, 128)
    stores = cache.layer(0, *torch.zeros(2, 1, KEY_HEADS, 1, SIZE))
    for store in stores:
        store.copy_(torch.randn(store.shape, generator=source))
    order = list(range(NUM_SLOTS + 3))
    free = iter(order[::2] + order[1::2] if scattered else order)
    for common, own in groups:
        slots = [next(free) for _ in own]
        for store in stores:
            store[slots[1:], :, :common] = store[slots[0], :, :common]
        for slot, length in zip(slots, own, strict=True):
            count = min(length, counts)
            plan.add(slot, common + length - count, [0] * count)
        plan.common.append((slots, common))
    return cache, plan, source


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("scattered", [False, True])
def test_common_beginnings_change_nothing(window, scattered, monkeypatch):
    monkeypatch.setattr(buckets, "_COMMON_US", 0.0)
    monkeypatch.setattr(buckets, "_CALL_US", 1e9)  # no row is worth a call of its own

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(GROUPS, st.sampled_from([1, 1, 3, 20]), st.integers(0, 1000))
    def check(groups, counts, seed):
        answers = []
        for with_common in (True, False):
            cache, plan, source = fill(groups, scattered, counts, seed)
            plan.common = plan.common if with_common else []
            total = len(plan.ids)
            query = torch.randn(1, HEADS, total, SIZE, generator=source)
            key, value = torch.randn(2, 1, KEY_HEADS, total, SIZE, generator=source)
            made = SlotLayout(cache, plan, CPU)
            answers.append(made.attend(0, query, key, value, scaling=0.3, sliding_window=window))
        torch.testing.assert_close(*answers, atol=1e-5, rtol=1e-4)

    check()


def test_the_common_part_is_read_apart(monkeypatch):
    monkeypatch.setattr(buckets, "_COMMON_US", 0.0)
    read = []
    original = slot_attention.take

    def spy(store, slots):
        found = original(store, slots)
        read.append(tuple(found.shape[::2]))
        return found

    monkeypatch.setattr(buckets, "take", spy)
    monkeypatch.setattr(slot_attention, "take", spy)
    cache, plan, _ = fill([(30, [5, 7]), (32, [4, 4])], False, 1, 0)
    states = [torch.randn(1, heads, 4, SIZE) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    SlotLayout(cache, plan, CPU).attend(0, *states, scaling=1.0, sliding_window=None)
    own, common = (4, 37 - 30), (2, 30)  # keys of four rows; keys of two groups
    assert read == [own, common, own, common]  # keys, then values


def test_a_common_beginning_that_this_pass_computes_is_read_up_to_there_only(monkeypatch):
    monkeypatch.setattr(buckets, "_COMMON_US", 0.0)
    monkeypatch.setattr(buckets, "_CALL_US", 1e9)
    answers = []
    for common in ([], [([0, 1], 30)]):
        cache, _, source = fill([(20, [1, 1])], False, 1, 0)
        plan = Round(common=common)
        plan.add(0, 20, [0] * 12)
        plan.share(1, 20, 0, 10)  # slot 1 has the first ten of them too, and goes on from there
        plan.add(1, 30, [0] * 9)
        query = torch.randn(1, HEADS, 21, SIZE, generator=source)
        key, value = torch.randn(2, 1, KEY_HEADS, 21, SIZE, generator=source)
        made = SlotLayout(cache, plan, CPU)
        answers.append(made.attend(0, query, key, value, scaling=0.3, sliding_window=None))
    torch.testing.assert_close(*answers, atol=1e-5, rtol=1e-4)


def test_a_row_without_company_keeps_the_others_from_sharing(monkeypatch):
    monkeypatch.setattr(buckets, "_COMMON_US", 0.0)
    cache, plan, _ = fill([(30, [5, 7])], False, 1, 0)
    plan.add(5, 3, [0])
    monkeypatch.setattr(slot_attention, "_common_scores", None)  # would raise if it were called
    states = [torch.randn(1, heads, 3, SIZE) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    out = SlotLayout(cache, plan, CPU).attend(0, *states, scaling=1.0, sliding_window=None)
    assert out.isfinite().all()


def test_the_engine_says_which_slots_start_alike(make_engine, ask, request_of, monkeypatch):
    said = []
    made = SlotLayout.__init__

    def spy(self, cache, plan, *rest):
        said.append(sorted((sorted(slots), length) for slots, length in plan.common))
        made(self, cache, plan, *rest)

    monkeypatch.setattr(SlotLayout, "__init__", spy)
    prompts = {"a0": [7, 8, 9, 1], "a1": [7, 8, 9, 2], "b0": [5, 6, 3], "b1": [5, 6, 4]}
    ask(make_engine(), *(request_of(ids, name, new=2) for name, ids in prompts.items()))
    assert said[-1] == [([0, 1], 3), ([2, 3], 2)]
