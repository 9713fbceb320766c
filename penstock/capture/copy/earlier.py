"""What the copy of a table has now, by key: to fill in what a database did not send, and to recognise what is the same.

A projection of the topic in a SQLite file. What is given to the pump is put into an open transaction of SQLite at once,
so that it can be looked up. The transaction is committed, with the offsets of the topic that it has come to, when the
topic has the rows. So after a crash the file is behind the topic and never ahead of it, and catches up by reading the
topic. It can be deleted at any time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.capture.copy.earlier_file import FileState, create_tables, load_state, store_state
from penstock.capture.copy.keys import KeyValue, key_values, mark_array
from penstock.capture.digests import row_digests
from penstock.contracts import COMMIT_TIME, Offsets, Topic
from penstock.errors import UnavailableError
from penstock.schema.arrow import conform

_AT_ONCE = 500  # keys in one statement


@dataclass(slots=True)
class FoundRows:
    """What is known of some keys, in their order. `digests` and `times` mean nothing where a key is not `known`."""

    known: npt.NDArray[np.bool_]
    digests: npt.NDArray[np.uint64]
    times: npt.NDArray[np.int64]


@dataclass(slots=True)
class EarlierRows:
    """The rows of one topic. With `keeps_cells` all of their values can be looked up, otherwise only digests.

    `since`: where the topic ended when a copy of the table began that still runs. Values from before are out of date.
    """

    path: Path
    topic: Topic
    keeps_cells: bool
    since: Offsets | None = None
    _connection: sqlite3.Connection | None = None
    _offsets: dict[int, int] = field(default_factory=dict)  # what was committed includes the topic up to here
    _added: int = 0  # rows since
    _committed_since: Offsets | None = None
    _schemas: dict[pa.Schema, int] = field(default_factory=dict)

    def open(self) -> None:
        """Open the file and read what it lacks from the topic. Call it while no row is given that is not written."""
        self.close()
        with self._file_errors():
            self._connection = self._open_file()
            self._catch_up()

    def close(self) -> None:
        """Forget what is not in the topic yet."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def remove(self) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm", "-journal"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def begin_copy(self, since: Offsets) -> None:
        """All values are out of date until they are given again."""
        self.since = dict(since)
        self._database.execute("update rows set fresh = 0")

    def end_copy(self) -> None:
        self.since = None

    def add(self, rows: pa.RecordBatch, deleted: pa.BooleanArray | None) -> None:
        """Rows that were given to the pump, as the topic will have them."""
        self._added += rows.num_rows
        with self._file_errors():
            self._put(rows, deleted, np.ones(rows.num_rows, bool))

    def commit(self) -> None:
        """Everything that was added is in the topic now."""
        with self._file_errors():
            self._commit(self.topic.ends())

    def _commit(self, ends: Offsets) -> None:
        if sum(ends.values()) - sum(self._offsets.get(number, 0) for number in ends) != self._added:
            # Somebody else writes to the topic, too. What he wrote is only known from there.
            self._database.rollback()
            self._mark_out_of_date(self._database)
            self._catch_up()
        elif self._added or self._committed_since != self.since:
            self._store_offsets(ends)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def find(self, rows: pa.RecordBatch) -> FoundRows:
        """What was known of the keys of these rows before them."""
        keys = key_values(rows, self.topic.settings.key)
        found = {key: (digest, time) for key, digest, time in self._select("key, digest, time", keys)}
        known = np.fromiter((key in found for key in keys), bool, len(keys))
        pairs = np.array([found.get(key, (0, 0)) for key in keys], np.int64).reshape(-1, 2)
        return FoundRows(known, pairs[:, 0].copy().view(np.uint64), pairs[:, 1].copy())

    def cells(self, keys: Sequence[KeyValue]) -> tuple[npt.NDArray[np.int64], pa.RecordBatch]:
        """The present rows of these keys, and for each key the number of its row, or -1."""
        found: dict[int, dict[KeyValue, bytes]] = {}
        for key, schema, cells in self._select("key, schema, cells", keys, "" if self.since is None else "and fresh"):
            found.setdefault(schema, {})[key] = cells
        order = [key for rows in found.values() for key in rows]
        numbers = {key: number for number, key in enumerate(order)}
        rows = self._decode(found)
        return np.fromiter((numbers.get(key, -1) for key in keys), np.int64, len(keys)), rows

    def _decode(self, found: Mapping[int, Mapping[KeyValue, bytes]]) -> pa.RecordBatch:
        """Stored rows, by the number of their schema, as rows of the present schema."""
        schemas = {number: schema for schema, number in self._schemas.items()}
        wanted = _nullable(self.topic.schema)
        parts = []
        for number, rows in found.items():
            schema = schemas[number]
            batches = [pa.ipc.read_record_batch(pa.py_buffer(cells), schema) for cells in rows.values()]
            whole = pa.Table.from_batches(batches, schema=schema).combine_chunks().to_batches()[0]
            parts.append(conform(whole, wanted))
        joined = pa.Table.from_batches(parts, schema=wanted).combine_chunks().to_batches()
        return joined[0] if joined else pa.RecordBatch.from_pylist([], schema=wanted)

    def _select(self, columns: str, keys: Sequence[KeyValue], condition: str = "") -> Iterator[tuple]:  # type: ignore[type-arg]
        wanted = list(dict.fromkeys(keys))
        for start in range(0, len(wanted), _AT_ONCE):
            part = wanted[start : start + _AT_ONCE]
            marks = ",".join("?" * len(part))
            yield from self._database.execute(f"select {columns} from rows where key in ({marks}) {condition}", part)

    # -- the file -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _file_errors(self) -> Iterator[None]:
        """A file that cannot be read or written is removed, if it may be damaged; the next attempt begins with that."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise UnavailableError(f"{self.path}: {error}", hint="check the disk, and who owns the file") from error
        except sqlite3.DatabaseError as error:
            self.remove()
            raise UnavailableError(
                f"{self.path}: {error}; the file was removed, and is built again from topic '{self.topic.name}'"
            ) from error

    @property
    def _database(self) -> sqlite3.Connection:
        assert self._connection is not None, "it is not open"
        return self._connection

    def _open_file(self) -> sqlite3.Connection:
        """The file as it was committed last; a new one if it is of no use."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(sqlite3.DatabaseError):
            connection = _connect(self.path)
            state = load_state(connection)
            if (
                state is not None
                and state.is_of(self.topic.id, keeps_cells=self.keeps_cells)
                and self._can_continue(state)
            ):
                self.keeps_cells = state.keeps_cells
                self._offsets, self._committed_since = dict(state.offsets), state.since
                self._schemas, self._added = _load_schemas(connection), 0
                self._mark_out_of_date(connection)
                return connection
            connection.close()
        self.remove()
        connection = _connect(self.path)
        create_tables(connection)
        self._offsets, self._committed_since, self._schemas, self._added = self.topic.starts(), None, {}, 0
        return connection

    def _can_continue(self, state: FileState) -> bool:
        """Whether the file is from before the copy that runs began, or knows of it."""
        since = self.since
        return since is None or state.since == since or all(state.offsets.get(n, 0) <= since[n] for n in since)

    def _mark_out_of_date(self, connection: sqlite3.Connection) -> None:
        if self.since is not None and self._committed_since != self.since:
            connection.execute("update rows set fresh = 0")

    def _catch_up(self) -> None:
        ends = self.topic.ends()
        starts = {number: min(self._offsets.get(number, 0), end) for number, end in ends.items()}
        starts = {number: max(start, self.topic.starts()[number]) for number, start in starts.items()}
        for batch in self.topic.batches(starts, until=ends):
            since = 0 if self.since is None else self.since.get(batch.partition, 0)
            self._put(batch.rows, batch.deleted, batch.offsets >= since)  # type: ignore[arg-type]
        self._store_offsets(ends)

    def _store_offsets(self, ends: Offsets) -> None:
        state = FileState.now(self.topic.id, keeps_cells=self.keeps_cells, offsets=ends, since=self.since)
        store_state(self._database, state)
        self._database.commit()
        self._offsets, self._committed_since, self._added = dict(ends), self.since, 0

    def _put(self, rows: pa.RecordBatch, deleted: pa.BooleanArray | None, fresh: npt.NDArray[np.bool_]) -> None:
        last = {key: number for number, key in enumerate(key_values(rows, self.topic.settings.key))}
        marks = np.zeros(rows.num_rows, bool) if deleted is None else mark_array(deleted)
        gone = [(key,) for key, number in last.items() if marks[number]]
        if gone:
            self._database.executemany("delete from rows where key = ?", gone)
        present = {key: number for key, number in last.items() if not marks[number]}
        if present:
            chosen = rows.take(pa.array(list(present.values()), pa.int64()))
            flags = fresh[list(present.values())].tolist()
            self._database.executemany(
                "insert or replace into rows (key, fresh, digest, time, schema, cells) values (?, ?, ?, ?, ?, ?)",
                self._stored_rows(list(present), flags, chosen),
            )

    def _stored_rows(
        self, keys: Sequence[KeyValue], fresh: Sequence[bool], rows: pa.RecordBatch
    ) -> Iterable[tuple[object, ...]]:
        digests = row_digests(rows, value_columns(rows.schema, self.topic.settings.key)).view(np.int64).tolist()
        times = rows.column(COMMIT_TIME).cast(pa.int64()).fill_null(0).to_pylist()
        if not self.keeps_cells:
            return zip(keys, fresh, digests, times, [0] * len(keys), [None] * len(keys), strict=True)
        schema = self._schema_number(rows.schema)
        cells = (rows.slice(number, 1).serialize().to_pybytes() for number in range(rows.num_rows))
        return zip(keys, fresh, digests, times, [schema] * len(keys), cells, strict=True)

    def _schema_number(self, schema: pa.Schema) -> int:
        if schema not in self._schemas:
            content = schema.serialize().to_pybytes()
            found = self._database.execute("insert into schemas (content) values (?)", (content,)).lastrowid
            assert found is not None
            self._schemas[schema] = found
        return self._schemas[schema]


def value_columns(schema: pa.Schema, key: Sequence[str]) -> list[str]:
    """The columns that make a row what it is, beside its key."""
    return [name for name in schema.names if name != COMMIT_TIME and name not in key]


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    # What a crash of the machine takes is read from the topic again, or the file is found to be damaged and made anew.
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    return connection


def _load_schemas(connection: sqlite3.Connection) -> dict[pa.Schema, int]:
    stored = connection.execute("select id, content from schemas")
    return {pa.ipc.read_schema(pa.py_buffer(content)): number for number, content in stored}


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([column.with_nullable(True) for column in schema])
