"""How episodes are played: how many, within which limits, and how far behind the policy."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from scalinginter.config.section import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)


class CrossPolicyConfig(Section):
    """Cross-policy sampling (AgentRL, arXiv 2510.04206, section 3.2): a share of the turns is
    written by an older policy, so that episodes reach states that the present one does not."""

    share: Annotated[float, Field(gt=0, lt=1)]  # of the turns
    refresh_every: PositiveInt = 10  # steps after which the older policy becomes the present one
    train: Literal["mask", "correct"] = "mask"  # its tokens: context only, or trained by the ratio


class RolloutConfig(Section):
    """How many episodes a step holds, and the limits of each. None of them truncates silently."""

    num_tasks: Annotated[int, Field(ge=1, le=65_536)] = 16
    group_size: Annotated[int, Field(ge=2, le=65_536)] = 8
    max_concurrent: PositiveInt = 128
    temperature: PositiveFloat = 1.0
    max_tokens_per_turn: PositiveInt = 64
    max_tokens_per_episode: PositiveInt | None = None  # generated tokens
    max_context: PositiveInt = 1024  # prompt and answers together: one training row
    max_parse_failures: PositiveInt | None = None  # answers in a row without an action
    max_retries: NonNegativeInt = 2  # of an episode whose environment or engine failed
    episode_timeout_s: PositiveFloat = 600.0
    straggler_timeout_s: PositiveFloat | None = None  # once half of a group is done; None: wait
    deterministic: bool = True  # the local engine waits for every environment before a batch
    max_staleness: NonNegativeInt = 0  # updates that a trained token may be behind; 0: synchronous
    overprovision: NonNegativeFloat | None = None  # groups under way beyond a step's; None: all
    cross_policy: CrossPolicyConfig | None = None

    @model_validator(mode="after")
    def _check(self) -> "RolloutConfig":
        if self.overprovision and not self.max_staleness:
            raise ValueError(
                f"overprovision: {self.overprovision:g} starts groups that go on into the next "
                "step, which max_staleness: 0 forbids; set max_staleness to 1 or more"
            )
        return self
