"""The loop brings every policy to the engine; a step that was taken counts even if that fails."""

from typing import ClassVar

import pytest
import torch
from safetensors.torch import load_file

from scalinginter.engine.local import LocalEngine
from scalinginter.errors import RunFailedError
from scalinginter.rollout import stack
from scalinginter.train.run import run_training

EVERY_STEP_UPDATES = {"algorithm__kl_coefficient": 0.01}


class Fickle(LocalEngine):
    """A local engine that notes the policies it was given, and refuses one of them."""

    seen: ClassVar[list[int]] = []
    refused: int | None = None

    async def sync(self, version):
        self.seen.append(version)
        await super().sync(version)
        if version == self.refused:
            raise RunFailedError("the weights did not arrive")
        return {"sync/tensors": 1.0}


@pytest.fixture
def fickle(monkeypatch):
    """Return a function that makes runs use an engine that refuses one version."""

    def use(refused=None):
        engine = type("Fickle", (Fickle,), {"seen": [], "refused": refused})
        monkeypatch.setattr(stack, "LocalEngine", engine)
        return engine

    return use


def test_every_policy_is_brought_to_the_engine_from_the_first_one_on(
    fickle, toy_recipe, tmp_path, numbers
):
    engine = fickle()
    assert (
        run_training(
            toy_recipe(train__num_steps=2, **EVERY_STEP_UPDATES), tmp_path / "run", quiet=True
        )
        == 0
    )
    assert engine.seen == [0, 1, 2]
    trained = [metrics for _, stage, metrics in numbers(tmp_path / "run") if stage == "train"]
    assert [metrics["sync/tensors"] for metrics in trained] == [1.0, 1.0]


def test_pitfall_32_a_policy_that_cannot_be_brought_to_the_engine_ends_the_run_and_is_kept(
    fickle, toy_recipe, tmp_path
):
    config = toy_recipe(train__num_steps=3, **EVERY_STEP_UPDATES)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    fickle()
    assert run_training(config, whole, quiet=True) == 0
    fickle(refused=2)
    with pytest.raises(RunFailedError, match="did not arrive"):
        run_training(config, broken, quiet=True)
    engine = fickle()
    assert run_training(config, broken, resume=True, quiet=True) == 0
    assert engine.seen == [2, 3]
    ends = [
        load_file(run / "checkpoints" / "step-000003" / "policy" / "model.safetensors")
        for run in (whole, broken)
    ]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
