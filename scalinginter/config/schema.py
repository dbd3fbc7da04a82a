"""The recipe: a typed tree. Defaults are the published or tried setting of each part.

Importing this module imports neither torch nor gymnasium: a wrong recipe is refused in a blink.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from scalinginter.config.algorithms import AlgorithmConfig, EstimatorConfig, GRPOConfig
from scalinginter.config.engines import EngineConfig
from scalinginter.config.guard import GuardConfig
from scalinginter.config.horizon_blocks import HorizonConfig
from scalinginter.config.lora import LoRAConfig
from scalinginter.config.rollout import RolloutConfig
from scalinginter.config.section import (
    Decay,
    LearningRate,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)
from scalinginter.errors import nearest

CostUnit = Literal["turns", "generated_tokens", "forward_tokens", "seconds", "steps"]


class EnvironmentConfig(Section):
    """Where the agent acts."""

    id: str
    params: dict[str, Any] = Field(default_factory=dict)  # the environment's own arguments
    turn_timeout_s: PositiveFloat = 30.0
    reset_timeout_s: PositiveFloat = 120.0
    num_workers: Annotated[int, Field(ge=1, le=256)] = (
        2  # processes, for environments that need isolation
    )
    max_concurrent: PositiveInt | None = None  # episodes at a time; None: rollout.max_concurrent
    required_turns: Annotated[list[PositiveInt], Field(min_length=2, max_length=2)] | None = None
    # only tasks whose expert needs this many turns, e.g. [2, 8]; null: every task

    @model_validator(mode="after")
    def _check_range(self) -> "EnvironmentConfig":
        if self.required_turns and self.required_turns[0] > self.required_turns[1]:
            raise ValueError(f"required_turns must be [least, most], got {self.required_turns}")
        return self


class FamilyConfig(EnvironmentConfig):
    """One of several environments of a run.

    A step's `rollout.num_tasks` are shared out: first every quota, then the rest by weight.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")] = ""  # in metrics; default: the id
    weight: PositiveFloat = 1.0
    quota: NonNegativeInt = 0  # tasks of every step that are this environment's own
    horizon_scale: PositiveFloat = 1.0  # times the scheduled and the full horizon, in turns
    eval_horizon: PositiveInt | None = None  # its full horizon; None: eval.horizon, scaled

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("name") and isinstance(data.get("id"), str):
            return {**data, "name": data["id"].rpartition(":")[2] or "environment"}
        return data

    def scaled(self, turns: int) -> int:
        """Return a horizon of this environment: `turns` times its scale, rounded half up."""
        return max(1, int(turns * self.horizon_scale + 0.5))

    def full_horizon(self, turns: int) -> int:
        """Return its full horizon, where the recipe's is `turns`."""
        return self.eval_horizon or self.scaled(turns)


class ModelConfig(Section):
    """What is trained.

    `path`: a folder, a hub id, `smollm2`, or `tiny:<preset>` (made on the spot from the
    environment's words).
    """

    path: str = "tiny:small"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bf16 on GPU, fp32 on CPU
    device: Literal["auto", "cpu", "cuda"] = "auto"
    num_threads: PositiveInt = 1  # CPU threads of torch in one process
    gradient_checkpointing: bool = False
    lora: LoRAConfig | None = None  # train an adapter; the model itself stays as it is


class ChatConfig(Section):
    """How text becomes prompts and answers become actions."""

    format: Literal["plain", "react", "tool_call", "tags", "code"] = "plain"
    constrain_to_admissible: bool = False  # only admissible actions can be generated (plain only)
    show_turns_left: bool = False

    @model_validator(mode="after")
    def _check(self) -> "ChatConfig":
        if self.constrain_to_admissible and self.format != "plain":
            raise ValueError("constrain_to_admissible needs format: plain")
        return self


class BudgetConfig(Section):
    """Cost at which training ends, whichever limit is met first. Evaluation costs nothing."""

    turns: PositiveInt | None = None
    generated_tokens: PositiveInt | None = None
    forward_tokens: PositiveInt | None = None  # through the model in rollouts and updates
    seconds: PositiveFloat | None = None
    steps: PositiveInt | None = None

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by unit."""
        return {k: float(v) for k, v in self.model_dump().items() if v is not None}


class TrainConfig(Section):
    """The learner."""

    num_steps: PositiveInt | None = None
    budget: BudgetConfig = BudgetConfig()
    learning_rate: LearningRate = 1e-6
    warmup_steps: NonNegativeInt = 0
    decay: Literal["constant", "linear", "cosine"] = "constant"  # over the run, to 0
    weight_decay: NonNegativeFloat = 0.0
    betas: Annotated[list[Decay], Field(min_length=2, max_length=2)] = Field(default=[0.9, 0.999])
    max_grad_norm: PositiveFloat = 1.0
    micro_batch_tokens: PositiveInt = 8192  # tokens of one forward and backward pass
    num_epochs: PositiveInt = 1  # passes over a step's samples
    num_minibatches: PositiveInt = 1  # optimizer steps per pass
    compile: bool = False  # torch.compile for passes with a gradient
    sharding: Literal["none", "fsdp2"] = "none"  # fsdp2: a part in each process
    cpu_offload: bool = False  # with fsdp2 on GPUs: the parts and the optimizer in main memory
    rank_timeout_s: PositiveFloat = 3600.0  # the longest that one process waits for another

    @field_validator("budget", mode="before")
    @classmethod
    def _no_budget(cls, value: Any) -> Any:
        return {} if value is None else value

    @model_validator(mode="after")
    def _check(self) -> "TrainConfig":
        if self.num_steps is None and not self.budget.limits():
            raise ValueError("needs num_steps or a budget, so that training has an end")
        if self.cpu_offload and self.sharding == "none":
            raise ValueError("cpu_offload needs sharding: fsdp2")
        if self.decay != "constant" and self.num_steps is None and self.budget.steps is None:
            raise ValueError(f"decay: {self.decay} needs num_steps, to know where it ends")
        if self.compile and self.sharding != "none":
            raise ValueError(
                f"compile: true and sharding: {self.sharding} do not go together; set one of them"
            )
        return self


class SFTConfig(Section):
    """Cold start from the expert plans of training tasks. 0 demonstrations: none."""

    num_demonstrations: NonNegativeInt = 0
    num_epochs: PositiveInt = 4
    batch_size: PositiveInt = 8  # demonstrations per optimizer step
    learning_rate: LearningRate = 1e-3


class EvalConfig(Section):
    """Held-out tasks at the full horizon, whatever the training horizon is."""

    horizon: PositiveInt  # the full horizon of this recipe
    every: PositiveInt | None = None  # steps; start and end are evaluated in any case
    times: PositiveInt | None = None  # evaluations, spread evenly over the budget
    split: Literal["validation", "test"] = "validation"
    num_tasks: PositiveInt = 64
    samples_per_task: PositiveInt = 1
    temperature: NonNegativeFloat = 1.0
    seed: NonNegativeInt = 1_000_003


class CheckpointConfig(Section):
    """What survives."""

    every: PositiveInt | None = 50  # steps; the end and Ctrl-C are saved in any case
    keep: PositiveInt = 2


class TrackConfig(Section):
    """Where numbers go. `metrics.jsonl` in the run folder always has every one of them."""

    mlflow: bool = True
    uri: str | None = None  # None: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db
    experiment: str = "scalinginter"
    traces_per_step: NonNegativeInt = 2
    episodes: bool = True  # every episode to episodes.jsonl


class Recipe(Section):
    """One training run, in one environment (`environment`) or in several (`environments`)."""

    name: Annotated[str, Field(pattern=r"^[^/.][^/]*$")] = "run"  # part of folder names
    seed: NonNegativeInt = 0
    environment: EnvironmentConfig | None = None
    environments: list[FamilyConfig] = Field(default_factory=list)
    horizon: HorizonConfig
    horizons: dict[str, HorizonConfig] = Field(default_factory=dict)  # by environment name
    model: ModelConfig = ModelConfig()
    chat: ChatConfig = ChatConfig()
    engine: EngineConfig = EngineConfig()
    rollout: RolloutConfig = RolloutConfig()
    algorithm: AlgorithmConfig = GRPOConfig()
    train: TrainConfig
    guard: GuardConfig = GuardConfig()
    sft: SFTConfig = SFTConfig()
    eval: EvalConfig
    checkpoint: CheckpointConfig = CheckpointConfig()
    track: TrackConfig = TrackConfig()

    @property
    def families(self) -> tuple[FamilyConfig, ...]:
        """The environments of the run, one or several, in the recipe's order."""
        if self.environment is None:
            return tuple(self.environments)
        return (FamilyConfig(**self.environment.model_dump()),)

    @property
    def environment_names(self) -> str:
        """The names of the environments, for people."""
        return ", ".join(family.name for family in self.families)

    def horizon_of(self, family: str) -> HorizonConfig:
        """Return the horizon block of an environment: its own, or the recipe's."""
        return self.horizons.get(family, self.horizon)

    @model_validator(mode="after")
    def _check_environments(self) -> "Recipe":
        if (self.environment is None) == (not self.environments):
            raise ValueError("needs exactly one of environment and environments")
        names = [family.name for family in self.families]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two environments are called {twice[0]!r}; give each a name")
        strangers = [name for name in self.horizons if name not in names]
        if strangers:
            raise ValueError(
                f"horizons.{strangers[0]}: no environment of that name"
                f"{nearest(strangers[0], names)}; there are: {', '.join(names)}"
            )
        quotas = sum(family.quota for family in self.families)
        if quotas > self.rollout.num_tasks:
            raise ValueError(
                f"the quotas sum to {quotas} tasks a step, more than rollout.num_tasks "
                f"({self.rollout.num_tasks})"
            )
        return self

    @model_validator(mode="after")
    def _check(self) -> "Recipe":
        says = {"scripted": "what its script says", "openai": "what the service says"}
        if self.engine.kind in says and self.chat.constrain_to_admissible:
            raise ValueError(
                f"engine.kind: {self.engine.kind} says {says[self.engine.kind]} and cannot be held "
                "to a constraint; set chat.constrain_to_admissible: false"
            )
        refills = self.algorithm.max_refills if isinstance(self.algorithm, EstimatorConfig) else 0
        if refills and self.rollout.max_staleness:
            raise ValueError(
                f"algorithm.max_refills: {refills} replaces groups within a step, but with "
                f"rollout.max_staleness: {self.rollout.max_staleness} groups are played before it "
                "is known which step takes them; set algorithm.max_refills: 0"
            )
        if self.rollout.max_tokens_per_turn >= self.rollout.max_context:
            raise ValueError(
                f"rollout.max_tokens_per_turn ({self.rollout.max_tokens_per_turn}) must be below "
                f"rollout.max_context ({self.rollout.max_context})"
            )
        return self
