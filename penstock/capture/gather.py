"""Rows that a source has given and that are not yet written, in their order. Nothing here reads or writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.contracts import Captured, DeleteMarks, Position, TopicRows
from penstock.errors import DeclarationError


@dataclass(slots=True)
class _Part:
    """Rows of one topic that came one after the other, given as dicts, so that they can be converted together."""

    topic: str
    rows: list[Mapping[str, object]]
    deleted: list[bool] | None

    def topic_rows(self) -> TopicRows:
        return TopicRows(self.topic, self.rows, self.deleted)


@dataclass(slots=True)
class GatheredRows:
    """Grows item by item. Rows are complete up to the last item that had a position; only those may be written."""

    topics: Mapping[str, str]  # by table
    position: Position | None  # of the last complete item, or of what was written last
    items: int = 0
    complete_rows: int = 0
    _written: Position | None = None
    _complete: list[_Part | TopicRows] = field(default_factory=list)
    _open: list[_Part | TopicRows] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._written = self.position

    @property
    def has_moved(self) -> bool:
        """Whether there is something to write: rows, or at least another position."""
        return bool(self._complete) or self.position != self._written

    def add(self, item: Captured) -> None:
        self.items += 1
        if len(item.rows):
            self._open.append(self._part(item))
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
        """All that is complete, to be written now; it is not here any more."""
        parts = [part.topic_rows() if isinstance(part, _Part) else part for part in self._complete]
        self._complete, self.complete_rows, self._written = [], 0, self.position
        return self.position, parts

    def _part(self, item: Captured) -> _Part | TopicRows:
        if item.table not in self.topics:
            raise DeclarationError(f"source: it gave rows of '{item.table}', which is none of its tables")
        topic = self.topics[item.table]
        if not isinstance(item.rows, Sequence):
            return TopicRows(topic, item.rows, item.deleted)
        return _Part(topic, list(item.rows), None if item.deleted is None else _mark_list(item.deleted))

    def _append_complete(self, part: _Part | TopicRows) -> None:
        last = self._complete[-1] if self._complete else None
        # With and without deletes are kept apart: where a row may delete, null columns are not refused.
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


def _mark_list(marks: DeleteMarks) -> list[bool]:
    return list(marks) if isinstance(marks, Sequence) else [bool(mark) for mark in marks.to_pylist()]
