"""How the policy's weights get to SGLang servers: the keys of `engine.sync`."""

from typing import Literal

from scalinginter.config.section import NonNegativeInt, PositiveFloat, Section


class SyncConfig(Section):
    """The way, what becomes of answers in progress, and how the arrival is verified."""

    method: Literal["disk", "tensor", "distributed"] = "disk"
    # a folder; shared memory of one machine; broadcast, over NCCL from a GPU and gloo from a CPU
    pause: Literal["abort", "retract", "in_place"] = "retract"  # of answers in progress, meanwhile
    verify_every: NonNegativeInt = 1  # every tensor is checked at each so many syncs; 0: never
    max_logprob_gap: PositiveFloat = 0.1  # mean |learner - server| on canary prompts, in nats
