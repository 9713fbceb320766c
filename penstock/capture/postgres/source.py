"""A PostgreSQL database as a source. Here is what happens around a capture; follow.py is the loop itself.

Each `read` opens three connections: one for questions, one that copies tables, one for the stream. The other methods
open one for themselves, so they can be called from any process.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack, closing
from dataclasses import replace

from penstock.capture.postgres.catalog import CapturedTable, describe_tables
from penstock.capture.postgres.changed_tables import looks_the_same, must_copy_again
from penstock.capture.postgres.chunks import ChunkReader, emit_message, take_snapshot
from penstock.capture.postgres.connection import Connection, cancel_statement, connect, server_errors
from penstock.capture.postgres.copies import TableCopies
from penstock.capture.postgres.follow import Follower, Item, Surroundings
from penstock.capture.postgres.groups import GroupPart
from penstock.capture.postgres.health import source_health
from penstock.capture.postgres.moved_rows import complete_moved_rows
from penstock.capture.postgres.pgoutput import Relation
from penstock.capture.postgres.position import StreamPosition, TableState, from_json, lsn_text, parse_lsn, to_json
from penstock.capture.postgres.replication import ReplicationStream
from penstock.capture.postgres.slot import (
    changes_lost,
    check_publication,
    check_settings,
    check_slot,
    create_slot,
    drop_slot,
    find_slot,
    remember_tables,
    remembered_tables,
    remove_all,
    slot_name,
)
from penstock.capture.postgres.table_snapshot import read_whole_table
from penstock.contracts import (
    Captured,
    Position,
    SourceHealth,
    SourceOptions,
    SourceTable,
    TableCopy,
    TableSnapshot,
)
from penstock.errors import DeclarationError
from penstock.storage.files import disk_errors

_FIRST_VERSION_THAT_STREAMS = 140000


class PostgresDatabase:
    """See `Database` for the contract."""

    def __init__(self, url: str, tables: Sequence[SourceTable], options: SourceOptions) -> None:
        self._url = url
        self._asked = tuple(tables)
        self._options = options
        self._slot = slot_name(options)
        self._open = ExitStack()
        self._stream: ReplicationStream | None = None

    def tables(self) -> Sequence[SourceTable]:
        with closing(connect(self._url)) as connection, server_errors(self._url):
            check_settings(connection)
            described = self._describe(connection, None)
        return [
            replace(asked, schema=table.layout.schema, key=table.layout.key)
            for asked, table in zip(self._asked, described, strict=True)
        ]

    def read(self, after: Position | None) -> Iterator[Item]:
        position = None if after is None else from_json(after)
        self.close()
        self._open = ExitStack()
        with self._open as opened:
            yield from self._read(opened, position)

    def confirm(self, position: Position) -> None:
        lsn = from_json(position).lsn
        if self._stream is not None:
            self._stream.confirm(lsn)

    def close(self) -> None:
        self._open.close()

    def copy_again(self, position: Position | None, tables: Sequence[str]) -> Position | None:
        known = {table.name for table in self._asked}
        unknown = [name for name in tables if name not in known]
        if unknown:
            raise DeclarationError(
                f"table {unknown[0]}: it is not captured; captured are {', '.join(sorted(known))}",
                hint="name one of them",
            )
        if position is None or known <= set(tables):
            return None
        before = from_json(position)
        states = {
            name: replace(state, state="waiting", key=None, rows=0) if name in tables else state
            for name, state in before.tables.items()
        }
        return to_json(replace(before, tables=states))

    def copies(self, position: Position | None) -> Sequence[TableCopy]:
        states = {} if position is None else from_json(position).tables
        found = [(table.name, states.get(table.name, TableState())) for table in self._asked]
        return [TableCopy(name, state.state, state.rows, state.estimated_rows or None) for name, state in found]

    def end(self) -> Position:
        with closing(connect(self._url)) as connection, server_errors(self._url):
            _, lsn = take_snapshot(connection)
            emit_message(connection)  # so that even an idle server comes to a place behind it
        return lsn_text(lsn)

    def has_reached(self, position: Position | None, end: Position) -> bool:
        if position is None or not isinstance(end, str):
            return False
        reached = from_json(position)
        states = [reached.tables.get(table.name, TableState()) for table in self._asked]
        return reached.lsn >= parse_lsn(end) and all(state.state == "complete" for state in states)

    def health(self, position: Position | None) -> SourceHealth:
        parsed = None if position is None else from_json(position)
        with closing(connect(self._url)) as connection, server_errors(self._url):
            return source_health(connection, self._slot, parsed, self._options)

    def remove(self) -> None:
        self.close()
        with closing(connect(self._url)) as connection, server_errors(self._url):
            remove_all(connection, self._slot)

    def snapshot(self, table: str) -> TableSnapshot:
        asked = [candidate for candidate in self._asked if candidate.name == table]
        if not asked:
            raise DeclarationError(f"table {table}: it is not captured", hint="name one of the captured tables")
        return read_whole_table(self._url, asked[0], self._options)

    # -- reading

    def _read(self, opened: ExitStack, position: StreamPosition | None) -> Iterator[Item]:
        """Check everything that could be wrong before anything is given, then follow."""
        connection = opened.enter_context(closing(connect(self._url)))
        with server_errors(self._url):
            check_settings(connection)
            tables = self._describe(connection, position)
            check_publication(connection, self._slot, tables)
            remember_tables(connection, self._slot, tables)
        self._stream = opened.enter_context(closing(ReplicationStream(self._url)))
        opened.callback(self._forget_stream)
        system, timeline, log_end = self._stream.identify()
        if position is None:
            lsn = yield from self._create_slot(connection)
            position = StreamPosition(lsn, {}, system, timeline)
        else:
            self._check_history(self._stream, position, system, timeline, log_end)
            with server_errors(self._url):
                check_slot(find_slot(connection, self._slot), self._slot, position, self._options)
                self._check_retained(connection)
            position = replace(position, timeline=timeline)
        with server_errors(self._url):
            position = self._begin_states(connection, position, tables)
        follower = self._start(opened, connection, position, tables)
        with server_errors(self._url), disk_errors("temporary files of large transactions"):
            yield from follower.items()

    def _start(
        self, opened: ExitStack, connection: Connection, position: StreamPosition, tables: Sequence[CapturedTable]
    ) -> Follower:
        """Start the stream after a position, and what copies tables beside it."""
        assert self._stream is not None, "the stream is open"
        reader = opened.enter_context(closing(ChunkReader(self._url)))
        by_name = {table.name: table for table in tables}
        copies = TableCopies(by_name, position.tables, reader, self._options.chunk_rows)
        copies.unseen = list(position.unseen)
        streams_transactions = connection.info.server_version >= _FIRST_VERSION_THAT_STREAMS
        self._stream.start(self._slot, position.lsn, streams_transactions=streams_transactions)
        by_oid = {table.oid: table for table in tables}
        surroundings = self._surroundings(connection)
        follower = Follower(self._stream, by_oid, copies, position, surroundings, ready=reader.ready)
        return opened.enter_context(closing(follower))

    def _describe(self, connection: Connection, position: StreamPosition | None) -> list[CapturedTable]:
        """The tables as they are now, also if they were renamed since they were first captured."""
        oids = remembered_tables(connection, self._slot)
        if position is not None:
            oids |= {name: state.oid for name, state in position.tables.items()}
        asked = {table.name for table in self._asked}
        known = {name: oid for name, oid in oids.items() if name in asked}
        return describe_tables(connection, self._asked, oids=known, dropped=self._options.dropped)

    def _create_slot(self, connection: Connection) -> Generator[Captured, None, int]:
        """Begin anew: an old slot of this capture is of no use. Gives heartbeats while the server waits."""
        with server_errors(self._url):
            drop_slot(connection, self._slot)
        with ThreadPoolExecutor(1) as thread:
            creation = thread.submit(create_slot, connection, self._slot)
            try:
                while True:
                    try:
                        with server_errors(self._url):
                            return creation.result(timeout=1.0)
                    except FutureTimeoutError:
                        yield Captured(self._asked[0].name)
            finally:
                if not creation.done():
                    cancel_statement(connection, seconds=5.0)

    def _check_history(
        self, stream: ReplicationStream, position: StreamPosition, system: str, timeline: int, log_end: int
    ) -> None:
        """After a failover, the new server must have everything that was given from the old one."""
        if system != position.system:
            raise changes_lost(self._options, "this is another server than the one that was captured")
        if log_end < position.lsn:
            raise changes_lost(
                self._options,
                f"the server's log ends at {lsn_text(log_end)}, before this capture's position "
                f"{lsn_text(position.lsn)}: it was restored, or failed over and lost transactions",
            )
        if timeline != position.timeline:
            switch = stream.history(timeline).get(position.timeline)
            if switch is None or switch < position.lsn:
                raise changes_lost(
                    self._options,
                    "the server failed over, and the new primary does not have all that the old one had committed",
                )

    def _begin_states(
        self, connection: Connection, position: StreamPosition, tables: Sequence[CapturedTable]
    ) -> StreamPosition:
        """The state of each table: that of the position, or waiting, if it is new or must be copied again."""
        snapshot, _ = take_snapshot(connection)
        fence = snapshot.xmax if position.tables else 0
        states: dict[str, TableState] = {}
        for table in tables:
            state = position.tables.get(table.name)
            if state is None or state.oid != table.oid:
                state = TableState(fence=fence, oid=table.oid, given=0 if state is None else state.given)
            elif must_copy_again(state.columns, table, self._options, None):
                state = replace(state, state="waiting", key=None, rows=0)
            states[table.name] = replace(state, columns=table.columns, estimated_rows=table.estimated_rows)
        return replace(position, tables=states)

    def _surroundings(self, connection: Connection) -> Surroundings:
        next_heartbeat = time.monotonic() + self._options.heartbeat_seconds
        last_lsn = 0

        def look_again(table: CapturedTable, relation: Relation) -> tuple[CapturedTable, bool]:
            if looks_the_same(table, relation):
                return table, False
            asked = [asked for asked in self._asked if asked.name == table.name]
            (found,) = describe_tables(connection, asked, oids={table.name: table.oid}, dropped=self._options.dropped)
            return found, must_copy_again(table.columns, found, self._options, table)

        def complete_moved(part: GroupPart) -> GroupPart:
            return complete_moved_rows(connection, part)

        def check(lsn: int) -> None:
            nonlocal next_heartbeat, last_lsn
            if time.monotonic() < next_heartbeat:
                return
            next_heartbeat = time.monotonic() + self._options.heartbeat_seconds
            self._check_retained(connection)
            if lsn == last_lsn and take_snapshot(connection)[1] > lsn:
                emit_message(connection)
            last_lsn = lsn

        return Surroundings(look_again, complete_moved, check)

    def _check_retained(self, connection: Connection) -> None:
        """Give up the slot rather than let it fill the server's disk."""
        limit = self._options.max_retained_bytes
        slot = find_slot(connection, self._slot) if limit is not None else None
        if slot is None or limit is None or slot.retained_bytes <= limit:
            return
        if self._stream is not None:
            self._stream.close()
        drop_slot(connection, self._slot)
        raise changes_lost(
            self._options,
            f"slot {self._slot}: the server retained {slot.retained_bytes:,} bytes for it, more than "
            f"max_retained_bytes, which is {limit:,}; it was dropped to protect the server's disk",
        )

    def _forget_stream(self) -> None:
        self._stream = None
