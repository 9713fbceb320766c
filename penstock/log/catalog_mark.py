"""The mark beside the catalogue: how many changes it has seen at least, by which an older copy of it is noticed.

It is written after a change is on disk, without a sync of its own: it may be behind the catalogue, never ahead.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

from crc32c import crc32c

from penstock.errors import DamagedError
from penstock.storage.files import Files, write_durably

MARK_NAME = "catalog.mark"
_MARK = struct.Struct("<4s16sQI")
_MAGIC = b"PSM1"


def encode_mark(log_id: str, changes: int) -> bytes:
    packed = _MARK.pack(_MAGIC, bytes.fromhex(log_id), changes, 0)
    return packed[:-4] + crc32c(packed[:-4]).to_bytes(4, "little")


def store_mark(files: Files, root: Path, log_id: str, changes: int) -> None:
    """Begin a mark, or replace one, durably."""
    write_durably(files, root / MARK_NAME, encode_mark(log_id, changes))


def load_mark(files: Files, root: Path, log_id: str) -> int:
    """How many changes the catalogue must have seen; DamagedError if that cannot be told."""
    path = root / MARK_NAME
    try:
        raw = files.read(path)
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing, so it is not known whether the catalogue is an older copy") from None
    if len(raw) != _MARK.size or crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise DamagedError(f"{path} is damaged, so it is not known whether the catalogue is an older copy")
    _, found, changes, _ = _MARK.unpack(raw)
    if found.hex() != log_id:
        raise DamagedError(f"{path} belongs to another log")
    return int(changes)


class Mark:
    """The mark, kept open by whoever changes the catalogue."""

    def __init__(self, files: Files, root: Path, log_id: str) -> None:
        self._log_id = log_id
        self._file = files.open(root / MARK_NAME)

    def move(self, changes: int) -> None:
        """After the change is on disk. What cannot be written only makes an older copy harder to notice."""
        with suppress(OSError):
            self._file.write_at(0, [encode_mark(self._log_id, changes)])

    def close(self) -> None:
        self._file.close()
