"""One request in progress: its tokens so far, its constraint, and when it ends."""

from scalinginter.engine.base import GenerateRequest
from scalinginter.types import Completion, FinishReason


class Answer:
    """The prompt and what was answered so far. Ids that a constraint forces cost no draw."""

    def __init__(self, request: GenerateRequest, version: int) -> None:
        self.request = request
        self.version = version  # of the weights that the next token is drawn from
        self._versions: list[int] = []  # per token of the answer
        self.ids = list(request.prompt_ids)  # prompt, then the answer
        self.prompt_length = len(self.ids)
        self.logprobs: list[float] = []
        self.forced: list[bool] = []
        self.allowed: list[tuple[int, ...] | None] = []
        self.finish: FinishReason | None = None
        self.left: tuple[int, ...] | None = None  # what the next draw may give; None: all
        self.forwarded = 0  # tokens pushed through the model for this request
        self.cached = 0  # prompt tokens that were not
        self.state = 0 if request.constraint is None else request.constraint.start
        self._jump()

    def take(self, token_id: int, logprob: float) -> None:
        """Append a drawn id and every id that the constraint then forces."""
        self._append(token_id, logprob, forced=False)
        self._jump()

    def completion(self) -> Completion:
        assert self.finish is not None
        oldest = min(self._versions)
        return Completion(
            token_ids=tuple(self.ids[self.prompt_length :]),
            logprobs=tuple(self.logprobs),
            forced=tuple(self.forced),
            allowed=tuple(self.allowed),
            finish=self.finish,
            policy_version=oldest,
            forwarded_tokens=self.forwarded,
            cached_tokens=self.cached,
            token_versions=tuple(self._versions) if max(self._versions) > oldest else None,
        )

    def _append(self, token_id: int, logprob: float, *, forced: bool) -> None:
        request = self.request
        self.ids.append(token_id)
        self.logprobs.append(logprob)
        self._versions.append(self.version)
        self.forced.append(forced)
        self.allowed.append(self.left)
        count = len(self.logprobs)
        if token_id in request.stop_ids and count >= request.min_new_tokens:
            self.finish = FinishReason.STOP
        elif count >= request.max_new_tokens:
            self.finish = FinishReason.LENGTH
        elif request.constraint is not None:
            self.state = request.constraint.advance(self.state, token_id)

    def _jump(self) -> None:
        """Append ids for as long as the constraint leaves one only."""
        constraint = self.request.constraint
        while constraint is not None and self.finish is None:
            self.left = constraint.allowed(self.state)
            if not self.left:
                raise ValueError(
                    "the constraint allows no token, and no stop id was taken before; "
                    "every sequence it allows must end with one of stop_ids"
                )
            if len(self.left) > 1:
                return
            self._append(self.left[0], 0.0, forced=True)


def check_request(request: GenerateRequest, max_context: int) -> None:
    """Raise `ValueError` for a request that breaks the contract."""
    if not request.prompt_ids:
        raise ValueError("prompt_ids is empty; a prompt needs one id at least")
    if request.max_new_tokens < 1:
        raise ValueError(f"max_new_tokens = {request.max_new_tokens}; it must be 1 or more")
    if not 0 <= request.temperature < float("inf"):
        raise ValueError(f"temperature = {request.temperature}; it must be 0 (greedy) or above")
    if request.min_new_tokens and request.constraint is not None:
        raise ValueError("min_new_tokens has no meaning with a constraint; give one of the two")
    wanted = len(request.prompt_ids) + request.max_new_tokens
    if wanted > max_context:
        raise ValueError(
            f"a prompt of {len(request.prompt_ids)} and {request.max_new_tokens} new tokens need "
            f"a context of {wanted}; this engine has max_context = {max_context}"
        )
