"""What the parts of a recipe have in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]  # of a running mean
LearningRate = Annotated[float, Field(gt=0, le=1e30)]  # more overflows in fp32
Fraction = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A part of a recipe: frozen, strict about types, closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
