"""A checkpoint is whole or not there."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.errors import CheckpointError
from scalinginter.train.checkpoint import CheckpointStore, problem, read_state


def write(folder):
    (folder / "policy").mkdir()
    (folder / "policy" / "weights").write_bytes(b"w" * 1000)
    (folder / "learner.pt").write_bytes(b"o" * 1000)


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints", keep=2)


def test_a_saved_state_is_read_back(store):
    assert read_state(store.save(3, write, {"cursor": 7})) == {"cursor": 7}


def test_the_latest_is_the_one_with_the_most_steps(store):
    store.save(9, write, {})
    store.save(10, write, {})
    assert store.latest().name == "step-000010"


def test_only_the_last_ones_are_kept(store):
    for step in (1, 2, 3):
        store.save(step, write, {})
    assert [p.name for p in store.valid()] == ["step-000003", "step-000002"]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", range(3))
def test_pitfall_37_a_save_that_is_cut_off_leaves_the_older_checkpoint_in_force(store, moment):
    store.save(1, write, {"good": True})

    def cut(folder):
        if moment == 1:
            (folder / "learner.pt").write_bytes(b"half")
        if moment == 2:
            write(folder)
        raise Killed

    with pytest.raises(Killed):
        store.save(2, cut, {})
    assert store.latest().name == "step-000001"


def test_pitfall_37_a_folder_without_its_manifest_does_not_count(store):
    store.save(1, write, {})
    (store.save(2, write, {}) / "manifest.json").unlink()
    assert store.latest().name == "step-000001"


@given(st.sampled_from(["policy/weights", "learner.pt", "state.json"]), st.integers(0, 7))
def test_pitfall_37_one_flipped_bit_is_noticed(tmp_path_factory, name, bit):
    store = CheckpointStore(tmp_path_factory.mktemp("c"), keep=2)
    path = store.save(1, write, {"cursor": 1}) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1 << bit
    path.write_bytes(bytes(data))
    assert "damaged" in problem(path.parent if "/" not in name else path.parent.parent)


def test_a_store_whose_only_checkpoint_is_damaged_says_which_file(store):
    (store.save(1, write, {}) / "learner.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"step-000001: learner.pt is damaged"):
        store.latest()


def test_an_empty_store_says_that_there_is_no_checkpoint(store):
    with pytest.raises(CheckpointError, match="no checkpoint there"):
        store.latest()


def test_saving_a_step_again_keeps_the_whole_one(store):
    store.save(1, write, {"first": True})
    store.save(1, write, {"first": False})
    assert read_state(store.latest()) == {"first": True}


def test_saving_over_a_damaged_checkpoint_replaces_it(store):
    (store.save(1, write, {"n": 1}) / "learner.pt").unlink()
    store.save(1, write, {"n": 2})
    assert read_state(store.latest()) == {"n": 2}


def test_the_manifest_lists_every_file(store):
    folder = store.save(1, write, {})
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(manifest) == ["learner.pt", "policy/weights", "state.json"]
