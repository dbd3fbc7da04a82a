"""Tiny models with weights large enough that a wrong attention shows, and a way to ask engines."""

import asyncio
import copy
import os
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from scalinginter.config.engines import EngineConfig, LaunchConfig
from scalinginter.config.load import validate
from scalinginter.engine.base import GenerateRequest
from scalinginter.engine.local import LocalEngine
from scalinginter.engine.sglang.build import make_sglang_engine
from scalinginter.engine.sglang.client import SGLangEngine
from scalinginter.model import tiny
from scalinginter.model.attention import prepare
from scalinginter.model.load import Policy
from scalinginter.rollout.family import Families

VOCABULARY = 61
ROOT = Path(__file__).parent.parent.parent


def build(model_class=LlamaForCausalLM, config=None, *, seed=0):
    """A model with spread-out logits; the plain one, for reference."""
    config = config or LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    torch.manual_seed(seed)
    model = model_class(copy.deepcopy(config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)
    return model


@pytest.fixture
def build_model():
    """Return the function that builds a reference model."""
    return build


@pytest.fixture
def make_engine():
    """Return a function that puts a copy of a model behind a `LocalEngine`."""

    def make(model=None, *, packed=True, max_context=512, **options):
        model = copy.deepcopy(model) if model is not None else build()
        packed = prepare(model) if packed else False
        return LocalEngine(model, packed=packed, max_context=max_context, **options)

    return make


@pytest.fixture
def request_of():
    """Return a function that makes a request; most of its fields have a default here."""

    def make(prompt, session="s", *, new=4, seed=0, **options):
        return GenerateRequest(
            session=session, prompt_ids=list(prompt), max_new_tokens=new, seed=seed, **options
        )

    return make


@pytest.fixture
def ask():
    """Return a function that sends requests at once and returns their completions in order."""

    def send(engine, *requests):
        async def all_of_them():
            return await asyncio.gather(*(engine.generate(request) for request in requests))

        return run_with(engine, all_of_them())

    return send


def run_with(engine, coroutine):
    """Run a coroutine; an engine of servers stays in one event loop."""
    if isinstance(engine, SGLangEngine):
        return engine.runner.run(coroutine)
    return asyncio.run(coroutine)


@pytest.fixture
def run():
    """Return the function that runs a coroutine that uses an engine."""
    return run_with


@pytest.fixture(scope="session")
def sglang_python():
    """Return the Python of the environment that `make sglang-cpu` makes."""
    default = ROOT / ".venv-sglang" / "bin" / "python"
    found = Path(os.environ.get("SCALINGINTER_SGLANG_PYTHON", default))
    if not found.exists():
        pytest.skip(f"there is no SGLang at {found}: `make sglang-cpu` installs it")
    return found


@pytest.fixture(scope="session")
def sglang_launch(sglang_python):
    """Return the block `engine.launch` of a server on this CPU."""
    return {"command": [str(sglang_python), str(ROOT / ".ci" / "sglang_cpu.py")]}


@pytest.fixture(scope="session")
def sglang_engine(sglang_launch, tmp_path_factory, toy_recipe):
    """Return an engine with one real server of its own, up until the last test.

    Its model has the shape that the toy recipe's has, so that a run can use the server, too.
    """
    tokenizer = tiny.make_tokenizer(Families(validate(toy_recipe(), "toy")).corpus())
    model = tiny.make_model("nano", tokenizer, seed=0, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    config = EngineConfig(
        kind="sglang",
        start_timeout_s=900,
        health_timeout_s=20,
        launch=LaunchConfig(**sglang_launch),
    )
    policy = Policy(model, tokenizer, False, "tiny")
    engine = make_sglang_engine(
        config,
        policy,
        max_context=64,
        stop_id=tokenizer.eos_token_id,
        constrained=None,
        seed=1,
        folder=tmp_path_factory.mktemp("sglang"),
    )
    engine.model, engine.policy = model, policy
    with asyncio.Runner() as engine.runner:
        try:
            engine.runner.run(engine.start())
            yield engine
        finally:
            engine.runner.run(engine.aclose())


@pytest.fixture
def reference_logprobs():
    """Return a function: log-probs of a completion by a plain forward of the whole sequence."""

    @torch.no_grad()
    def compute(model, prompt, completion, temperature=1.0):
        ids = torch.tensor([[*prompt, *completion.token_ids]])
        logits = model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1] / temperature
        for row, allowed in enumerate(completion.allowed):
            if allowed is not None:
                hidden = torch.ones(logits.shape[1], dtype=torch.bool)
                hidden[list(allowed)] = False
                logits[row, hidden] = -torch.inf
        logprobs = logits.log_softmax(-1)
        return logprobs.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0].tolist()

    return compute
