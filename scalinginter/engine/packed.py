"""Forward passes with a kept KV cache: one packed row `[1, T]` for all answers, no padding."""

import heapq
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from scalinginter.engine.answer import Answer
from scalinginter.engine.layout import SlotLayout
from scalinginter.engine.prefix import Node, PrefixTree, common_length
from scalinginter.engine.slots import Round, SlotCache


class _Session:
    __slots__ = ("busy", "ids", "length", "node", "slot")

    def __init__(self, slot: int, root: Node) -> None:
        self.slot = slot
        self.node = root  # its last node in the prefix tree
        self.ids: list[int] = []  # the first `length` of them are in the cache
        self.length = 0
        self.busy = True  # an answer is being written


class PackedForward:
    """Gives the next-token logits of many answers and forwards no shared prefix twice.

    A session keeps its slot and its rows from turn to turn. Rows that another session has (the
    system prompt, the task of its group, the same moves) are copied; rows that another answer
    computes in the same pass are written to both.
    """

    def __init__(self, model: PreTrainedModel, *, max_batch_tokens: int, max_sessions: int) -> None:
        self.forks = 0  # prompts that did not start with what their session had
        self._model = model
        self._max_batch_tokens = max_batch_tokens
        self._max_sessions = max_sessions
        self._cache = SlotCache()
        self._round = 0
        self._forget()

    def _forget(self) -> None:
        self._tree = PrefixTree()
        self._sessions: dict[str, _Session] = {}  # least recently used first
        self._free: list[int] = []  # heap: low slots first, so that a few sessions lie together
        self._num_slots = 0

    def open(self, answer: Answer) -> bool:
        """Start an answer. False: every slot is taken by an answer that is being written."""
        name = answer.request.session
        session = self._sessions.pop(name, None)
        if session is None:
            slot = self._take_slot()
            if slot is None:
                return False
            session = _Session(slot, self._tree.root)
        elif answer.ids[: session.length] != session.ids[: session.length]:
            self.forks += 1
            self._truncate(session, common_length(session.ids[: session.length], answer.ids))
        session.ids = answer.ids
        session.busy = True
        self._sessions[name] = session
        answer.cached = session.length
        return True

    def pause(self, name: str) -> None:
        """The answer is done or given up; the session's cache stays."""
        if name in self._sessions:
            self._sessions[name].busy = False

    def close(self, name: str) -> None:
        """Give the session's slot back."""
        session = self._sessions.pop(name, None)
        if session is not None:
            self._tree.truncate(session.node, session.slot, 0)
            heapq.heappush(self._free, session.slot)

    def reset(self, *, free_memory: bool) -> None:
        """Forget every session; answers being written must be opened again."""
        self._forget()
        if free_memory:
            self._cache.drop()

    def forward(self, answers: Sequence[Answer]) -> tuple[torch.Tensor, list[tuple[Answer, int]]]:
        """Push what is pending, at most `max_batch_tokens`, through the model.

        Returns logits [M, V] and, for each answer whose context is now complete, the row that is
        its own (answers with the same context have the same row).
        """
        self._round += 1
        plan = Round()
        complete = [(answer, self._plan(answer, plan)) for answer in self._in_order(answers)]
        done = [(answer, row) for answer, row in complete if row is not None]
        logits_at = sorted({row for _, row in done})
        index = {row: i for i, row in enumerate(logits_at)}
        plan.common = self._common(answers)
        device = self._model.device
        self._cache.ensure(self._num_slots, max(plan.write_positions) + 1)
        keep = torch.tensor(logits_at, dtype=torch.long, device=device)
        outputs = keep if len(keep) < len(plan.ids) else None
        logits = self._model(
            input_ids=torch.tensor([plan.ids], device=device),
            position_ids=torch.tensor([plan.positions], device=device),
            attention_layout=SlotLayout(self._cache, plan, device, outputs),
            use_cache=False,
            logits_to_keep=keep,
        ).logits[0]
        return logits, [(answer, index[row]) for answer, row in done]

    def _in_order(self, answers: Sequence[Answer]) -> list[Answer]:
        """What has least to forward comes first, so that a long prompt stalls nobody."""
        sessions = self._sessions

        def key(answer: Answer) -> tuple[int, int]:
            session = sessions[answer.request.session]
            return len(answer.ids) - session.length, session.slot

        return sorted(answers, key=key)

    def _plan(self, answer: Answer, plan: Round) -> int | None:
        """Add an answer's pending ids to the round; return the packed row of its last one."""
        session = self._sessions[answer.request.session]
        slot, ids = session.slot, answer.ids
        room = self._max_batch_tokens - len(plan.ids)
        row = self._share(answer, session, plan)
        rest = ids[session.length : session.length + room]
        if rest:
            session.node = self._tree.append(session.node, slot, rest, self._round, len(plan.ids))
            plan.add(slot, session.length, rest)
            session.length += len(rest)
            answer.forwarded += len(rest)
            return len(plan.ids) - 1 if session.length == len(ids) else None
        if row is None and room and session.length == len(ids):
            # All rows were cached in earlier passes; only the logits of the last are missing.
            plan.add(slot, len(ids) - 1, ids[-1:])
            answer.forwarded += 1
            answer.cached -= len(ids) == answer.prompt_length
            return len(plan.ids) - 1
        return row if session.length == len(ids) else None

    def _share(self, answer: Answer, session: _Session, plan: Round) -> int | None:
        """Take over rows that others have or compute in this round.

        Returns the packed row of the last one, if it is computed in this round.
        """
        pending = answer.ids[session.length :]
        session.node, found = self._tree.match(session.node, session.slot, pending, self._round)
        for match in found:
            if match.fresh:
                plan.share(session.slot, match.start, match.source, match.end - match.start)
            else:
                self._cache.copy(match.source, session.slot, match.start, match.end)
        if not found:
            return None
        last = found[-1]
        answer.cached += max(0, min(last.end, answer.prompt_length) - session.length)
        session.length = last.end
        return last.source + last.end - last.start - 1 if last.fresh else None

    def _common(self, answers: Sequence[Answer]) -> list[tuple[list[int], int]]:
        """Slots whose sequences start with the same tokens, and how many those are."""
        groups: dict[int, tuple[list[int], int]] = {}
        for answer in answers:
            session = self._sessions[answer.request.session]
            node = session.node
            while node.parent is not None and len(node.holders) == 1:
                node = node.parent
            if node.parent is not None:
                groups.setdefault(id(node), ([], node.end))[0].append(session.slot)
        return [group for group in groups.values() if len(group[0]) > 1]

    def _truncate(self, session: _Session, length: int) -> None:
        session.node = self._tree.truncate(session.node, session.slot, length)
        session.length = length

    def _take_slot(self) -> int | None:
        if not self._free and self._num_slots >= self._max_sessions:
            idle = next((name for name, s in self._sessions.items() if not s.busy), None)
            if idle is None:
                return None
            self.close(idle)  # its next turn is forwarded from the start
        if self._free:
            slot = heapq.heappop(self._free)
        else:
            slot, self._num_slots = self._num_slots, self._num_slots + 1
            self._cache.ensure(self._num_slots, 1)
        return slot
