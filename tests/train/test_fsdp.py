"""FSDP2: the learner, unchanged, over weights that two processes hold in parts (gloo, CPU).

Accelerate leaves FSDP out on a CPU, so the few calls that the learner makes of it are answered here
by torch's own `fully_shard`, which is what Accelerate calls on a GPU.
"""

import pytest
import torch
from safetensors.torch import load_file

from scalinginter.compare.jobs import Events, Job, run_jobs
from scalinginter.compare.run import PRELOAD

pytestmark = pytest.mark.slow

UPDATES = """
from contextlib import contextmanager

import torch
from accelerate import Accelerator
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM

from scalinginter.algo.registry import make_algorithm
from scalinginter.config.algorithms import GRPOConfig
from scalinginter.config.schema import TrainConfig
from scalinginter.model.attention import prepare
from scalinginter.model.load import Policy
from scalinginter.train.learner import Learner
from scalinginter.train.ranks import joined


class Sharding(Accelerator):
    def prepare(self, model, optimizer):
        whole = dict(model.named_parameters())
        mesh = init_device_mesh("cpu", (self.num_processes,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        parts = dict(model.named_parameters())
        place = {id(p): parts[name] for name, p in whole.items()}
        for group in optimizer.param_groups:
            group["params"] = [place[id(p)] for p in group["params"]]
        assert all(isinstance(p, DTensor) for p in model.parameters())
        return model, optimizer

    @contextmanager
    def no_sync(self, model):
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)

    def clip_grad_norm_(self, parameters, max_norm):
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm).full_tensor()


def update(sizes, weights, samples, out, sharded):
    with joined(torch.device("cpu"), 100.0) as ranks:
        model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
        model.load_state_dict(weights)
        policy = Policy(model, None, prepare(model), "a tiny model")
        algorithm = make_algorithm(GRPOConfig(kl_coefficient=0.1))
        config = TrainConfig(num_steps=9, learning_rate=1e-4, micro_batch_tokens=60)
        accelerator = (Sharding if sharded else Accelerator)(cpu=True)
        learner = Learner(policy, config, algorithm, accelerator)
        for step in samples:
            # the first rank has more micro-batches than the second
            own = [s for s in step if ranks.size == 1 or (s.episode >= 5) == ranks.rank]
            metrics = learner.update(own)
            assert metrics["update/nonfinite"] == 0
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state, _ = get_state_dict(model, learner._optimizer if sharded else [], options=options)
        if ranks.is_main:
            save_file(dict(state) if sharded else model.state_dict(), out)
    return 0
"""


def update(arguments, log, processes):
    codes = []
    events = Events(*[lambda *_: None] * 4)
    events = Events(events.started, lambda job, code: codes.append(code), *[events.tick] * 2)
    job = Job("update", arguments, log, processes)
    run_jobs([job], "sharded_updates:update", 1, PRELOAD, events)
    assert codes == [0], log.read_text()


def test_fsdp2_over_two_processes_takes_the_updates_of_one(
    tiny_policy, random_samples, tmp_path, monkeypatch
):
    (tmp_path / "sharded_updates.py").write_text(UPDATES)
    monkeypatch.syspath_prepend(tmp_path)
    config = tiny_policy().model.config.to_dict()
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    names += ("num_attention_heads", "num_key_value_heads", "max_position_embeddings")
    before = {k: v.clone() for k, v in tiny_policy().model.state_dict().items()}
    samples = [random_samples(num_groups=2, group_size=4, seed=seed) for seed in range(3)]
    after = []
    for processes in (1, 2):
        out = tmp_path / f"{processes}.safetensors"
        arguments = {
            "sizes": {name: config[name] for name in names},
            "weights": before,
            "samples": samples,
            "out": str(out),
            "sharded": processes > 1,
        }
        update(arguments, tmp_path / f"log{processes}", processes)
        after.append(load_file(out))
    moved = [torch.cat([(a[name] - before[name]).flatten() for name in before]) for a in after]
    assert (moved[0] - moved[1]).norm() < 1e-3 * moved[0].norm()
