"""The recipe's `algorithm` block: one class per kind, what they share in their base."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from scalinginter.config.section import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
)


class PolicyGradientConfig(Section):
    """The loss that the algorithms share: clipped surrogate, KL to a reference, entropy bonus."""

    clip_low: PositiveFloat = 0.2
    clip_high: PositiveFloat = 0.2
    loss_aggregation: Literal["token", "sequence", "constant"] = "token"
    constant_tokens: PositiveInt = 3000  # constant: tokens that an episode's sum is divided by
    kl_coefficient: NonNegativeFloat = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    entropy_bonus: NonNegativeFloat = 0.0
    truncated: Literal["reward", "drop"] = "reward"  # cut episodes: use what they earned, or leave

    @model_validator(mode="after")
    def _check_kl(self) -> "PolicyGradientConfig":
        if self.kl_in == "reward" and self.kl_estimator != "k1":
            raise ValueError("kl_in: reward needs kl_estimator: k1, the only unbiased one there")
        return self


class GRPOConfig(PolicyGradientConfig):
    """Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300, section 4.1)."""

    kind: Literal["grpo"] = "grpo"
    normalize_advantages: bool = True  # divide by the group's standard deviation


class DrGRPOConfig(PolicyGradientConfig):
    """GRPO done right (arXiv 2503.20783): no deviation, no length in any denominator."""

    kind: Literal["dr_grpo"] = "dr_grpo"
    normalize_advantages: bool = False
    loss_aggregation: Literal["token", "sequence", "constant"] = "constant"


def _grpo_unless_named(block: Any) -> Any:
    return {"kind": "grpo", **block} if isinstance(block, dict) else block


AlgorithmConfig = Annotated[
    Annotated[
        GRPOConfig | DrGRPOConfig,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_grpo_unless_named),
]
