"""What a reader has of each table when it applies all items of a `Database`: the counterpart of an oracle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.capture.gather import mark_list
from penstock.contracts import COMMIT_TIME, Captured, Position, SourceTable, TableEvent

Item = Captured | TableEvent
Row = dict[str, Any]
Key = tuple[Any, ...]


@dataclass(slots=True)
class _Copy:
    """A table as far as it is known, and the keys that were given since its copy began."""

    rows: dict[Key, Row] = field(default_factory=dict)
    given: set[Key] | None = None


@dataclass(slots=True)
class Fold:
    """Applies items in order. `position` is that of the last item that had one; what came after it is not applied.

    So a fold may stop anywhere and continue by reading from its position, as whoever stores rows does.
    """

    keys: Mapping[str, tuple[str, ...]]
    position: Position | None = None
    copies: dict[str, _Copy] = field(default_factory=dict)
    _open: list[Item] = field(default_factory=list)

    @classmethod
    def of(cls, tables: Iterable[SourceTable]) -> Fold:
        return cls({table.name: table.key for table in tables})

    def add(self, item: Item) -> None:
        self._open.append(item)
        if item.position is None:
            return
        for complete in self._open:
            self._apply(complete)
        self._open, self.position = [], item.position

    def forget_open_items(self) -> None:
        """Do as a crash does: what has no position yet is lost."""
        self._open = []

    def rows(self, table: str) -> list[Row]:
        """The rows of a table in the order of their keys, without `COMMIT_TIME`."""
        rows = self.copies[table].rows if table in self.copies else {}
        return [rows[key] for key in sorted(rows)]

    def _apply(self, item: Item) -> None:
        if isinstance(item, TableEvent):
            self._apply_event(item)
        elif len(item.rows):
            assert isinstance(item.rows, pa.RecordBatch), "rows of databases are Arrow batches"
            copy = self.copies.setdefault(item.table, _Copy())
            marks = [False] * len(item.rows) if item.deleted is None else mark_list(item.deleted)
            masks = {name: mask.to_pylist() for name, mask in item.unchanged.items()}
            for number, (row, is_delete) in enumerate(zip(item.rows.to_pylist(), marks, strict=True)):
                unchanged = [name for name, mask in masks.items() if mask[number]]
                self._apply_row(item.table, copy, row, is_delete, unchanged)

    def _apply_row(self, table: str, copy: _Copy, row: Row, is_delete: bool, unchanged: Sequence[str]) -> None:
        key = tuple(row[name] for name in self.keys[table])
        assert None not in key, f"a key of '{table}' is null: {row}"
        assert row[COMMIT_TIME] is not None
        del row[COMMIT_TIME]
        if is_delete:
            assert all(row[name] is None for name in row if name not in self.keys[table]), row
            copy.rows.pop(key, None)
        elif not unchanged:
            copy.rows[key] = row
        elif key in copy.rows:
            copy.rows[key] = {**row, **{name: copy.rows[key].get(name) for name in unchanged}}
        else:
            return  # it is not copied yet: its chunk will have it
        if copy.given is not None:
            copy.given.add(key)

    def _apply_event(self, event: TableEvent) -> None:
        copy = self.copies.setdefault(event.table, _Copy())
        if event.what == "truncated":
            copy.rows.clear()
        elif event.what == "copy begins":
            copy.given = set()
        else:
            assert copy.given is not None, f"the copy of '{event.table}' ends and never began"
            copy.rows = {key: row for key, row in copy.rows.items() if key in copy.given}
            copy.given = None
