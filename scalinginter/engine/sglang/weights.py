"""The policy's weights under the names that servers know them by.

A snapshot is what `sync` was called with. Servers that come back later get that one, whatever the
learner has done to the policy since.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

_PAD = 64  # servers pad the vocabulary with rows of zeros to a multiple of it

# Tensors of a checkpoint that SGLang puts together, one below the other: its name, theirs.
_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}


@dataclass
class Snapshot:
    """Weights of one version.

    Attributes:
        name: the weight_version.
        tensors: by their names in a checkpoint; tied ones once.
        canaries: the policy's log-probs of the canary prompts, [prompt][position >= 1].
        folder: where it was saved; None: not yet.
    """

    name: str
    tensors: dict[str, Tensor]
    canaries: list[list[float]]
    folder: Path | None = None
    _digests: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def digested(self) -> tuple[str, ...]:
        """The servers' tensors whose digests were asked for."""
        return tuple(self._digests)

    def parts_of(self, theirs: str) -> tuple[str, ...]:
        """Return which tensors make up a server's tensor; none: it is not known."""
        if theirs in self.tensors:
            return (theirs,)
        for fused, names in _FUSED.items():
            if f".{fused}." in theirs:
                parts = tuple(theirs.replace(f".{fused}.", f".{name}.") for name in names)
                return parts if all(part in self.tensors for part in parts) else ()
        return ()

    def digests(self, theirs: str) -> frozenset[str]:
        """Return what the checksum of a server's tensor may be: as it is, or padded.

        As SGLang's WeightChecker gives it for tensors on a CPU: 8 bytes of a SHA-256.
        """
        found = self._digests.get(theirs)
        if found is None:
            tensors = [self.tensors[part].detach() for part in self.parts_of(theirs)]
            digest = hashlib.sha256()
            for tensor in tensors:
                raw = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
                digest.update(raw.numpy().data)
            padded = digest.copy()
            if tensors[0].dim() == 2:
                rows = -sum(map(len, tensors)) % _PAD
                padded.update(bytes(rows * tensors[0][0].nbytes))
            found = frozenset(d.hexdigest()[:16] for d in (digest, padded))
            self._digests[theirs] = found
        return found


class Source:
    """Takes snapshots of the policy and saves them; keeps the last one.

    Args:
        tensors: gives the policy's tensors by their names in a checkpoint.
        save: writes a policy with given tensors into a folder.
        logprobs: gives the policy's log-probs of the ids of sequences, from the second id on.
        vocabulary: number of ids.
        folder: two copies at most are kept there.
        copied: copies a tensor for a snapshot; None: snapshots hold the policy's own.
    """

    def __init__(
        self,
        tensors: Callable[[], Iterable[tuple[str, Tensor]]],
        save: Callable[[Path, Mapping[str, Tensor]], None],
        logprobs: Callable[[Sequence[list[int]]], list[list[float]]],
        *,
        vocabulary: int,
        folder: Path,
        copied: Callable[[Tensor], Tensor] | None,
    ) -> None:
        self.prompts = canary_prompts(vocabulary)
        self._tensors, self._save, self._logprobs = tensors, save, logprobs
        self._folder, self._copied = folder, copied
        self._last: Snapshot | None = None
        self._saved: Path | None = None  # the newest folder

    def take(self, name: str) -> Snapshot:
        """Return the snapshot called `name`; of the policy as it is, if the name is new."""
        if self._last is None or self._last.name != name:
            known = self._last.digested if self._last else ()
            tensors = dict(_without_ties(self._tensors()))
            if self._copied is not None:
                tensors = {key: self._copied(tensor) for key, tensor in tensors.items()}
            self._last = Snapshot(name, tensors, self._logprobs(self.prompts))
            if self._copied is None:  # the tensors are the learner's, which goes on changing them
                self.saved(name)
                for theirs in known:
                    self._last.digests(theirs)
        return self._last

    def saved(self, name: str) -> Path:
        """Return the folder of the snapshot called `name`, a whole model with its tokenizer.

        The folder before it stays: a server may be loading from it.
        """
        snapshot = self.take(name)
        if snapshot.folder is None:
            target, before = self._folder / name, self._saved
            self._folder.mkdir(parents=True, exist_ok=True)
            self._save(target, snapshot.tensors)
            for other in self._folder.iterdir():
                if other not in (target, before):
                    shutil.rmtree(other, ignore_errors=True)
            snapshot.folder = self._saved = target
        return snapshot.folder


def canary_prompts(vocabulary: int, count: int = 4, length: int = 16) -> list[list[int]]:
    """Return fixed sequences of ids, spread over the vocabulary."""
    return [[(i * 7919 + j * j * 31 + 7) % vocabulary for j in range(length)] for i in range(count)]


def _without_ties(pairs: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    seen: set[tuple[int, torch.Size]] = set()
    for name, tensor in pairs:
        place = tensor.data_ptr(), tensor.shape
        if place not in seen:
            seen.add(place)
            yield name, tensor.detach()
