"""Rows that a source has given and that are not written yet, in order. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.contracts import Captured, DeleteMarks, Position, TopicRows
from penstock.errors import DeclarationError

# What a row that is given as a dict is taken to need, roughly. Measuring each would take longer than writing it.
DICT_BYTES = 512
# Small batches are joined up to about this much: a frame for each would be slow to write and to read.
JOINED_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class _Part:
    """Consecutive rows of one topic, given as dicts, so that they can be converted together."""

    topic: str
    rows: list[Mapping[str, object]]
    deleted: list[bool] | None

    def topic_rows(self) -> TopicRows:
        return TopicRows(self.topic, self.rows, self.deleted)


_Gathered = dict[str, list[_Part | TopicRows]]
"""By topic. Rows of different topics have no order among each other, as long as they are written in one step."""


@dataclass(slots=True)
class GatheredRows:
    """Gathers rows item by item. Rows up to the last item with a position are complete; only those may be written.

    Those after it are open. If there are too many of them, they may be taken to be staged: then they count as complete
    with the next position.
    """

    topics: Mapping[str, str]  # by table
    position: Position | None  # of the last complete item, or of the last write
    items: int = 0
    complete_rows: int = 0  # with those that were staged
    complete_bytes: int = 0  # about, and without those
    open_rows: int = 0
    open_bytes: int = 0
    staged_open_rows: int = 0
    _written: Position | None = None
    _complete: _Gathered = field(default_factory=dict)
    _open: _Gathered = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._written = self.position

    @property
    def has_moved(self) -> bool:
        """Whether there is something to write: rows, or at least a new position."""
        return bool(self._complete) or self.position != self._written

    def add(self, item: Captured) -> None:
        self.items += 1
        if len(item.rows):
            part = self._to_part(item)
            _append(self._open, part)
            self.open_rows += len(item.rows)
            self.open_bytes += _size(part)
        if item.position is None:
            return
        if (self._open or self.staged_open_rows) and item.position == self.position:
            raise DeclarationError(
                f"source: table '{item.table}' gave rows without moving its position, which is {item.position!r}",
                hint="this is a mistake of the source: a repeat of a position is not stored",
            )
        for parts in self._open.values():
            for part in parts:
                _append(self._complete, part)
        self.complete_rows += self.open_rows + self.staged_open_rows
        self.complete_bytes += self.open_bytes
        self._open, self.open_rows, self.open_bytes, self.staged_open_rows = {}, 0, 0, 0
        self.position = item.position

    def take(self) -> tuple[Position | None, list[TopicRows]]:
        """Remove and return all complete rows, to be written now, with their position."""
        parts = _joined(self._complete)
        self._complete, self.complete_rows, self.complete_bytes = {}, 0, 0
        self._written = self.position
        return self.position, parts

    def take_open(self) -> list[TopicRows]:
        """Remove and return all open rows, to be staged now. Call it only when nothing complete is left."""
        parts = _joined(self._open)
        self.staged_open_rows += self.open_rows
        self._open, self.open_rows, self.open_bytes = {}, 0, 0
        return parts

    def _to_part(self, item: Captured) -> _Part | TopicRows:
        if item.table not in self.topics:
            raise DeclarationError(f"source: it gave rows of '{item.table}', which is none of its tables")
        topic = self.topics[item.table]
        if not isinstance(item.rows, Sequence):
            return TopicRows(topic, item.rows, item.deleted)
        return _Part(topic, list(item.rows), None if item.deleted is None else mark_list(item.deleted))


def _append(gathered: _Gathered, part: _Part | TopicRows) -> None:
    parts = gathered.setdefault(part.topic, [])
    last = parts[-1] if parts else None
    # Rows with delete marks are kept apart from rows without: a row that may delete may have null columns.
    if isinstance(part, _Part) and isinstance(last, _Part) and (part.deleted is None) == (last.deleted is None):
        last.rows += part.rows
        if last.deleted is not None and part.deleted is not None:
            last.deleted += part.deleted
    else:
        parts.append(part)


def _size(part: _Part | TopicRows) -> int:
    return len(part.rows) * DICT_BYTES if isinstance(part.rows, Sequence) else int(part.rows.nbytes)


def _joined(gathered: _Gathered) -> list[TopicRows]:
    """All parts, batches that are alike and follow each other joined into larger ones."""
    found: list[TopicRows] = []
    for parts in gathered.values():
        alike: list[TopicRows] = []
        size = 0
        for part in parts:
            rows = part.topic_rows() if isinstance(part, _Part) else part
            size += _size(part)
            if alike and not (_are_alike(alike[-1], rows) and size <= JOINED_BYTES):
                found.append(_join(alike))
                alike, size = [], _size(part)
            alike.append(rows)
        found.append(_join(alike))
    return found


def _are_alike(left: TopicRows, right: TopicRows) -> bool:
    return (
        isinstance(left.rows, pa.RecordBatch)
        and isinstance(right.rows, pa.RecordBatch)
        and left.rows.schema.equals(right.rows.schema)
        and (left.deleted is None) == (right.deleted is None)
    )


def _join(parts: Sequence[TopicRows]) -> TopicRows:
    if len(parts) == 1:
        return parts[0]
    batch = pa.concat_batches([part.rows for part in parts])  # type: ignore[attr-defined]
    return TopicRows(parts[0].topic, batch, _join_marks([part.deleted for part in parts if part.deleted is not None]))


def _join_marks(marks: Iterable[DeleteMarks]) -> DeleteMarks | None:
    arrays = [pa.array(mark, pa.bool_()) for mark in marks]
    return pa.concat_arrays(arrays) if arrays else None


def mark_list(marks: DeleteMarks) -> list[bool]:
    """Delete marks as a list."""
    return list(marks) if isinstance(marks, Sequence) else [bool(mark) for mark in marks.to_pylist()]
