"""The recipe's `model.lora` block."""

from typing import Annotated

from pydantic import Field

from scalinginter.config.section import PositiveFloat, PositiveInt, Section


class LoRAConfig(Section):
    """Low-rank adapters instead of all weights (arXiv 2106.09685), through peft.

    No dropout: a ratio of two policies, of which one drops activations, is not what it says.
    """

    r: PositiveInt = 16  # rank
    alpha: PositiveFloat = 32.0  # the adapter's product is scaled by alpha / r
    target_modules: Annotated[list[str], Field(min_length=1)] = Field(default=["all-linear"])
    # names of linear layers, e.g. [q_proj, v_proj]; all-linear: all but the output layer
