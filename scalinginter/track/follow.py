"""Reading a file that another process appends to, and may cut back.

A resume cuts a journal at the last checkpoint and writes the steps after it again. A cursor
therefore remembers a checksum of the bytes before it; when they are no longer there, reading starts
over at byte 0 and the caller is told.
"""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_MARK_BYTES = 256


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a file: the end of the last whole line that was read."""

    offset: int = 0
    mark: int = 0  # CRC-32 of the bytes just before it


@dataclass(frozen=True, slots=True)
class Read:
    """What `read_new` found."""

    lines: list[bytes]  # whole lines without their newline
    cursor: Cursor  # where to go on
    rewound: bool  # the file was cut back: `lines` starts at its first line


def read_new(path: Path, cursor: Cursor, max_bytes: int = 1 << 24) -> Read:
    """Return the whole lines after `cursor`; an absent file has none.

    About `max_bytes` are read at most, but never less than one whole line.
    """
    if not path.exists():
        return Read([], Cursor(), cursor.offset > 0)
    with path.open("rb") as file:
        rewound = _mark(file, cursor.offset) != cursor.mark
        start = 0 if rewound else cursor.offset
        file.seek(start)
        data = file.read(max_bytes)
        if len(data) == max_bytes:
            data += file.readline()
        length = data.rfind(b"\n") + 1
        end = start + length
        return Read(data[:length].split(b"\n")[:-1], Cursor(end, _mark(file, end)), rewound)


def _mark(file: BinaryIO, offset: int) -> int:
    """Return the checksum of the bytes before `offset`; -1 when the file is shorter."""
    start = max(0, offset - _MARK_BYTES)
    file.seek(start)
    data = file.read(offset - start)
    return zlib.crc32(data) if len(data) == offset - start else -1
