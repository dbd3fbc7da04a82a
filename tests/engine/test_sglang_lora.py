"""A policy with an adapter, trained over a real SGLang server."""

import pytest

from scalinginter.model.load import save_policy
from scalinginter.train.run import run_training

pytestmark = [pytest.mark.xdist_group("sglang"), pytest.mark.timeout(1000)]


def test_pitfall_32_an_adapter_is_in_the_weights_that_answer(
    sglang_engine, toy_recipe, tmp_path, numbers
):
    policy, (server,) = sglang_engine.policy, sglang_engine.upkeep.fleet.servers
    save_policy(policy.model, policy.tokenizer, tmp_path / "base")
    recipe = toy_recipe(
        model={"path": str(tmp_path / "base"), "lora": {"r": 4, "alpha": 8.0}},
        engine={"kind": "sglang", "url": server.url},
        algorithm__entropy_bonus=0.1,  # every step updates
        train__learning_rate=0.03,
        eval__num_tasks=1,
    )
    assert run_training(recipe, tmp_path / "run", quiet=True) == 0
    trained = [metrics for _, stage, metrics in numbers(tmp_path / "run") if stage == "train"]
    for metrics in trained:
        assert metrics["sync/checksums"] == metrics["sync/tensors"] == 20
        assert metrics["sync/logprob_gap_max"] < 1e-3 < metrics["sync/logprob_gap_before"]
