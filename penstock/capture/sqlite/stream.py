"""Reads a file in cycles, each of which looks at it in one short transaction. No lock is held while items are given.

1. See that the file still has the history of the position, and that the triggers fit the tables.
2. Take the id of the last change: all changes up to it are committed, so a transaction is never split there.
3. Take the next rows of a table that is to be copied. They are as of that change.
4. Give the changes up to it, in pages; the last has a position. Then give the copied rows.

Changes never change, and those of a reader are not removed before it has confirmed them. So step 4 may read them in
transactions of their own, each of which only sees that the history is still the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from penstock.capture.sqlite.altered import refuse_incompatible
from penstock.capture.sqlite.connection import reading, sqlite_errors, writing
from penstock.capture.sqlite.history import find_lost_history, lost_changes_error
from penstock.capture.sqlite.installation import (
    Layout,
    current_layout,
    has_rows_since,
    install_tables,
    install_triggers,
    last_change,
    read_layouts,
    register_reader,
    tables_of_reader,
    update_reader_tables,
)
from penstock.capture.sqlite.position import Place, TablePlace
from penstock.capture.sqlite.queries import copy_query, fitting_rows, read_leniently, refuse_null_keys
from penstock.capture.sqlite.rows import RowShape, StoredRow
from penstock.capture.sqlite.schema import TableSchema, read_schema
from penstock.capture.sqlite.triggers import CHANGES
from penstock.contracts import Captured, SourceOptions, SourceTable, TableEvent
from penstock.errors import UnavailableError

_PAGE_ROWS = 5_000
_CHUNK_BYTES = 32 * 1024 * 1024
_ATTEMPTS = 10


@dataclass(slots=True)
class _Chunk:
    """Copied rows with the keys of their last rows. `is_last`: the table has no more."""

    table: str
    batches: list[tuple[pa.RecordBatch, StoredRow]] = field(default_factory=list)
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a cycle has found: the last change, the table to copy next, and its next rows if its copy has begun."""

    last: int
    at: int
    table: str | None
    chunk: _Chunk | None


@dataclass(slots=True)
class Stream:
    """One `read` of a file. `place` is where it is; it moves as items are given."""

    connection: sqlite3.Connection
    path: Path
    reader: str
    wanted: Mapping[str, SourceTable]
    options: SourceOptions
    place: Place
    _layouts: dict[int, Layout] = field(default_factory=dict)
    _schema_version: int = -1
    _page_rows: int = _PAGE_ROWS

    @classmethod
    def begin(
        cls,
        connection: sqlite3.Connection,
        path: Path,
        reader: str,
        wanted: Mapping[str, SourceTable],
        options: SourceOptions,
    ) -> Stream:
        """Install what is needed, and begin at the end of the changes, with no table copied."""
        with sqlite_errors(path), writing(connection):
            schemas = [read_schema(connection, name) for name in wanted]
            for schema in schemas:
                RowShape.of(schema, wanted[schema.name], options.dropped)
            identity = install_tables(connection)
            for schema in schemas:
                install_triggers(connection, schema)
            number, at = register_reader(connection, reader, list(wanted), options.max_retained_bytes)
        return cls(connection, path, reader, wanted, options, Place(identity, number, at))

    def next_cycle(self) -> Iterator[Captured | TableEvent]:
        """The items of one cycle; none if there is nothing new."""
        with sqlite_errors(self.path):
            seen = next((seen for _ in range(_ATTEMPTS) if (seen := self._look()) is not None), None)
        if seen is None:
            raise UnavailableError(f"{self.path}: its tables are altered all the time", hint="try again later")
        yield from self._give_changes(seen.last, seen.at)  # 4
        if seen.chunk is not None:
            yield from self._give_chunk(seen.chunk)
        elif seen.table is not None:
            self.place.tables[seen.table] = TablePlace(self._current_layout(seen.table).id)
            yield TableEvent(seen.table, "copy begins", self.place.to_json())

    def _look(self) -> _Seen | None:
        """Steps 1 to 3. None if triggers had to be created, or have to be: then look again."""
        if not self._is_installed():
            self._install()
            return None
        with reading(self.connection):
            self._check_history(self.place.id, self.place.at)  # 1
            if not self._follow_layouts():
                return None
            last, at = last_change(self.connection)  # 2
            table = self.place.table_to_copy(list(self.wanted))
            begun = self.place.tables.get(table) if table is not None else None
            chunk = None if table is None or begun is None else self._read_chunk(table, begun)  # 3
            return _Seen(last, at, table, chunk)

    # -- history

    def _check_history(self, number: int, at: int) -> None:
        """Raise ChangesLostError unless the file has the change at which this stream is, and all changes after it."""
        reason = find_lost_history(self.connection, self.reader, self.place.database, (number, at))
        if reason is not None:
            raise lost_changes_error(self.path, reason, self.options.name)

    # -- tables that were altered

    def _is_installed(self) -> bool:
        """Whether the triggers fit the tables. Looks again when the schema of the file has changed."""
        (version,) = self.connection.execute("PRAGMA schema_version").fetchone()
        if version == self._schema_version:
            return True
        with reading(self.connection):
            self._check_history(self.place.id, self.place.at)
            self._layouts = read_layouts(self.connection)
            if tables_of_reader(self.connection, self.reader) != set(self.wanted):
                return False
            tables = [read_schema(self.connection, name) for name in self.wanted]
            self._refuse_incompatible(tables)
            if any(current_layout(self.connection, table, self._layouts.values()) is None for table in tables):
                return False
            (self._schema_version,) = self.connection.execute("PRAGMA schema_version").fetchone()
        return True

    def _install(self) -> None:
        """Create triggers anew that are missing or do not fit."""
        with writing(self.connection):
            self._check_history(self.place.id, self.place.at)
            update_reader_tables(self.connection, self.reader, list(self.wanted))
            for name in self.wanted:
                install_triggers(self.connection, read_schema(self.connection, name))

    def _refuse_incompatible(self, tables: Sequence[TableSchema]) -> None:
        """Raise DeclarationError if a table that was being read has changed in a way that cannot be followed."""
        for table in tables:
            RowShape.of(table, self.wanted[table.name], self.options.dropped)
            place = self.place.tables.get(table.name)
            if place is not None and place.layout in self._layouts:
                refuse_incompatible(self._layouts[place.layout].table, table, self.wanted[table.name], self.options)

    def _follow_layouts(self) -> bool:
        """Take over the layouts of the tables. A table that may have rows which nobody has seen is copied again.

        False if the triggers do not fit: that must be mended first.
        """
        (version,) = self.connection.execute("PRAGMA schema_version").fetchone()
        if version != self._schema_version:
            return False
        for name, place in list(self.place.tables.items()):
            if name not in self.wanted:
                del self.place.tables[name]
                continue
            current = self._current_layout(name)
            if place.layout == current.id:
                continue
            later = [layout for layout in self._layouts.values() if layout.table.name == name]
            later = [layout for layout in later if place.layout < layout.id <= current.id]
            earlier = [place.layout, *[layout.id for layout in later if layout is not current]]
            is_continued = all(layout.is_continued for layout in later) and place.layout in self._layouts
            if is_continued and not has_rows_since(self.connection, self.place.id, earlier):
                self.place.tables[name] = replace(place, layout=current.id)
            else:
                del self.place.tables[name]
        return True

    def _current_layout(self, table: str) -> Layout:
        return next(layout for layout in reversed(self._layouts.values()) if layout.table.name == table)

    def _shape(self, layout: Layout) -> RowShape:
        return RowShape.of(layout.table, self.wanted[layout.table.name], self.options.dropped)

    # -- changes

    def _give_changes(self, last: int, at: int) -> Iterator[Captured]:
        """The changes up to the last one. Only the last item has a position: the place after that change."""
        held: Captured | None = None
        number, time = self.place.id, self.place.at
        while number < last:
            with sqlite_errors(self.path):
                rows = self._read_page(number, time, last)
            if rows:
                number, time = rows[-1][0], rows[-1][3]
            if len(rows) < self._page_rows:
                number = last
            for item in self._to_items(rows):
                if held is not None:
                    yield held
                held = item
        self.place.id, self.place.at = last, at
        if held is not None:
            yield replace(held, position=self.place.to_json())

    def _read_page(self, number: int, at: int, last: int) -> list[StoredRow]:
        layouts = [layout for layout in self._layouts.values() if layout.table.name in self.place.tables]
        width = max((len(layout.table.columns) for layout in layouts), default=0)
        values = "".join(f", v{index}" for index in range(width))
        query = (
            f"SELECT id, layout, op, at{values} FROM {CHANGES} WHERE id > {number} AND id <= {last} "
            f"AND layout IN ({', '.join(str(layout.id) for layout in layouts)}) ORDER BY id LIMIT {self._page_rows}"
        )
        with reading(self.connection):
            self._check_history(number, at)
            return read_leniently(self.connection, lambda: self.connection.execute(query).fetchall())

    def _to_items(self, rows: Sequence[StoredRow]) -> list[Captured]:
        """One item for each layout: the order of rows of different tables is that of their transactions."""
        by_layout: dict[int, list[StoredRow]] = {}
        for row in rows:
            by_layout.setdefault(row[1], []).append(row)
        shapes = [(self._shape(self._layouts[layout]), found) for layout, found in by_layout.items()]
        items = [item for shape, found in shapes if (item := shape.to_item(found)) is not None]
        size = sum(item.rows.nbytes for item in items if isinstance(item.rows, pa.RecordBatch))
        if rows:
            self._page_rows = fitting_rows(len(rows), size, most=_PAGE_ROWS)
        return items

    # -- copies

    def _read_chunk(self, name: str, place: TablePlace) -> _Chunk:
        shape = self._shape(self._current_layout(name))
        if place.after is None:
            refuse_null_keys(self.connection, shape)
        return read_leniently(self.connection, lambda: self._fetch_chunk(shape, place))

    def _fetch_chunk(self, shape: RowShape, place: TablePlace) -> _Chunk:
        chunk, count, size, page_rows = _Chunk(shape.table.name), 0, 0, 1_000
        cursor = self.connection.execute(*copy_query(shape, place.after))
        while count < self.options.chunk_rows and size < _CHUNK_BYTES:
            rows = cursor.fetchmany(min(page_rows, self.options.chunk_rows - count))
            if not rows:
                chunk.is_last = True
                break
            batch = shape.to_batch(rows)
            chunk.batches.append((batch, shape.key_of(rows[-1])))
            count, size = count + len(rows), size + batch.nbytes
            page_rows = fitting_rows(len(rows), batch.nbytes, most=_PAGE_ROWS)
        cursor.close()
        return chunk

    def _give_chunk(self, chunk: _Chunk) -> Iterator[Captured | TableEvent]:
        for batch, key in chunk.batches:
            place = self.place.tables[chunk.table]
            self.place.tables[chunk.table] = replace(place, after=key, rows=place.rows + batch.num_rows)
            yield Captured(chunk.table, batch, position=self.place.to_json())
        if chunk.is_last:
            place = self.place.tables[chunk.table]
            self.place.tables[chunk.table] = replace(place, state="complete", after=None)
            yield TableEvent(chunk.table, "copy ends", self.place.to_json())
