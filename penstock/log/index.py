"""The index of a segment: some of its frames, by offset and by time. A sidecar file that can always be rebuilt.

An entry is written for the first frame and then for one frame in every 64 KiB or more. Each entry has its own checksum;
an index with a bad entry is thrown away and made again from the frames.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from crc32c import crc32c

from penstock.log.frame import Header
from penstock.storage.files import File, Files, write_durably

INDEX_EVERY_BYTES = 64 * 1024
_ENTRY = struct.Struct("<qqqqII")


@dataclass(frozen=True, slots=True)
class Entry:
    """A frame worth remembering. `max_time` is the largest event time before this frame, in this partition."""

    base_offset: int
    position: int
    max_time: int
    append_time: int


class IndexBuilder:
    """Chooses the frames that get an entry, while frames go by in order."""

    def __init__(self, *, max_time: int) -> None:
        self._max_time = max_time
        self._last_position = -INDEX_EVERY_BYTES

    def entry_for(self, position: int, header: Header) -> Entry | None:
        due = position - self._last_position >= INDEX_EVERY_BYTES and header.rows > 0
        entry = Entry(header.base_offset, position, self._max_time, header.append_time) if due else None
        if due:
            self._last_position = position
        self._max_time = max(self._max_time, header.max_time)
        return entry

    def entries_for(self, frames: Iterable[tuple[int, Header]]) -> list[Entry]:
        return [entry for position, header in frames if (entry := self.entry_for(position, header))]


def encode_entries(entries: Iterable[Entry]) -> bytes:
    return b"".join(_encode_entry(entry) for entry in entries)


def _encode_entry(entry: Entry) -> bytes:
    packed = _ENTRY.pack(entry.base_offset, entry.position, entry.max_time, entry.append_time, 0, 0)
    return packed[:32] + crc32c(packed[:32]).to_bytes(4, "little") + packed[36:]


def decode_entries(raw: bytes) -> list[Entry] | None:
    """The entries in order, or None when one is wrong. A last one that is only half there is being written just now."""
    entries = []
    for start in range(0, len(raw) - _ENTRY.size + 1, _ENTRY.size):
        base_offset, position, max_time, append_time, crc, _ = _ENTRY.unpack_from(raw, start)
        if crc32c(raw[start : start + 32]) != crc:
            return None
        entries.append(Entry(base_offset, position, max_time, append_time))
    ordered = all(a.position < b.position and a.base_offset < b.base_offset for a, b in pairwise(entries))
    return entries if ordered else None


def load_index(files: Files, path: Path) -> list[Entry] | None:
    """The index, or None when it is missing, damaged or cannot be read: then readers go without."""
    try:
        return decode_entries(files.read(path))
    except OSError:
        return None


def entry_at_offset(entries: list[Entry], offset: int) -> Entry | None:
    """The last entry at or before `offset`: a place to begin the search. None: begin at the start."""
    found = bisect_right(entries, offset, key=lambda entry: entry.base_offset)
    return entries[found - 1] if found else None


def offset_before_event_time(entries: list[Entry], time: int) -> int | None:
    """The offset of the last entry before which every event is older than `time`. None: from the start."""
    found = bisect_left(entries, time, key=lambda entry: entry.max_time)
    return entries[found - 1].base_offset if found else None


def offset_before_append_time(entries: list[Entry], time: int) -> int | None:
    """The offset of the last entry that was appended before `time`. None: from the start."""
    found = bisect_left(entries, time, key=lambda entry: entry.append_time)
    return entries[found - 1].base_offset if found else None


class IndexFile:
    """The index of the active segment, grown by whoever appends to it.

    A disk that refuses it costs the index, not the rows: it ends there, readers search without it, and it is made again
    when the segment is next opened.
    """

    def __init__(self, files: Files, path: Path, entries: list[Entry]) -> None:
        """Open the index, after putting it right where it does not hold just these entries."""
        self._entries = len(entries)
        self._file: File | None = None
        try:
            if load_index(files, path) != entries:
                # Durably, or a power loss might bring back an index that speaks of frames which are gone.
                write_durably(files, path, encode_entries(entries))
            self._file = files.open(path, create=True)
        except OSError:
            with suppress(OSError):
                files.remove(path)

    def add(self, entries: list[Entry]) -> None:
        if self._file is None or not entries:
            return
        try:
            self._file.write_at(self._entries * _ENTRY.size, [encode_entries(entries)])
            self._entries += len(entries)
        except OSError:
            self.close()

    def skip(self, entries: int) -> None:
        """Go on behind entries that another process wrote."""
        self._entries += entries

    def sync(self) -> None:
        """Before the segment is closed: from then on a damaged index is damage, not the trace of a power loss."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
