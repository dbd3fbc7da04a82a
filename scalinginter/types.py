"""The records that the stages hand to each other, in the order in which they come to be.

    Task -> Turn, Turn, ... -> Trajectory -> Group -> TrainingSample

Worked example. A task of TextCraft is played under a horizon of 2 turns:

    turn 0   context_ids    <|user|> goal : stick ... <|assistant|>     12 ids, not trained
             completion_ids get log <|end|>                             3 ids, trained where sampled
    turn 1   context_ids    <|user|> got log <|assistant|>              4 ids, not trained
             completion_ids craft stick <|end|>                         3 ids
    stop     terminated (the stick is made), reward 1

The trajectory becomes one TrainingSample of 12 + 3 + 4 + 3 = 22 ids: the context of a turn is only
what was appended since the previous turn, so no id is ever written or encoded twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class StopReason(StrEnum):
    """Why an episode ended. Exactly one per trajectory."""

    TERMINATED = "terminated"  # the environment ended it: success or failure
    HORIZON = "horizon"  # the turns in force were used up
    TOKENS = "tokens"  # the tokens of the episode were used up
    CONTEXT = "context"  # the next prompt would not fit the model's context
    PARSE = "parse"  # too many answers in a row held no action
    ENV_ERROR = "env_error"  # the environment failed
    TIMEOUT = "timeout"  # the environment missed its deadline
    ENGINE_ERROR = "engine_error"  # the engine failed

    @property
    def is_truncation(self) -> bool:
        """Cut by a limit of ours: neither a success nor a failure of the task (GAE bootstraps)."""
        return self in (StopReason.HORIZON, StopReason.TOKENS, StopReason.CONTEXT)

    @property
    def is_failure(self) -> bool:
        """Infrastructure failed: the episode carries no evidence about the policy."""
        return self in (StopReason.ENV_ERROR, StopReason.TIMEOUT, StopReason.ENGINE_ERROR)


class FinishReason(StrEnum):
    """Why one completion ended."""

    STOP = "stop"  # a stop token was sampled (or was the only one allowed)
    LENGTH = "length"  # the token limit of the request was reached
    ABORT = "abort"  # the engine gave up on the request


@dataclass(frozen=True, slots=True)
class Task:
    """What to solve: a pure function of the environment's data and a seed."""

    id: str  # stable and unique within the environment, e.g. "train/d3/000017"
    environment: str  # registry id, e.g. "textcraft"
    data: Mapping[str, Any] = field(default_factory=dict)  # JSON values only
    required_turns: int | None = None  # turns of the expert plan, where known


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the agent may call, as OpenAI's function schema has it, and the action that a
    call of it means.

        Tool("search", "Find documents", {"type": "object", "properties":
             {"query": {"type": "string"}}, "required": ["query"]}, "search[{query}]")
    """

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON schema of an object
    template: str  # the action's text; "{query}" stands for the argument `query`


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine answers to one request. The tuples have one length."""

    token_ids: tuple[int, ...]  # exactly the ids that entered the context; a stop id comes last
    logprobs: tuple[float, ...]  # log-prob of each id under the distribution it was drawn from
    forced: tuple[bool, ...]  # True: the constraint left one id only, nothing was drawn
    allowed: tuple[tuple[int, ...] | None, ...]  # ids that the constraint allowed; None: all
    finish: FinishReason
    policy_version: int  # of the weights that drew the ids; the oldest where there are several
    forwarded_tokens: int = 0  # tokens that this request pushed through the model
    cached_tokens: int = 0  # prompt tokens that came out of the KV cache
    token_versions: tuple[int, ...] | None = None  # per id, where the weights changed meanwhile
    cross: bool = False  # the older policy of cross-policy sampling wrote it
    trained: bool = True  # False: context only, none of its ids is trained
    counted_tokens: int | None = None  # of an answer that came as text, without ids: what its
    # service counted, 0 where it did not; None: the ids are here

    def __post_init__(self) -> None:
        if self.counted_tokens is not None and self.token_ids:
            raise ValueError("a Completion has either ids or a number that somebody else counted")
        lengths = {len(self.token_ids), len(self.logprobs), len(self.forced), len(self.allowed)}
        if self.token_versions is not None:
            lengths.add(len(self.token_versions))
        if len(lengths) != 1:
            raise ValueError(f"Completion fields must have one length, got {sorted(lengths)}")

    @property
    def num_tokens(self) -> int:
        """Its length; of an answer that came as text, as its service counted."""
        return len(self.token_ids) if self.counted_tokens is None else self.counted_tokens


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt, one completion, one action, one observation."""

    context_ids: tuple[int, ...]  # ids appended to the context since the previous completion
    completion: Completion
    text: str  # the completion decoded, for people and for the action parser only
    action: str | None  # what was sent to the environment; None: no action could be parsed
    observation: str  # what came back
    reward: float  # earned by this turn; the turns' rewards sum to the episode's, within [0, 1]
    forked: bool = False  # context_ids is a whole new prompt: a new training row starts here


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One finished episode."""

    task: Task
    group_id: str  # given by the sampler; trajectories that are compared share it
    index: int  # position within the group
    seed: int  # of sampling
    horizon: int  # limit in force, in turns
    turns: tuple[Turn, ...]
    stop: StopReason
    success: bool
    first_observation: str = ""
    error: str = ""  # what failed, where stop.is_failure
    family: str = ""  # the environment's name in the recipe
    elsewhere: bool = False  # another process played it and has its tokens: only lengths are here
    next_ids: tuple[int, ...] = ()  # where stop.is_truncation: what the next turn would have
    # appended (its context_ids), and empty where that would not have fitted the context
    next_forked: bool = False  # next_ids would have been a whole new prompt

    @property
    def reward(self) -> float:
        """Sum of the turns' rewards, in [0, 1]."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def num_generated_tokens(self) -> int:
        return sum(turn.completion.num_tokens for turn in self.turns)

    @property
    def policy_versions(self) -> tuple[int, ...]:
        """The versions of the policy that wrote the turns, ascending."""
        versions: set[int] = set()
        for turn in self.turns:
            versions.update(turn.completion.token_versions or (turn.completion.policy_version,))
        return tuple(sorted(versions))


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one task that are compared with each other."""

    id: str
    trajectories: tuple[Trajectory, ...]

    def __post_init__(self) -> None:
        if not self.trajectories:
            raise ValueError(f"group {self.id!r} is empty")
        strangers = {t.group_id for t in self.trajectories} - {self.id}
        if strangers:
            raise ValueError(f"group {self.id!r} holds trajectories of {sorted(strangers)}")


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """One token row for the learner. All arrays have shape [T]; T is the row's length.

    `mask[t]` is True exactly where id t was drawn from the policy: it serves loss, KL, entropy and
    length alike. Everything at masked-out positions is ignored, whatever it holds.
    """

    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]  # of the policy that sampled (behaviour policy)
    advantages: NDArray[np.float32]
    turn_index: NDArray[np.int32]  # the turn that each id belongs to
    allowed: tuple[tuple[int, ...] | None, ...]  # per id, as in Completion; None: unconstrained
    group_id: str
    episode: int  # position of the episode in the batch; rows of one episode share it
    prefix_length: int = 0  # leading ids that all rows of this group share (its first prompt)
    values: NDArray[np.float32] | None = None  # the critic's, where there is one
    targets: NDArray[np.float32] | None = None  # of the values; NaN where none is trained

    def __post_init__(self) -> None:
        lengths = {
            len(self.ids),
            len(self.mask),
            len(self.logprobs),
            len(self.advantages),
            len(self.turn_index),
            len(self.allowed),
        }
        if len(lengths) != 1:
            raise ValueError(f"TrainingSample fields must have one length, got {sorted(lengths)}")
        if len(self.mask) and self.mask[0]:
            raise ValueError("the first id of a row has no logits before it and cannot be trained")

    def __len__(self) -> int:
        return len(self.ids)
