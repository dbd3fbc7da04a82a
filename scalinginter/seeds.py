"""Seeds as counters: each is a hash of what it is for, so nothing depends on what ran before."""

import hashlib


def derive(*parts: int | str) -> int:
    """Return a seed in [0, 2**63) that is a pure function of `parts`, the same on every machine."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
