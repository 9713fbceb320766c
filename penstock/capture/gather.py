"""Rows that a source has given and that are not written yet, in order. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.contracts import Captured, DeleteMarks, Position, TopicRows
from penstock.errors import DeclarationError


@dataclass(slots=True)
class _Part:
    """Consecutive rows of one topic, given as dicts, so that they can be converted together."""

    topic: str
    rows: list[Mapping[str, object]]
    deleted: list[bool] | None

    def topic_rows(self) -> TopicRows:
        return TopicRows(self.topic, self.rows, self.deleted)


@dataclass(slots=True)
class GatheredRows:
    """Gathers rows item by item. Rows up to the last item with a position are complete; only those may be written."""

    topics: Mapping[str, str]  # by table
    position: Position | None  # of the last complete item, or of the last write
    items: int = 0
    complete_rows: int = 0
    _written: Position | None = None
    _complete: list[_Part | TopicRows] = field(default_factory=list)
    _open: list[_Part | TopicRows] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._written = self.position

    @property
    def has_moved(self) -> bool:
        """Whether there is something to write: rows, or at least a new position."""
        return bool(self._complete) or self.position != self._written

    def add(self, item: Captured) -> None:
        self.items += 1
        if len(item.rows):
            self._open.append(self._to_part(item))
        if item.position is None:
            return
        if self._open and item.position == self.position:
            raise DeclarationError(
                f"source: table '{item.table}' gave rows without moving its position, which is {item.position!r}",
                hint="this is a mistake of the source: a repeat of a position is not stored",
            )
        for part in self._open:
            self.complete_rows += len(part.rows)
            self._append_complete(part)
        self._open = []
        self.position = item.position

    def take(self) -> tuple[Position | None, list[TopicRows]]:
        """Remove and return all complete rows, to be written now, with their position."""
        parts = [part.topic_rows() if isinstance(part, _Part) else part for part in self._complete]
        self._complete, self.complete_rows, self._written = [], 0, self.position
        return self.position, parts

    def _to_part(self, item: Captured) -> _Part | TopicRows:
        if item.table not in self.topics:
            raise DeclarationError(f"source: it gave rows of '{item.table}', which is none of its tables")
        topic = self.topics[item.table]
        if not isinstance(item.rows, Sequence):
            return TopicRows(topic, item.rows, item.deleted)
        return _Part(topic, list(item.rows), None if item.deleted is None else mark_list(item.deleted))

    def _append_complete(self, part: _Part | TopicRows) -> None:
        last = self._complete[-1] if self._complete else None
        # Rows with delete marks are kept apart from rows without: a row that may delete may have null columns.
        if (
            isinstance(part, _Part)
            and isinstance(last, _Part)
            and (part.topic, part.deleted is None) == (last.topic, last.deleted is None)
        ):
            last.rows += part.rows
            if last.deleted is not None and part.deleted is not None:
                last.deleted += part.deleted
        else:
            self._complete.append(part)


def mark_list(marks: DeleteMarks) -> list[bool]:
    """Delete marks as a list."""
    return list(marks) if isinstance(marks, Sequence) else [bool(mark) for mark in marks.to_pylist()]
