"""Applies what a database gives to plain dicts, as whoever keeps a copy does: the tables as of the last position.

Rows count only once an item with a position has come after them, as in the log. So a fold can be stopped anywhere, and
continued with another `read` from `position`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from penstock.contracts import COMMIT_TIME, Captured, Database, Position, TableEvent

Key = tuple[Any, ...]
Row = dict[str, Any]


class Fold:
    """The tables of a database as its items describe them, by key."""

    def __init__(self, keys: dict[str, tuple[str, ...]]) -> None:
        self._keys = keys
        self._pending: list[Captured | TableEvent] = []
        self._given: dict[str, set[Key] | None] = dict.fromkeys(keys)  # since a copy has begun
        self.tables: dict[str, dict[Key, Row]] = {name: {} for name in keys}
        self.position: Position | None = None
        self.events: list[tuple[str, str]] = []
        self.rows = 0

    def add(self, item: Captured | TableEvent) -> None:
        had_rows = isinstance(item, Captured) and len(item.rows) > 0
        if had_rows and item.position is not None:
            assert item.position != self.position, "an item with rows has another position than the one before"
        self._pending.append(item)
        if item.position is not None:
            for pending in self._pending:
                self._apply(pending)
            self._pending, self.position = [], item.position

    def forget_pending(self) -> None:
        """What a crash does."""
        self._pending = []

    def rows_of(self, table: str) -> list[Row]:
        """The rows of a table by key, without their commit times."""
        rows = self.tables[table]
        return [{n: v for n, v in rows[key].items() if n != COMMIT_TIME} for key in sorted(rows, key=repr)]

    def _apply(self, item: Captured | TableEvent) -> None:
        if isinstance(item, TableEvent):
            self._apply_event(item)
        elif len(item.rows):
            self._apply_rows(item)

    def _apply_event(self, event: TableEvent) -> None:
        self.events.append((event.table, event.what))
        rows = self.tables[event.table]
        if event.what == "truncated":
            rows.clear()
        elif event.what == "copy begins":
            self._given[event.table] = set()
        else:
            given = self._given[event.table]
            assert given is not None, "a copy ends that has not begun"
            for key in [key for key in rows if key not in given]:
                del rows[key]
            self._given[event.table] = None

    def _apply_rows(self, item: Captured) -> None:
        assert not isinstance(item.rows, Sequence)
        rows, given = self.tables[item.table], self._given[item.table]
        marks = [False] * item.rows.num_rows if item.deleted is None else list(item.deleted)
        unchanged = {name: column.to_pylist() for name, column in item.unchanged.items()}  # type: ignore[attr-defined]
        for index, row in enumerate(item.rows.to_pylist()):
            self.rows += 1
            key = tuple(row[name] for name in self._keys[item.table])
            if bool(marks[index] if not hasattr(marks[index], "as_py") else marks[index].as_py()):
                rows.pop(key, None)
                continue
            missing = [name for name, column in unchanged.items() if column[index]]
            if missing and key not in rows:
                continue
            row |= {name: rows[key].get(name) for name in missing}
            rows[key] = row
            if given is not None:
                given.add(key)


def keys_of(database: Database) -> dict[str, tuple[str, ...]]:
    return {table.name: table.key for table in database.tables()}


def follow(
    database: Database,
    fold: Fold,
    until: Callable[[Captured | TableEvent], bool],
    *,
    confirm: bool = True,
) -> None:
    """Apply what comes until an item fulfils a condition. The last item is applied too."""
    items: Iterator[Captured | TableEvent] = iter(database.read(fold.position))
    try:
        for item in items:
            fold.add(item)
            if confirm and item.position is not None:
                database.confirm(item.position)
            if until(item):
                return
    finally:
        fold.forget_pending()
        database.close()


def catch_up(database: Database, fold: Fold) -> None:
    """Apply everything that was committed before now, with all copies."""
    end = database.end()
    follow(database, fold, lambda _: database.has_reached(fold.position, end))


def names(events: Iterable[tuple[str, str]]) -> list[str]:
    return [what for _, what in events]
