"""What generates: the keys of the `engine` block."""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from scalinginter.config.section import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)
from scalinginter.config.sync import SyncConfig
from scalinginter.errors import UserError

_COLOCATED_SHARE = 0.4  # of a GPU that the learner uses, too
_HERE = ("127.0.0.1", "localhost", "::1")
_FOR = {"openai": ("base_url", "model"), "sglang": ("url", "launch")}  # keys that name a service


class LaunchConfig(Section):
    """SGLang servers that the run starts, watches and stops."""

    num_servers: PositiveInt = 1
    tensor_parallel: PositiveInt = 1  # GPUs that share one copy of the model
    data_parallel: PositiveInt = 1  # copies of the model behind one server
    gpus: list[NonNegativeInt] | None = None  # in the servers' order; null: the first ones
    colocated: bool = True  # with the learner; false: null `gpus` leaves GPU 0 to the learner
    mem_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None  # of a GPU, weights and cache
    deterministic: bool = False  # SGLang's batch-invariant kernels: answers follow their seeds
    command: list[str] = Field(default_factory=list)  # default: this Python -m sglang.launch_server
    args: list[str] = Field(default_factory=list)  # more flags of SGLang's
    env: dict[str, str] = Field(default_factory=dict)
    max_restarts: NonNegativeInt = 5  # of one server in one run

    @property
    def gpus_per_server(self) -> int:
        return self.tensor_parallel * self.data_parallel

    @property
    def gpu_memory_share(self) -> float | None:
        """`mem_fraction`, or what leaves room for a learner; None: SGLang decides."""
        if self.mem_fraction is None and self.colocated and not self.command:
            return _COLOCATED_SHARE
        return self.mem_fraction

    def gpus_of(self, index: int) -> list[int] | None:
        """Return the GPUs of one server; None: all that this process sees."""
        first = index * self.gpus_per_server
        if self.gpus is not None:
            return self.gpus[first : first + self.gpus_per_server]
        if self.colocated and index == 0 and self.num_servers == 1:
            return None
        first += 0 if self.colocated else 1
        return list(range(first, first + self.gpus_per_server))

    @model_validator(mode="after")
    def _check(self) -> "LaunchConfig":
        wanted = self.num_servers * self.gpus_per_server
        if self.gpus is not None and len(self.gpus) % wanted:
            raise ValueError(
                f"gpus names {len(self.gpus)}; {self.num_servers} servers of tensor_parallel "
                f"{self.tensor_parallel} and data_parallel {self.data_parallel} take {wanted}, in "
                "each training process"
            )
        return self


class EngineConfig(Section):
    """What generates."""

    kind: Literal["local", "sglang", "scripted", "openai"] = "local"  # openai: evaluation only
    max_batch_tokens: PositiveInt = 8192  # local: tokens of one forward pass
    script: list[str] = Field(default_factory=list)  # scripted: the answers, repeated in a cycle
    url: str | list[str] | None = None  # sglang: servers that run already
    launch: LaunchConfig | None = None  # sglang: servers to start; {} starts one
    start_timeout_s: PositiveFloat = 600.0  # sglang: until all servers are up
    request_timeout_s: PositiveFloat = 300.0  # sglang, openai: one answer, or one load of weights
    health_timeout_s: PositiveFloat = 30.0  # sglang: a busy server that says nothing is down
    recover_timeout_s: PositiveFloat = 600.0  # sglang: an answer's wait for a server to come back
    sync: SyncConfig = Field(default_factory=SyncConfig)  # sglang: how weights get there
    base_url: str | None = None  # openai: what comes before /chat/completions
    model: str | None = None  # openai: its name there
    api_key_env: str | None = None  # openai: the environment variable that holds the key
    max_concurrent: PositiveInt = 8  # openai: requests at a time
    max_retries: NonNegativeInt = 5  # openai: of one request
    extra_body: dict[str, Any] = Field(default_factory=dict)  # openai: more keys of a request's
    # body; null leaves one out

    @property
    def urls(self) -> list[str]:
        """The addresses of running servers."""
        return [self.url] if isinstance(self.url, str) else list(self.url or [])

    @field_validator("api_key_env")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", value):
            raise ValueError(  # the value may be the key: it is not repeated
                "must be the name of an environment variable that holds the key, e.g. "
                "OPENAI_API_KEY, and never the key itself"
            )
        return value

    @model_validator(mode="after")
    def _check(self) -> "EngineConfig":
        if self.kind == "scripted" and not self.script:
            raise ValueError("kind: scripted needs a script, the answers that it gives in turn")
        if self.kind == "sglang" and bool(self.urls) == (self.launch is not None):
            raise ValueError(
                "kind: sglang needs exactly one of url (running servers: one address or a list) "
                "and launch (servers to start; `launch: {}` starts one)"
            )
        if self.kind == "openai" and not (self.base_url and self.model):
            raise ValueError(
                "kind: openai needs base_url (e.g. https://api.openai.com/v1) and model"
            )
        for kind, keys in _FOR.items():
            if self.kind != kind and any(getattr(self, key) for key in keys):
                both = " and ".join(keys)
                raise ValueError(f"{both} belong to kind: {kind}, not to kind: {self.kind}")
        for url in [*self.urls, *([self.base_url] if self.base_url else [])]:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"url: {url!r} must start with http:// or https://")
        if len(set(self.urls)) < len(self.urls):
            raise ValueError("url names one server twice")
        if self.sync.method != "disk":
            _check_copies(self)
        return self


def _check_copies(config: EngineConfig) -> None:
    """Raise `ValueError` where tensors cannot get from this process to the servers."""
    method = config.sync.method
    far = [url for url in config.urls if urlsplit(url).hostname not in _HERE]
    if far and method == "tensor":
        raise ValueError(
            f"sync.method: tensor shares memory with servers of this machine, which {far[0]} is "
            "not by its name (allowed: 127.0.0.1, localhost); use sync.method: disk or distributed"
        )
    if config.launch is not None and config.launch.data_parallel > 1:
        raise ValueError(
            f"sync.method: {method} is not taken by SGLang's data_parallel servers; use "
            "launch.num_servers instead of launch.data_parallel, or sync.method: disk"
        )


def refuse_for_training(config: EngineConfig) -> None:
    """Raise `UserError` for an engine that gives text and no tokens to train on."""
    if config.kind == "openai":
        raise UserError(
            "engine.kind: openai is for evaluation only: such a service returns no token ids and "
            f"its weights are not here to be trained. Evaluate {config.model} with eval.py "
            "--schedule, and train with engine.kind: local or sglang"
        )
