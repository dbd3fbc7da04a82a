"""Standard output and error that cannot end a run."""

import io
import os
import sys
from typing import TextIO


class _PatientFile(io.FileIO):
    """A file whose reader may leave (`train.py ... | head -1`): what comes then goes nowhere."""

    def write(self, data: object, /) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes  # type: ignore[arg-type]


def make_patient() -> None:
    """Let the two streams outlive their reader, and write `\\u2026` where the terminal's encoding
    has no such sign. Streams that somebody put in their place are left alone."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        sys.stdout = _patient(sys.stdout)
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        sys.stderr = _patient(sys.stderr)


def _patient(stream: TextIO) -> TextIO:
    stream.flush()
    # The old stream stays open behind this one: sys.__stdout__ is used at the very end.
    raw = _PatientFile(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.isatty() or stream is sys.__stderr__,
    )
