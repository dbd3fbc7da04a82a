"""The recipe's `guard` block: what happens when a longer horizon does harm."""

from typing import Annotated

from pydantic import Field

from scalinginter.config.section import NonNegativeFloat, NonNegativeInt, PositiveInt, Section

Ratio = Annotated[float, Field(gt=1)]


class GuardConfig(Section):
    """Holds the horizon back where memory is short, and takes back a switch that blew up."""

    memory_share: Annotated[float, Field(gt=0, le=1)] | None = 0.9
    # of the free memory, that an update at the next horizon may take; null: not checked
    watch_steps: NonNegativeInt = (
        5  # after a longer horizon, in which it can be taken back; 0: never
    )
    hold_steps: PositiveInt = 20  # at the shorter horizon after that
    max_rollbacks: NonNegativeInt = 3  # of a run; one more ends it
    grad_norm_ratio: Ratio = 100.0  # gradient norm over its running median that is an alarm
    min_grad_norm: NonNegativeFloat = 1.0  # no alarm below
    kl_ratio: Ratio = 100.0  # the same of the KL from the policy that sampled
    min_kl: NonNegativeFloat = 0.1  # nats a token; no alarm below
