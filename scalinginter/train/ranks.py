"""The processes of one run: who they are, and how they agree. One process alone does nothing here.

Every process ("rank") holds the whole policy, plays its share of the groups and adds its share of
the gradient. What decides about the run is the same on all of them: it is computed from records
that every rank has (`gather`), or told by rank 0 (`broadcast`). What may fail or be stopped on one
rank alone runs under `agree`, so that no rank waits for one that has left.

    supervisor (compare.jobs) or torchrun or accelerate launch
      -> RANK, WORLD_SIZE, ... -> `joined` -> Ranks

Numbers and records travel over gloo, gradients over the backend of the device.
"""

import ctypes
import os
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from scalinginter.errors import AgreedFailureError, LostProcessError, RunFailedError, UserError
from scalinginter.train.signals import Interrupted

T = TypeVar("T")

STORE = "SCALINGINTER_STORE"  # the file through which ranks of the supervisor find each other
_PR_SET_PDEATHSIG = 1


def world_size() -> int:
    """Return the number of processes that whoever started this one asked for.

    Raises `UserError` where accelerate was asked for several and has started one: what
    `accelerate launch --cpu --num_processes 2` does without a word.
    """
    if "WORLD_SIZE" in os.environ:
        return int(os.environ["WORLD_SIZE"])
    if "ACCELERATE_MIXED_PRECISION" in os.environ and "MASTER_PORT" in os.environ:
        raise UserError(
            "accelerate launch was asked for several processes and has started one, as it does "
            "with --cpu. Start them with: python train.py --num-processes N ..., or with: "
            "accelerate launch --multi_gpu --num_processes N --main_process_port 0 train.py ... "
            "(also without a GPU)"
        )
    return 1


def rank_of_environment() -> int:
    """Return the number of this process, 0 where it is the only one."""
    return int(os.environ.get("RANK", "0")) if "WORLD_SIZE" in os.environ else 0


class Ranks:
    """This process among those of its run.

    Args:
        rank: Its number, from 0.
        size: Processes in all.
        group: For numbers and records, over gloo; None where the process is alone.
        timeout_s: The longest that one rank waits for another.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        group: dist.ProcessGroup | None = None,
        timeout_s: float = 3600.0,
    ) -> None:
        self.rank, self.size, self._group, self.timeout_s = rank, size, group, timeout_s

    @property
    def is_main(self) -> bool:
        """Whether this is the one that writes files and talks to people."""
        return self.rank == 0

    def gather(self, item: T) -> list[T]:
        """Return every rank's item, in the order of the ranks. Items are pickled."""
        if self.size == 1:
            return [item]
        items: list[Any] = [None] * self.size
        with self._waiting():
            dist.all_gather_object(items, item, group=self._group)
        return items

    def to_main(self, item: T) -> list[T]:
        """Return every rank's item on rank 0, and an empty list elsewhere."""
        if self.size == 1:
            return [item]
        items: list[Any] | None = [None] * self.size if self.is_main else None
        with self._waiting():
            dist.gather_object(item, items, dst=0, group=self._group)
        return items or []

    def broadcast(self, item: T) -> T:
        """Return the item of rank 0."""
        if self.size == 1:
            return item
        items = [item]
        with self._waiting():
            dist.broadcast_object_list(items, src=0, group=self._group)
        return items[0]

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sums over all ranks; every rank has the same keys."""
        if self.size == 1:
            return dict(values)
        totals = torch.tensor([float(values[name]) for name in sorted(values)], dtype=torch.float64)
        with self._waiting():
            dist.all_reduce(totals, group=self._group)
        return dict(zip(sorted(values), totals.tolist(), strict=True))

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.sum({"here": 1.0})

    def agree(self, work: Callable[[], T]) -> T:
        """Do some work on every rank; return this rank's result if all of them have one.

        Raises everywhere what one of them raised: `UserError`, `AgreedFailureError` for any
        `RunFailedError`, else `Interrupted`.
        """
        if self.size == 1:
            return work()
        result, problem = None, ""
        try:
            result = work()
        except Interrupted:
            problem = "stopped"
        except UserError as error:
            problem = f"user {error}"
        except RunFailedError as error:
            problem = f"failed {error}"
        problems = self.gather(problem)
        wrong = [i for i, text in enumerate(problems) if text not in ("", "stopped")]
        if wrong:
            kind, _, text = problems[wrong[0]].partition(" ")
            error = UserError(text) if kind == "user" else AgreedFailureError(text)
            error.quiet = self.rank != wrong[0]
            raise error
        if any(problems):
            raise Interrupted
        return result  # type: ignore[return-value]

    def refuse_difference(self, value: Any, what: str) -> None:
        """Raise `RunFailedError` unless `value` is the same on every rank."""
        if self.size == 1:
            return
        values = self.gather(value)
        other = next((i for i, theirs in enumerate(values) if theirs != values[0]), None)
        if other is not None:
            error = AgreedFailureError(
                f"the processes of the run disagree on {what}: {values[0]!r} in process 0, "
                f"{values[other]!r} in process {other}. Do all machines have the same code, recipe "
                "and data?"
            )
            error.quiet = not self.is_main
            raise error

    @contextmanager
    def _waiting(self) -> Generator[None]:
        try:
            yield
        except RuntimeError as error:
            raise _lost(self, error) from error


@contextmanager
def joined(device: torch.device, timeout_s: float, *, always: bool = False) -> Generator[Ranks]:
    """Join the processes of this run, if it has several, and leave them in the end.

    On a GPU this process takes the one of its LOCAL_RANK. `always`: a process that is alone makes a
    group of one.
    """
    size = world_size()
    cuda = device.type == "cuda"
    backend = "cuda:nccl,cpu:gloo" if cuda else "gloo"
    if size == 1:
        if always:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        yield Ranks()
        if always:
            dist.destroy_process_group()
        return
    rank, timeout = rank_of_environment(), timedelta(seconds=timeout_s)
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    store = os.environ.get(STORE)
    if store is None:
        end_with_launcher()
    dist.init_process_group(
        backend,
        init_method="env://" if store is None else f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timeout,
    )
    group = dist.new_group(backend="gloo", timeout=timeout) if cuda else dist.group.WORLD
    assert isinstance(group, dist.ProcessGroup)
    ranks = Ranks(rank, size, group, timeout_s)
    try:
        yield ranks
        ranks.barrier()  # the store may live in rank 0
    except RuntimeError as error:
        if not _is_of_communication(error):
            raise
        raise _lost(ranks, error) from error
    dist.destroy_process_group()


def end_with_launcher() -> None:
    """Ask the kernel to kill this process when the one that started it is gone.

    torchrun that is killed leaves its processes behind, and they would go on writing.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _is_of_communication(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()


def _lost(ranks: Ranks, error: Exception) -> LostProcessError:
    waited = "timed out" in str(error).lower()
    lost = LostProcessError(
        f"process {ranks.rank} of {ranks.size} "
        + (f"waited {ranks.timeout_s:g} s (train.rank_timeout_s)" if waited else "lost the others")
        + f": {str(error).splitlines()[0]}"
    )
    lost.quiet = STORE in os.environ and not waited  # the one that ended tells why, or is told of
    return lost
