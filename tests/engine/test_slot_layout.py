"""Attention over slots equals attention row by row, however the rows are put into buckets."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalinginter.engine import buckets
from scalinginter.engine.layout import SlotLayout
from scalinginter.engine.slots import Round, SlotCache

HEADS, KEY_HEADS, SIZE, NUM_SLOTS = 4, 2, 8, 12

ROWS = st.dictionaries(
    st.integers(0, NUM_SLOTS - 1),
    st.tuples(st.integers(0, 30), st.sampled_from([1, 1, 1, 2, 3, 5, 9, 16, 17, 40, 64, 65, 90])),
    min_size=1,
)


def attend_row_by_row(cache, rows, query, window):
    """The definition: query position p sees keys p - window + 1 to p of its own slot."""
    out, first = [], 0
    for slot, (start, count) in rows.items():
        for step in range(count):
            end = start + step + 1
            begin = 0 if window is None else max(0, end - window)
            keys = cache.keys[0][slot, :, begin:end].repeat_interleave(HEADS // KEY_HEADS, dim=0)
            values = cache.values[0][slot, :, begin:end]
            values = values.repeat_interleave(HEADS // KEY_HEADS, dim=0)
            scores = torch.einsum("hd,hld->hl", query[0, :, first + step], keys) * 0.3
            out.append(torch.einsum("hl,hld->hd", scores.softmax(-1), values))
        first += count
    return torch.stack(out)


@pytest.mark.parametrize("call_us", [0.0, 1e9])  # every row on its own; never on its own
@pytest.mark.parametrize("window", [None, 5])
def test_attention_over_slots_is_attention_row_by_row(call_us, window, monkeypatch):
    monkeypatch.setattr(buckets, "_CALL_US", call_us)

    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(ROWS, st.integers(0, 1000))
    def check(rows, seed):
        source = torch.Generator().manual_seed(seed)
        cache, plan = SlotCache(), Round()
        cache.ensure(NUM_SLOTS, 128)
        for store in cache.layer(0, *torch.zeros(2, 1, KEY_HEADS, 1, SIZE)):
            store.copy_(torch.randn(store.shape, generator=source))
        for slot, (start, count) in rows.items():
            plan.add(slot, start, [0] * count)
        total = len(plan.ids)
        query = torch.randn(1, HEADS, total, SIZE, generator=source)
        key, value = torch.randn(2, 1, KEY_HEADS, total, SIZE, generator=source)
        got = SlotLayout(cache, plan, torch.device("cpu")).attend(
            0, query, key, value, scaling=0.3, sliding_window=window
        )
        assert torch.allclose(
            got[0], attend_row_by_row(cache, rows, query, window), atol=1e-5, rtol=1e-4
        )

    check()


def test_keys_of_a_shared_row_are_written_to_every_slot_that_shares_it():
    cache, plan = SlotCache(), Round()
    cache.ensure(4, 8)
    plan.add(2, 3, [7, 8])
    plan.share(0, 3, 0, 2)
    key, value = torch.randn(2, 1, KEY_HEADS, 2, SIZE)
    query = torch.randn(1, HEADS, 2, SIZE)
    SlotLayout(cache, plan, torch.device("cpu")).attend(
        0, query, key, value, scaling=1.0, sliding_window=None
    )
    assert torch.equal(cache.keys[0][0, :, 3:5], key[0])
    assert torch.equal(cache.values[0][2, :, 3:5], value[0])
    assert not cache.keys[0][1].any()
