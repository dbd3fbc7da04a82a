"""The recipe's `algorithm` block: one class per kind, what they share in their base."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from scalinginter.config.section import (
    Fraction,
    LearningRate,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)

DualClip = Annotated[float, Field(gt=1)]


class PolicyGradientConfig(Section):
    """The loss that the algorithms share: clipped surrogate, KL to a reference, entropy bonus."""

    ratio: Literal["token", "sequence"] = "token"  # sequence: the mean over its tokens (GSPO)
    sequence: Literal["episode", "turn"] = "episode"  # whose trained tokens are one sequence
    clip_low: PositiveFloat = 0.2
    clip_high: PositiveFloat = 0.2
    dual_clip: DualClip | None = None  # bound of bad tokens' ratios; 3 in 1912.09729
    correction: Literal["none", "token", "sequence", "geometric_mask"] = "none"  # docs/async.md
    correction_max: PositiveFloat = 2.0  # token, sequence: weights are truncated there
    correction_band: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] = Field(
        default=[0.5, 2.0]
    )  # geometric_mask: lowest and highest weight of a sequence that is trained
    old_logprobs: Literal["engine", "recompute", "auto"] = "auto"  # auto: if there is no parity
    parity_gap: PositiveFloat = 1e-3  # auto: largest difference of log-probs that is none
    loss_aggregation: Literal["token", "sequence", "constant"] = "token"
    constant_tokens: PositiveInt = 3000  # constant: tokens that an episode's sum is divided by
    kl_coefficient: NonNegativeFloat = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    kl_target: PositiveFloat | None = None  # nats a token: kl_coefficient follows it (1909.08593)
    kl_gain: Annotated[float, Field(gt=0, le=1)] = 0.1  # by how much, per update and relative error
    reference_every: PositiveInt | None = None  # updates until the policy is the new reference
    entropy_bonus: NonNegativeFloat = 0.0
    truncated: Literal["reward", "drop"] = "reward"  # cut episodes: use what they earned, or leave

    @model_validator(mode="after")
    def _check_kl(self) -> "PolicyGradientConfig":
        if self.kl_in == "reward" and self.kl_estimator != "k1":
            raise ValueError("kl_in: reward needs kl_estimator: k1, the only unbiased one there")
        for name in ("kl_target", "reference_every"):
            if getattr(self, name) is not None and not self.kl_coefficient:
                raise ValueError(f"{name} needs a KL: set kl_coefficient above 0, where it starts")
        return self

    @model_validator(mode="after")
    def _check_correction(self) -> "PolicyGradientConfig":
        if self.correction != "none" and self.old_logprobs == "engine":
            raise ValueError(
                f"correction: {self.correction} needs the learner's own log-probs, which "
                "old_logprobs: engine does not compute; set old_logprobs: auto or recompute"
            )
        low, high = self.correction_band
        if low >= high:
            raise ValueError(f"correction_band must be [lowest, highest], got {[low, high]}")
        return self


class EstimatorConfig(PolicyGradientConfig):
    """What the algorithms without a critic share."""

    normalize_by_task: bool = False  # each environment's tokens to mean 0, deviation 1 (AgentRL)
    max_refills: NonNegativeInt = 0  # times that a step plays new groups for those without signal


class GRPOConfig(EstimatorConfig):
    """Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300, section 4.1)."""

    kind: Literal["grpo"] = "grpo"
    normalize_advantages: bool = True  # divide by the group's standard deviation


class DrGRPOConfig(EstimatorConfig):
    """GRPO done right (arXiv 2503.20783): no deviation, no length in any denominator."""

    kind: Literal["dr_grpo"] = "dr_grpo"
    normalize_advantages: bool = False
    loss_aggregation: Literal["token", "sequence", "constant"] = "constant"


class GSPOConfig(EstimatorConfig):
    """Group sequence policy optimisation (arXiv 2507.18071): GRPO whose ratio is the sequence's."""

    kind: Literal["gspo"] = "gspo"
    ratio: Literal["token", "sequence"] = "sequence"
    clip_low: PositiveFloat = 3e-4
    clip_high: PositiveFloat = 4e-4
    loss_aggregation: Literal["token", "sequence", "constant"] = "sequence"
    normalize_advantages: bool = True  # divide by the group's standard deviation


class GRPOTCRConfig(EstimatorConfig):
    """GRPO-TCR (DemyAgent, arXiv 2510.11701): token mean, clip-higher, overlong reward shaping."""

    kind: Literal["grpo_tcr"] = "grpo_tcr"
    clip_high: PositiveFloat = 0.28  # 0.315 explores more
    dual_clip: DualClip | None = 3.0  # verl's default, which theirs is built on
    normalize_advantages: bool = True  # divide by the group's standard deviation
    overlong_tokens: PositiveInt = 20_480  # of an episode: there the penalty is 1
    overlong_cache: PositiveInt = 4096  # over the last of them the penalty grows from 0
    max_refills: NonNegativeInt = 3

    @model_validator(mode="after")
    def _check_overlong(self) -> "GRPOTCRConfig":
        if self.overlong_cache > self.overlong_tokens:
            raise ValueError(
                f"overlong_cache ({self.overlong_cache}) must be at most overlong_tokens "
                f"({self.overlong_tokens}): it is the end of them"
            )
        return self


class RLOOConfig(EstimatorConfig):
    """REINFORCE leave-one-out (arXiv 2402.14740, section 3.3): an episode is one action."""

    kind: Literal["rloo"] = "rloo"
    loss_aggregation: Literal["token", "sequence", "constant"] = "constant"


class ReinforcePPConfig(EstimatorConfig):
    """REINFORCE++ (arXiv 2501.03262): normalised over the step instead of the group."""

    kind: Literal["reinforce_pp"] = "reinforce_pp"
    group_baseline: bool = False  # first less the group's mean: REINFORCE++-baseline


class TurnGRPOConfig(EstimatorConfig):
    """GRPO whose turns are worth the rewards from there on, compared turn by turn."""

    kind: Literal["turn_grpo"] = "turn_grpo"
    gamma: Fraction = 1.0  # discount from turn to turn
    compare: Literal["everyone", "running"] = "everyone"  # at turn k; running: as in RLAnything
    normalize_advantages: bool = True  # divide by the standard deviation among those compared


class RLAnythingConfig(EstimatorConfig):
    """Turns compared with the same turn of the episodes that still run (arXiv 2602.02488)."""

    kind: Literal["rlanything"] = "rlanything"
    turn_weight: NonNegativeFloat = 1.0  # of what a turn earned, beside the episode's outcome
    normalize_advantages: bool = True  # divide by the standard deviation among those compared


class GiGPOConfig(EstimatorConfig):
    """Group in group (arXiv 2505.10978): turns that met one state are compared, too."""

    kind: Literal["gigpo"] = "gigpo"
    gamma: Fraction = 0.95  # discount from turn to turn, of a turn's return
    step_weight: NonNegativeFloat = 1.0  # of the turn's advantage beside the episode's
    state_observations: PositiveInt = 1  # how many observations, the last one first, tell a state
    normalize_advantages: bool = True  # divide by the standard deviation at both levels


class CriticConfig(Section):
    """Who says what a state is worth."""

    kind: Literal["head", "model"] = "head"  # on the policy's last hidden state; or a copy of it
    learning_rate: LearningRate | None = None  # of the critic's own weights; None: train's
    warmup_steps: NonNegativeInt = 0  # updates at the start that leave the policy as it is


class PPOConfig(PolicyGradientConfig):
    """Proximal policy optimisation (arXiv 1707.06347) with a critic and GAE (arXiv 1506.02438).

    `gae: turn` takes a whole turn as one action (Turn-PPO, arXiv 2512.17008, which has gamma 0.99
    and lam 0.9).
    """

    kind: Literal["ppo"] = "ppo"
    gae: Literal["token", "turn"] = "token"
    gamma: Fraction = 0.99  # discount from turn to turn, at both levels
    lam: Fraction = 0.95  # per token or per turn, as `gae` says
    value_lam: Fraction | None = None  # of the value targets; None: lam
    adaptive_lam: PositiveFloat | None = None  # lam = 1 - 1 / (adaptive_lam * length); 0.05 in VAPO
    bootstrap_truncated: bool = True  # a cut episode ends with the value of the state after it
    normalize_advantages: bool = True  # over the batch, to mean 0 and deviation 1
    normalize_by_task: bool = False  # that by environment instead of over the whole batch
    value_clip: PositiveFloat | None = 0.2  # a value is not led further from the old one
    value_coefficient: PositiveFloat = 0.5  # of half the squared error
    critic: CriticConfig = CriticConfig()

    @model_validator(mode="after")
    def _check_time(self) -> "PPOConfig":
        if self.gamma == 1.0 and self.bootstrap_truncated:
            raise ValueError(
                "gamma: 1 with bootstrap_truncated: true makes an episode that never ends worth as "
                "much as a success; set gamma below 1 (0.99) or bootstrap_truncated: false"
            )
        return self

    @model_validator(mode="after")
    def _check_normalization(self) -> "PPOConfig":
        if self.normalize_by_task and not self.normalize_advantages:
            raise ValueError("normalize_by_task: true needs normalize_advantages: true")
        return self


def _grpo_unless_named(block: Any) -> Any:
    return {"kind": "grpo", **block} if isinstance(block, dict) else block


AlgorithmConfig = Annotated[
    Annotated[
        GRPOConfig
        | DrGRPOConfig
        | GSPOConfig
        | GRPOTCRConfig
        | RLOOConfig
        | ReinforcePPConfig
        | TurnGRPOConfig
        | RLAnythingConfig
        | GiGPOConfig
        | PPOConfig,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_grpo_unless_named),
]
