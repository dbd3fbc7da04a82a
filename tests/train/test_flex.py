"""FlexAttention under the mask of a prefix tree gives what separate rows give, gradients too.

FlexAttention has no backward pass on a CPU and refuses tensors that need one. Its definition in
plain torch operations, forward and backward, is there: the tests lift the refusal and run that.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounter
from torch.nn.attention import flex_attention as torch_flex

from scalinginter.train import flex, packed
from scalinginter.train.batch import pack
from scalinginter.train.flex import TreeMask
from scalinginter.train.logprobs import score
from scalinginter.train.packed import PackedLayout
from scalinginter.train.trie import PrefixTree

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    # torch hides this warning of its own tracer by another means than a filter
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
    pytest.mark.timeout(900),  # the compiler is another process: a busy machine may keep it waiting
]
WINDOWS = [None, 1, 3, 20]
TREES = {
    "a_single_row": [[0, 1, 2, 3, 4]],
    "a_single_id": [[7]],
    "a_row_that_is_a_prefix_of_another": [[0, 1, 2], [0, 1, 2, 3, 4], [0, 1]],
    "rows_with_nothing_in_common": [[0, 1], [2, 3, 4, 5], [6]],
    "equal_rows": [[0, 1, 2], [0, 1, 2]],
    "groups_that_share_prompts_and_turns": [
        [0, 0, 1, 2, 3, 4, 5, 6, 7],
        [0, 0, 1, 2, 3, 9],
        [0, 0, 1, 2, 8, 8, 8],
        [0, 0, 5],
        [4, 4, 4, 1, 1],
        [4, 4, 4, 2],
    ],
}


@pytest.fixture(autouse=True)
def fresh():
    """Forget what was traced for other tests: torch keeps a few versions of a function only."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def on_flex(monkeypatch):
    """Have packed rows attend by FlexAttention here, with gradients."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda query, key, value: None)
    monkeypatch.setattr(packed, "can_attend_in_flex", lambda query, value: True)


def tree_of(rows):
    return PrefixTree([np.array(row) for row in rows])


def states_of(tree, dtype=torch.float64):
    source = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, heads, len(tree), 8, generator=source, dtype=dtype).requires_grad_()
        for heads in (4, 2, 2)
    ]


def row_by_row(tree, states, window):
    """Attention by its definition, every row for itself; the output [1, T, H, D]."""
    out = torch.zeros(1, len(tree), 4, 8, dtype=torch.float64)
    for row in range(len(tree.lengths)):
        at = torch.from_numpy(tree.index(row))
        q, k, v = (x[0, :, at].repeat_interleave(4 // x.shape[1], 0) for x in states)
        distance = torch.arange(len(at))[:, None] - torch.arange(len(at))
        unseen = (distance < 0) | (distance >= (window or 10**6))
        weights = (q @ k.transpose(1, 2) * 0.5).masked_fill(unseen, -torch.inf).softmax(-1)
        out = out.index_copy(1, at, (weights @ v).transpose(0, 1)[None])
    return out


def dense(tree, window):
    """[T, T]: whether a packed id sees another, from the rows themselves."""
    seen = np.zeros((len(tree), len(tree)), dtype=bool)
    for row in range(len(tree.lengths)):
        path = tree.index(row).tolist()
        for depth, query in enumerate(path):
            first = 0 if window is None else max(0, depth - window + 1)
            seen[query, path[first : depth + 1]] = True
    return torch.from_numpy(seen)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("name", TREES)
def test_outputs_and_gradients_are_those_of_separate_rows(on_flex, name, window):
    tree = tree_of(TREES[name])
    states = states_of(tree)
    weights = torch.linspace(-1, 1, len(tree) * 32, dtype=torch.float64).view(1, -1, 4, 8)
    layout = PackedLayout(tree)
    got = layout.attend(0, *states, scaling=0.5, sliding_window=window)
    expected = row_by_row(tree, states, window)
    for mine, theirs in zip(
        [got, *torch.autograd.grad((got * weights).sum(), states)],
        [expected, *torch.autograd.grad((expected * weights).sum(), states)],
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-9, rtol=0)


@pytest.mark.parametrize("window", [None, 6])
def test_a_model_has_the_log_probs_and_gradients_of_the_paths_without_flex(
    tiny_policy, random_samples, monkeypatch, window
):
    monkeypatch.setattr(torch_flex, "_validate_device", lambda query, key, value: None)
    results, used = [], []
    for on in (False, True):
        monkeypatch.setattr(packed, "can_attend_in_flex", lambda query, value, on=on: on)
        policy = tiny_policy(window=window)
        (batch,) = pack(random_samples(), 10_000)
        logprobs = score(policy.model, batch, packed=True).logprobs
        logprobs.sum().backward()
        used.append(batch.layout._mask is not None)
        results.append([logprobs.detach(), *(p.grad for p in policy.model.parameters())])
    assert used == [False, True]
    for expected, got in zip(*results, strict=True):
        bound = 1e-5 * max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(got, expected, atol=bound, rtol=0)


@st.composite
def forked_rows(draw):
    """Rows of up to 80 ids, each leaving an earlier one at some place, or at once."""
    rows = [np.arange(draw(st.integers(1, 40)))]
    for number in range(draw(st.integers(0, 6))):
        row = rows[draw(st.integers(0, number))]
        own = np.full(draw(st.integers(0, 40)), 1000 + number)
        rows.append(np.concatenate([row[: draw(st.integers(1, len(row)))], own]))
    return rows


def masked(tree, window):
    """[T, T]: what the mask function says."""
    at = torch.arange(len(tree))
    zero = torch.tensor(0)
    return TreeMask(tree, "cpu").sees(window)(zero, zero, at[:, None], at[None, :])


@settings(max_examples=40)
@given(rows=forked_rows(), window=st.sampled_from(WINDOWS))
def test_the_mask_is_that_of_the_rows(rows, window):
    tree = PrefixTree(rows)
    assert torch.equal(masked(tree, window), dense(tree, window))


def blocks_of(tree, window):
    """The blocks with something seen and those seen whole, [B, B] each, as FlexAttention reads."""
    mask = TreeMask(tree, "cpu").blocks(window)
    found = []
    for count, which in (
        (mask.kv_num_blocks, mask.kv_indices),
        (mask.full_kv_num_blocks, mask.full_kv_indices),
    ):
        blocks = torch.zeros(which.shape[-2:], dtype=torch.bool)
        for line, (number, order) in enumerate(zip(count[0, 0], which[0, 0], strict=True)):
            blocks[line, order[:number].long()] = True
        found.append(blocks)
    partial, whole = found
    assert not (partial & whole).any()
    return partial | whole, whole


def blocks_of_dense(tree, window, size):
    """The same from the dense mask; ids past the end see nothing and are not seen."""
    padding = -len(tree) % size
    seen = torch.nn.functional.pad(dense(tree, window), (0, padding, 0, padding))
    seen = seen.view(len(seen) // size, size, -1, size).transpose(1, 2).flatten(2)
    return seen.any(2), seen.all(2)


@settings(max_examples=40)
@given(rows=forked_rows())
def test_exactly_the_blocks_with_something_seen_are_looked_at(rows):
    tree = PrefixTree(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "BLOCK", 8)
        got, expected = blocks_of(tree, None), blocks_of_dense(tree, None, 8)
    assert all(map(torch.equal, got, expected))


@settings(max_examples=40)
@given(rows=forked_rows(), window=st.sampled_from([1, 3, 20]))
def test_with_a_window_no_block_is_missed_or_thought_whole(rows, window):
    tree = PrefixTree(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "BLOCK", 8)
        looked_at, whole = blocks_of(tree, window)
    some, every = blocks_of_dense(tree, window, 8)
    assert not ((some & ~looked_at) | (whole & ~every)).any()


def test_a_window_leaves_out_blocks_that_are_too_far_above(monkeypatch):
    monkeypatch.setattr(flex, "BLOCK", 8)
    looked_at, _ = blocks_of(tree_of([range(64)]), 8)
    assert looked_at.sum() == 15  # each its own and the one before


def large_tree(size):
    rng = np.random.default_rng(size)
    prompt = rng.integers(0, 9, size)
    return PrefixTree([np.concatenate([prompt, rng.integers(0, 9, n)]) for n in (0, 5, 140)])


def test_compiled_it_gives_the_same_from_its_list_of_blocks(compiler, monkeypatch):
    monkeypatch.setattr(flex, "flex_attention", flex._compiled())
    tree = large_tree(300)
    states = [x.detach() for x in states_of(tree, dtype=torch.float32)]
    expected = PackedLayout(tree).attend(0, *states, scaling=0.5, sliding_window=None)
    got = TreeMask(tree, "cpu").attend(*states, 0.5, None).transpose(1, 2)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_after_two_sizes_other_trees_are_not_compiled_again(monkeypatch):
    counter, counts = CompileCounter(), []
    once = torch.compile(torch_flex.flex_attention, dynamic=True, backend=counter)
    monkeypatch.setattr(flex, "flex_attention", once)
    for size in (300, 390, 150, 700):
        tree = large_tree(size)
        states = [x.detach() for x in states_of(tree)]
        TreeMask(tree, "cpu").attend(*states, 0.5, None)
        counts.append(counter.frame_count)
    assert counts == [1, 2, 2, 2]  # the number of blocks becomes a symbol when it first changes


@pytest.mark.parametrize(
    ("device", "triton", "tokens", "head", "chosen"),
    [
        ("cuda", True, 129, 64, True),
        ("cuda", False, 129, 64, False),
        ("cuda", True, 128, 64, False),
        ("cuda", True, 129, 8, False),
        ("cpu", True, 129, 64, False),
    ],
)
def test_flex_is_chosen_on_a_gpu_that_has_its_kernels(
    monkeypatch, device, triton, tokens, head, chosen
):
    class States:  # a tensor on a device that is not here
        def __init__(self):
            self.device, self.shape = torch.device(device), (1, 4, tokens, head)

    monkeypatch.setattr(flex, "has_triton", lambda: triton)
    assert flex.can_attend_in_flex(States(), States()) is chosen
