"""For tests of what keeps copies of tables: a database in memory, on which a test makes transactions.

Its state is in a store that several connections share, so a test can close a database and open it again. A copy is read
under the lock of the store, after all changes up to that moment: each chunk is exact where it is given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa

from penstock.contracts import (
    COMMIT_TIME,
    Captured,
    Position,
    SourceHealth,
    SourceOptions,
    SourceTable,
    TableCopy,
    TableEvent,
    TableSnapshot,
)
from penstock.errors import ChangesLostError, DeclarationError
from penstock.schema.arrow import parse_schema
from penstock.testing.memory_position import MemoryPosition

Key: TypeAlias = "tuple[object, ...]"

FIRST_COMMIT = datetime(2024, 1, 1, tzinfo=UTC)
"""The time of the first transaction, unless the test gives one; each later one is a second later."""

_COPIED = datetime(1970, 1, 1, tzinfo=UTC)
_COMMIT_FIELD = pa.field(COMMIT_TIME, pa.timestamp("us", "UTC"))


@dataclass(frozen=True, slots=True)
class Upsert:
    """A row, inserted or in place of the row of its key. Columns that it lacks are null.

    Those in `unchanged` keep their values, and are not sent: `Captured.unchanged` marks them. The row must exist.
    """

    table: str
    row: Mapping[str, object]
    unchanged: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Delete:
    """The row of this key is deleted."""

    table: str
    key: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of a table are deleted at once."""

    table: str


Change: TypeAlias = "Upsert | Delete | Truncate"


@dataclass(frozen=True, slots=True)
class _Transaction:
    changes: tuple[Change, ...]
    schemas: Mapping[str, pa.Schema]  # of its tables, as they were
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class _CopyAgain:
    """From here on, readers copy this table again."""

    table: str


@dataclass(slots=True)
class _StoredTable:
    schema: pa.Schema
    key: tuple[str, ...]
    rows: dict[Key, dict[str, object]] = field(default_factory=dict)

    def key_of(self, row: Mapping[str, object]) -> Key:
        return tuple(row[column] for column in self.key)


@dataclass(slots=True)
class _Store:
    """What the connections share. Index n of the history is the place after its first n entries."""

    tables: dict[str, _StoredTable] = field(default_factory=dict)
    history: list[_Transaction | _CopyAgain | Exception] = field(default_factory=list)
    raised: set[int] = field(default_factory=set)
    lost_before: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def append(self, entry: _Transaction | _CopyAgain | Exception) -> None:
        self.history.append(entry)
        self.changed.notify_all()


class MemoryDatabase:
    """A `Database` without a server. A test changes it while it is read, from the same thread or another.

    ```python
    database = MemoryDatabase()
    database.create_table("orders", "id long not null, name string", key="id")
    database.commit(Upsert("orders", {"id": 1, "name": "Ada"}), Upsert("orders", {"id": 2}))
    database.commit(Delete("orders", {"id": 1}))
    ```

    Positions are JSON; so the values of keys are numbers, texts or booleans. `before_chunk` is called with the table
    before each chunk of a copy is read, to change the database in the middle of a copy. `confirmed` is the position
    that was confirmed last. `idle_seconds`: how long `read` waits between two heartbeats.
    """

    def __init__(
        self,
        options: SourceOptions | None = None,
        *,
        before_chunk: Callable[[str], None] = lambda table: None,
        idle_seconds: float = 0.02,
    ) -> None:
        self.options = options or SourceOptions()
        self.before_chunk = before_chunk
        self.idle_seconds = idle_seconds
        self.confirmed: Position | None = None
        self.removed = False
        self._closed = False
        self._store = _Store()

    def connect(self, options: SourceOptions | None = None) -> MemoryDatabase:
        """Another connection to the same tables, as a process has that starts after a crash."""
        connection = MemoryDatabase(
            options or self.options, before_chunk=self.before_chunk, idle_seconds=self.idle_seconds
        )
        connection._store = self._store
        return connection

    # -- what a test does to it

    def create_table(self, name: str, schema: str | pa.Schema, *, key: str | Sequence[str]) -> None:
        """Add an empty table. The schema is DDL text or an Arrow schema; columns outside the key become nullable."""
        columns = (key,) if isinstance(key, str) else tuple(key)
        fields = [column.with_nullable(column.name not in columns) for column in parse_schema(schema)]
        with self._store.changed:
            self._store.tables[name] = _StoredTable(pa.schema([*fields, _COMMIT_FIELD]), columns)

    def commit(self, *changes: Change, at: datetime | None = None) -> None:
        """Make these changes in one transaction, whose time is `at`."""
        if not changes:
            raise ValueError("a transaction without changes is nothing that a database would log")
        with self._store.changed:
            for change in changes:
                self._apply(change)
            schemas = {change.table: self._store.tables[change.table].schema for change in changes}
            time = at or FIRST_COMMIT + timedelta(seconds=len(self._store.history))
            self._store.append(_Transaction(changes, schemas, time))

    def truncate(self, table: str) -> None:
        """Delete all rows of a table at once."""
        self.commit(Truncate(table))

    def add_column(self, table: str, column: str, *, default: object = None) -> None:
        """Add a column, as in `"note string"`. With a default, existing rows have it, and the table is copied again."""
        (added,) = parse_schema(column)
        with self._store.changed:
            stored = self._store.tables[table]
            stored.schema = pa.schema([*list(stored.schema)[:-1], added.with_nullable(True), _COMMIT_FIELD])
            if default is not None:
                for row in stored.rows.values():
                    row[added.name] = default
                self._store.append(_CopyAgain(table))

    def fail(self, error: Exception) -> None:
        """Raise this from `read`, once, when it has come as far as the database is now."""
        with self._store.changed:
            self._store.append(error)

    def lose_changes(self) -> None:
        """Forget all changes so far, as a server does that has discarded its log: whoever is behind has lost them."""
        with self._store.changed:
            self._store.lost_before = len(self._store.history)

    def rows(self, table: str) -> list[dict[str, object]]:
        """The rows of a table as they are now, by key, without `COMMIT_TIME`."""
        with self._store.changed:
            stored = self._store.tables[table]
            names = [name for name in stored.schema.names if name != COMMIT_TIME]
            return [{name: row.get(name) for name in names} for _, row in sorted(stored.rows.items(), key=_by_key)]

    def _apply(self, change: Change) -> None:
        stored = self._store.tables[change.table]
        if isinstance(change, Truncate):
            stored.rows.clear()
        elif isinstance(change, Delete):
            del stored.rows[stored.key_of(change.key)]
        else:
            before = stored.rows[stored.key_of(change.row)] if change.unchanged else {}
            stored.rows[stored.key_of(change.row)] = {
                **change.row,
                **{name: before.get(name) for name in change.unchanged},
            }

    # -- the contract

    def tables(self) -> Sequence[SourceTable]:
        with self._store.changed:
            return [SourceTable(name, table.schema, table.key) for name, table in self._store.tables.items()]

    def read(self, after: Position | None) -> Iterator[Captured | TableEvent]:
        position = self._start(after)
        while not self._closed:
            for items in self._next_changes(position):
                yield from items
            if (table := position.table_to_copy(self._names())) is None:
                yield Captured("", position=position.to_json())
                self._wait(position)
            elif table not in position.copied:
                position.begin_copy(table)
                yield TableEvent(table, "copy begins", position.to_json())
            else:
                self.before_chunk(table)
                yield from self._next_chunk(table, position)

    def _start(self, after: Position | None) -> MemoryPosition:
        if after is None:
            return MemoryPosition(len(self._store.history))
        position = MemoryPosition.parse(after)
        if position.index < self._store.lost_before:
            raise self._lost_error()
        if position.index > len(self._store.history):
            raise DeclarationError(f"database in memory: {after!r} is not a position of it")
        return position

    def _next_changes(self, position: MemoryPosition) -> Iterator[list[Captured | TableEvent]]:
        """The items of each entry that follows, until there is no more."""
        while not self._closed and position.index < len(self._store.history):
            if position.index < self._store.lost_before:
                raise self._lost_error()
            entry, index = self._store.history[position.index], position.index
            position.index += 1
            if isinstance(entry, _Transaction):
                yield self._items_of(entry, position.to_json())
            elif isinstance(entry, _CopyAgain):
                position.forget_copy(entry.table)
            elif index not in self._store.raised:
                self._store.raised.add(index)
                raise entry

    def _items_of(self, transaction: _Transaction, position: Position) -> list[Captured | TableEvent]:
        groups = groupby(transaction.changes, key=lambda change: (change.table, isinstance(change, Truncate)))
        parts = [(table, list(changes)) for (table, _), changes in groups]
        places = [*[None] * (len(parts) - 1), position]
        return [
            TableEvent(table, "truncated", place)
            if isinstance(changes[0], Truncate)
            else _to_item(table, changes, transaction, place)
            for (table, changes), place in zip(parts, places, strict=True)
        ]

    def _next_chunk(self, table: str, position: MemoryPosition) -> Iterator[Captured | TableEvent]:
        """The next rows of a copy, unless there are changes that come first."""
        with self._store.changed:
            if position.index < len(self._store.history):
                return
            stored = self._store.tables[table]
            after = position.copied[table].after
            keys = sorted(key for key in stored.rows if after is None or key > after)
            keys = keys[: self.options.chunk_rows]
            batch = _to_batch([stored.rows[key] for key in keys], stored.schema, _COPIED)
        if keys:
            position.add_to_copy(table, keys[-1], len(keys))
            yield Captured(table, batch, position=position.to_json())
        else:
            position.end_copy(table)
            yield TableEvent(table, "copy ends", position.to_json())

    def _wait(self, position: MemoryPosition) -> None:
        with self._store.changed:
            if position.index == len(self._store.history) and not self._closed:
                self._store.changed.wait(self.idle_seconds)

    def confirm(self, position: Position) -> None:
        MemoryPosition.parse(position)
        self.confirmed = position

    def close(self) -> None:
        self._closed = True

    def copy_again(self, position: Position | None, tables: Sequence[str]) -> Position | None:
        names = self._names()
        for table in tables:
            if table not in names:
                raise DeclarationError(f"database in memory: there is no table '{table}'; there is {', '.join(names)}")
        if position is None or set(tables) == set(names):
            return None
        place = MemoryPosition.parse(position)
        for table in tables:
            place.forget_copy(table)
        return place.to_json()

    def copies(self, position: Position | None) -> Sequence[TableCopy]:
        copied = {} if position is None else MemoryPosition.parse(position).copied
        return [
            TableCopy(name, copied[name].state, copied[name].rows) if name in copied else TableCopy(name, "waiting")
            for name in self._names()
        ]

    def end(self) -> Position:
        return len(self._store.history)

    def has_reached(self, position: Position | None, end: Position) -> bool:
        if not isinstance(end, int):
            raise DeclarationError(f"database in memory: {end!r} is not a position of its end")
        if position is None:
            return False
        place = MemoryPosition.parse(position)
        return place.index >= end and place.table_to_copy(self._names()) is None

    def health(self, position: Position | None) -> SourceHealth:
        if position is not None and MemoryPosition.parse(position).index < self._store.lost_before:
            error = self._lost_error()
            return SourceHealth("lost", problem=error.message, hint=error.hint)
        return SourceHealth("active")

    def remove(self) -> None:
        self.removed = True

    def snapshot(self, table: str) -> TableSnapshot:
        with self._store.changed:
            stored = self._store.tables[table]
            batch = _to_batch(list(stored.rows.values()), stored.schema, _COPIED)
            return TableSnapshot(len(self._store.history), iter([batch] if batch.num_rows else []))

    def _names(self) -> list[str]:
        return list(self._store.tables)

    def _lost_error(self) -> ChangesLostError:
        return ChangesLostError(
            "database in memory: the changes after the stored position are lost",
            hint=f"copy its tables again: penstock capture snapshot {self.options.name}",
        )


def _to_item(table: str, changes: Sequence[Change], transaction: _Transaction, position: Position | None) -> Captured:
    schema = transaction.schemas[table]
    rows = [_sent_row(change) for change in changes]
    kept_back = [change.unchanged if isinstance(change, Upsert) else frozenset[str]() for change in changes]
    deleted = [isinstance(change, Delete) for change in changes]
    unchanged = {name: pa.array([name in names for names in kept_back]) for name in frozenset().union(*kept_back)}
    batch = _to_batch(rows, schema, transaction.committed_at)
    return Captured(table, batch, pa.array(deleted) if any(deleted) else None, position, unchanged)


def _sent_row(change: Change) -> Mapping[str, object]:
    if isinstance(change, Truncate):
        return {}
    if isinstance(change, Delete):
        return change.key
    return {name: value for name, value in change.row.items() if name not in change.unchanged}


def _to_batch(rows: Sequence[Mapping[str, object]], schema: pa.Schema, time: datetime) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**row, COMMIT_TIME: time} for row in rows], schema=schema)


def _by_key(item: tuple[Key, dict[str, object]]) -> Key:
    return item[0]
