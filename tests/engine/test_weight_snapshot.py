"""Snapshots of a policy: what travels, and what a server's checksums of it have to be."""

import hashlib

import pytest
import torch

from scalinginter.config.engines import EngineConfig, LaunchConfig
from scalinginter.config.sync import SyncConfig
from scalinginter.engine.sglang.build import make_delivery
from scalinginter.engine.sglang.weights import Snapshot, canary_prompts
from scalinginter.model import tiny
from scalinginter.model.attention import prepare
from scalinginter.model.causal import sequence_logprobs
from scalinginter.model.load import Policy


@pytest.fixture
def policy():
    tokenizer = tiny.make_tokenizer(["go north and take the old key"])
    model = tiny.make_model("nano", tokenizer, seed=0, dtype=torch.float32)
    return Policy(model, tokenizer, prepare(model), "tiny")


@pytest.fixture
def source_of(policy, tmp_path):
    """Return a function that gives what snapshots of the policy are taken by."""

    def make(method="disk"):
        sync = SyncConfig(method=method)
        config = EngineConfig(kind="sglang", launch=LaunchConfig(), sync=sync)
        return make_delivery(config, policy, 268, 1, tmp_path).source

    return make


def sha(*tensors, rows=0):
    raw = b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)
    return hashlib.sha256(raw + bytes(rows * 4 * 64)).hexdigest()[:16]


def test_pitfall_33_tied_tensors_travel_once(source_of, policy):
    names = set(source_of().take("v-0").tensors)
    assert set(policy.model.state_dict()) - names == {"lm_head.weight"}


def test_the_checksum_of_a_fused_tensor_is_that_of_its_parts_one_below_the_other(source_of, policy):
    snapshot, state = source_of().take("v-0"), policy.model.state_dict()
    parts = [state[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]
    assert sha(*parts) in snapshot.digests("model.layers.1.self_attn.qkv_proj.weight")


def test_a_vocabulary_may_be_padded_with_zeros(source_of, policy):
    embeddings = policy.model.state_dict()["model.embed_tokens.weight"]
    digests = source_of().take("v-0").digests("model.embed_tokens.weight")
    assert digests == {sha(embeddings), sha(embeddings, rows=-len(embeddings) % 64)}


def test_a_tensor_with_a_part_that_is_missing_is_not_known():
    snapshot = Snapshot("v-0", {"m.q_proj.weight": torch.ones(2, 2)}, [])
    assert snapshot.parts_of("m.qkv_proj.weight") == ()


def test_pitfall_32_a_snapshot_in_shared_memory_stays_what_it_was(source_of, policy):
    source = source_of("tensor")
    before = source.take("v-0").tensors["model.norm.weight"].clone()
    with torch.no_grad():
        policy.model.model.norm.weight.add_(1)
    assert torch.equal(source.take("v-0").tensors["model.norm.weight"], before)


def test_pitfall_32_a_folder_saved_late_holds_the_weights_of_its_name(source_of, policy):
    source = source_of("tensor")
    source.take("v-0")
    before = policy.model.model.norm.weight.detach().clone()
    with torch.no_grad():
        policy.model.model.norm.weight.add_(1)
    saved = type(policy.model).from_pretrained(source.saved("v-0"))
    assert torch.equal(saved.model.norm.weight, before)


def test_pitfall_32_checksums_of_a_known_server_are_made_with_the_snapshot(source_of, policy):
    source, name = source_of(), "model.norm.weight"
    source.take("v-0").digests(name)
    before = sha(policy.model.state_dict()[name])
    source.take("v-1")
    with torch.no_grad():
        policy.model.model.norm.weight.add_(1)
    assert source.take("v-1").digests(name) == {before}


def test_two_folders_are_kept_at_most(source_of, tmp_path):
    source = source_of()
    for version in range(3):
        source.take(f"v-{version}")
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["v-1", "v-2"]


def test_log_probs_of_a_packed_model_are_those_of_a_plain_one(policy):
    plain = tiny.make_model("nano", policy.tokenizer, seed=0, dtype=torch.float32)
    prompts = canary_prompts(268)
    packed = sequence_logprobs(policy.model, prompts, packed=True)
    assert torch.tensor(packed) == pytest.approx(
        torch.tensor(sequence_logprobs(plain, prompts, packed=False)), abs=1e-5
    )


def test_canary_prompts_are_different_ids_of_the_vocabulary():
    ids = [id for prompt in canary_prompts(268) for id in prompt]
    assert len(set(ids)) > len(ids) / 2
    assert max(ids) < 268


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://far:30000"}, "use sync.method: disk or distributed"),
        ({"launch": LaunchConfig(data_parallel=2)}, "num_servers instead"),
    ],
)
def test_shared_memory_with_servers_that_cannot_open_it_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EngineConfig(kind="sglang", sync=SyncConfig(method="tensor"), **options)
