"""The horizon block of a recipe: one class per kind of schedule."""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from scalinginter.config.section import Fraction, NonNegativeInt, PositiveInt, Section


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
