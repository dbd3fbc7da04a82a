"""The recipe: a typed tree. Defaults are the published or tried setting of each part.

Importing this module imports neither torch nor gymnasium: a wrong recipe is refused in a blink.
"""

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
CostUnit = Literal["turns", "generated_tokens", "forward_tokens", "seconds", "steps"]


class Section(BaseModel):
    """A part of a recipe: frozen, strict about types, closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class FixedHorizon(Section):
    """The same horizon from the first step to the last."""

    kind: Literal["fixed"]
    turns: PositiveInt


class StagedHorizon(Section):
    """A list of horizons, each entered at a step or at a share of the budget.

    Exactly one of `every`, `at_step` and `at_fraction` says when. ScalingInter-RL
    (arXiv 2509.08755, section 3.3) is `stages` with `every`.
    """

    kind: Literal["staged"]
    stages: Annotated[list[PositiveInt], Field(min_length=1)]
    every: PositiveInt | None = None  # steps per stage; the last one has no end
    at_step: list[NonNegativeInt] | None = None  # first step of each stage, starting with 0
    at_fraction: list[Fraction] | None = None  # share of the budget at which each stage starts
    allow_shrink: bool = False

    @model_validator(mode="after")
    def _check(self) -> "StagedHorizon":
        given = [n for n in ("every", "at_step", "at_fraction") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(
                "needs exactly one of every, at_step, at_fraction; got "
                + (", ".join(given) if given else "none")
            )
        for name in ("at_step", "at_fraction"):
            starts = getattr(self, name)
            if starts is None:
                continue
            if len(starts) != len(self.stages):
                raise ValueError(
                    f"{name} has {len(starts)} entries for {len(self.stages)} stages; "
                    "give the start of every stage"
                )
            if starts[0] != 0 or any(b <= a for a, b in pairwise(starts)):
                raise ValueError(f"{name} must start with 0 and increase, got {starts}")
        _refuse_shrink(self.stages, self.allow_shrink, "stages")
        return self


class LinearHorizon(Section):
    """A straight line from `start` to `end`, rounded to whole turns, then `end` for good.

    Exactly one of `over_steps` and `over_fraction` gives the line's length.
    """

    kind: Literal["linear"]
    start: PositiveInt
    end: PositiveInt
    over_steps: PositiveInt | None = None
    over_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    allow_shrink: bool = False

    @model_validator(mode="after")
    def _check(self) -> "LinearHorizon":
        if (self.over_steps is None) == (self.over_fraction is None):
            raise ValueError("needs exactly one of over_steps, over_fraction")
        _refuse_shrink([self.start, self.end], self.allow_shrink, "start, end")
        return self


class SuccessGatedHorizon(Section):
    """Raises the horizon when the policy has learnt the one in force.

    The success rate of the episodes of the last `window` steps that ran under the horizon in force
    must reach `threshold` on `patience` steps in a row; then the next stage starts with an empty
    window. `max_steps_per_stage` opens the next stage in any case.
    """

    kind: Literal["success_gated"]
    stages: Annotated[list[PositiveInt], Field(min_length=1)]
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.5
    window: PositiveInt = 5
    patience: PositiveInt = 1
    min_steps_per_stage: PositiveInt = 1
    max_steps_per_stage: PositiveInt | None = None

    @model_validator(mode="after")
    def _check(self) -> "SuccessGatedHorizon":
        _refuse_shrink(self.stages, False, "stages")
        if self.max_steps_per_stage and self.max_steps_per_stage < self.min_steps_per_stage:
            raise ValueError("max_steps_per_stage is below min_steps_per_stage")
        return self


def _refuse_shrink(turns: list[int], allowed: bool, name: str) -> None:
    shrinks = any(b < a for a, b in pairwise(turns))
    if shrinks and not allowed:
        raise ValueError(
            f"{name} = {turns} shrinks the horizon; put it in ascending order, "
            "or set allow_shrink: true if you mean it (staged and linear only)"
        )


HorizonConfig = Annotated[
    FixedHorizon | StagedHorizon | LinearHorizon | SuccessGatedHorizon, Field(discriminator="kind")
]


class EnvironmentConfig(Section):
    """Where the agent acts."""

    id: str
    params: dict[str, Any] = Field(default_factory=dict)  # the environment's own arguments
    turn_timeout_s: PositiveFloat = 30.0
    reset_timeout_s: PositiveFloat = 120.0
    num_workers: PositiveInt = 2  # processes, for environments that need isolation


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


class EngineConfig(Section):
    """What generates."""

    kind: Literal["local", "scripted"] = "local"
    max_batch_tokens: PositiveInt = 8192  # tokens of one forward pass
    script: list[str] = Field(default_factory=list)  # scripted: the answers, repeated in a cycle


class RolloutConfig(Section):
    """How many episodes a step holds, and the limits of each. None of them truncates silently."""

    num_tasks: PositiveInt = 16
    group_size: Annotated[int, Field(ge=2)] = 8
    max_concurrent: PositiveInt = 128
    temperature: PositiveFloat = 1.0
    max_tokens_per_turn: PositiveInt = 64
    max_tokens_per_episode: PositiveInt | None = None  # generated tokens
    max_context: PositiveInt = 1024  # prompt and answers together: one training row
    max_parse_failures: PositiveInt | None = None  # answers in a row without an action
    max_retries: NonNegativeInt = 2  # of an episode whose environment or engine failed
    episode_timeout_s: PositiveFloat = 600.0
    deterministic: bool = True  # the local engine waits for every environment before a batch


class GRPOConfig(Section):
    """Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300, section 4.1)."""

    kind: Literal["grpo"] = "grpo"
    normalize_advantages: bool = True  # divide by the group's standard deviation
    clip_low: PositiveFloat = 0.2
    clip_high: PositiveFloat = 0.2
    loss_aggregation: Literal["token", "sequence"] = "token"
    kl_coefficient: NonNegativeFloat = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    entropy_bonus: NonNegativeFloat = 0.0
    truncated: Literal["reward", "drop"] = "reward"  # cut episodes: use what they earned, or leave

    @model_validator(mode="after")
    def _check(self) -> "GRPOConfig":
        if self.kl_in == "reward" and self.kl_estimator != "k1":
            raise ValueError("kl_in: reward needs kl_estimator: k1, the only unbiased one there")
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
    learning_rate: PositiveFloat = 1e-6
    warmup_steps: NonNegativeInt = 0
    decay: Literal["constant", "linear", "cosine"] = "constant"  # over the run, to 0
    weight_decay: NonNegativeFloat = 0.0
    betas: Annotated[list[Fraction], Field(min_length=2, max_length=2)] = [0.9, 0.999]
    max_grad_norm: PositiveFloat = 1.0
    micro_batch_tokens: PositiveInt = 8192  # tokens of one forward and backward pass
    num_epochs: PositiveInt = 1  # passes over a step's samples
    num_minibatches: PositiveInt = 1  # optimizer steps per pass

    @model_validator(mode="after")
    def _check(self) -> "TrainConfig":
        if self.num_steps is None and not self.budget.limits():
            raise ValueError("needs num_steps or a budget, so that training has an end")
        if self.decay != "constant" and self.num_steps is None and self.budget.steps is None:
            raise ValueError(f"decay: {self.decay} needs num_steps, to know where it ends")
        return self


class SFTConfig(Section):
    """Cold start from the expert plans of training tasks. 0 demonstrations: none."""

    num_demonstrations: NonNegativeInt = 0
    num_epochs: PositiveInt = 4
    batch_size: PositiveInt = 8  # demonstrations per optimizer step
    learning_rate: PositiveFloat = 1e-3


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
    """One training run."""

    name: Annotated[str, Field(pattern=r"^[^/.][^/]*$")] = "run"  # part of folder names
    seed: NonNegativeInt = 0
    environment: EnvironmentConfig
    horizon: HorizonConfig
    model: ModelConfig = ModelConfig()
    chat: ChatConfig = ChatConfig()
    engine: EngineConfig = EngineConfig()
    rollout: RolloutConfig = RolloutConfig()
    algorithm: GRPOConfig = GRPOConfig()
    train: TrainConfig
    sft: SFTConfig = SFTConfig()
    eval: EvalConfig
    checkpoint: CheckpointConfig = CheckpointConfig()
    track: TrackConfig = TrackConfig()

    @model_validator(mode="after")
    def _check(self) -> "Recipe":
        if self.rollout.max_tokens_per_turn >= self.rollout.max_context:
            raise ValueError(
                f"rollout.max_tokens_per_turn ({self.rollout.max_tokens_per_turn}) must be below "
                f"rollout.max_context ({self.rollout.max_context})"
            )
        return self
