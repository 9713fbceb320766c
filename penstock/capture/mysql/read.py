"""One reading of a database: the stream of changes, and the copy of tables beside it.

A chunk is the table as of an exact place in the log. It is given when the stream has come to that place: between the
changes that it has and those that it has not. So the copy needs no lock, and no comparing of keys.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.capture.mysql.binlog import BinlogStream, changes_lost
from penstock.capture.mysql.catalog import CapturedTable
from penstock.capture.mysql.connection import Address, Session
from penstock.capture.mysql.copy import Chunk, read_chunk
from penstock.capture.mysql.events import FORMAT, Event, Header
from penstock.capture.mysql.follow import Follower, Item, next_to_copy
from penstock.capture.mysql.logged import check_columns
from penstock.capture.mysql.position import Place, TableState
from penstock.contracts import Captured, SourceOptions, TableEvent
from penstock.errors import DeclarationError, UnavailableError

# The server sends what it has at once: if nothing has come for so long, there is nothing more for now.
_NOTHING_MORE = 0.003
_HEARTBEAT_SECONDS = 1.0
_START_SECONDS = 60.0


@dataclass(slots=True)
class _PendingChunk:
    """A chunk that waits for the stream, and the state of the table's copy for which it was read."""

    table: CapturedTable
    state: TableState
    chunk: Chunk


class Reading:
    """Reads from the position of a follower on, until it is closed."""

    def __init__(self, address: Address, session: Session, follower: Follower, options: SourceOptions) -> None:
        position = follower.position
        assert position.place is not None
        self._session, self._follower, self._options = session, follower, options
        self._pending: _PendingChunk | None = None
        self._stream = BinlogStream(
            address,
            position.place,
            server_id=replica_id(options),
            file_time=position.file_time,
            name=options.name,
        )

    def items(self) -> Iterator[Item]:
        """Everything from the position on; heartbeats while there is nothing."""
        self._wait_for_start()
        timeout = _NOTHING_MORE
        while True:
            found = self._stream.next_event(timeout)
            if found is not None:
                yield from self._apply(*found)
                timeout = _NOTHING_MORE
            if not self._follower.is_open:
                yield from self._copy()
            if found is None:
                yield from self._follower.flush()
                yield self._follower.heartbeat()
                timeout = _NOTHING_MORE if self._is_copying() else _HEARTBEAT_SECONDS

    def _apply(self, header: Header, event: Event) -> Iterator[Item]:
        before = self._follower.position
        try:
            yield from self._follower.apply(header, event, self._stream.place, self._stream.file_time)
        except DeclarationError:
            yield from self._follower.give_whole(before)
            raise

    def close(self) -> None:
        self._stream.close()

    def _wait_for_start(self) -> None:
        """Read up to the description of the file. So nothing is given if the server has another file, or none."""
        while (found := self._stream.next_event(_START_SECONDS)) is not None:
            header, event = found
            # What comes before the description only says where the stream is. At most a heartbeat is due.
            deque(self._follower.apply(header, event, self._stream.place, self._stream.file_time), maxlen=0)
            if header.type == FORMAT:
                return
        raise UnavailableError(f"database {self._session.address.shown}: it does not begin to send its binary log")

    # -- the copy

    def _is_copying(self) -> bool:
        return next_to_copy(self._follower.position.tables) is not None

    def _copy(self) -> Iterator[Item]:
        """Give the chunk whose place the stream has reached, and read the next."""
        if self._pending is None:
            self._pending = self._read_chunk()
        pending, place = self._pending, self._follower.position.place
        if pending is None or place is None or place.is_before(pending.chunk.place):
            return
        self._pending = None
        now = self._follower.position.tables[pending.table.name]
        if (now.state, now.after) == (pending.state.state, pending.state.after):
            yield from self._follower.flush()
            yield from self._give(pending.table, now, pending.chunk)

    def _read_chunk(self) -> _PendingChunk | None:
        follower = self._follower
        name = next_to_copy(follower.position.tables)
        if name is None:
            return None
        table = next(table for table in follower.tables if table.name == name)
        state = follower.position.tables[name]
        chunk = read_chunk(
            self._session,
            table,
            state.after,
            limit=self._options.chunk_rows,
            charsets=follower.charsets,
            dropped=self._options.dropped,
            not_before=follower.position.place,
        )
        return _PendingChunk(table, state, chunk)

    def _give(self, table: CapturedTable, state: TableState, chunk: Chunk) -> Iterator[Item]:
        follower, name = self._follower, table.name
        if state.state == "waiting":
            self._check_definition(table, state, chunk)
            columns = {column.name: str(column.arrow) for column in chunk.definition.columns}
            estimated, key = chunk.definition.estimated_rows, chunk.definition.key
            state = TableState("copying", rows=0, estimated_rows=estimated, key=key, columns=columns)
            follower.set_table(name, state)
            yield TableEvent(name, "copy begins", follower.encoded_position)
        if len(chunk.rows):
            state = replace(state, after=chunk.after, rows=state.rows + len(chunk.rows))
            follower.set_table(name, state)
            yield Captured(name, chunk.rows, position=follower.encoded_position)
        if chunk.is_last:
            follower.set_table(name, replace(state, state="complete", after=()))
            yield TableEvent(name, "copy ends", follower.encoded_position)

    def _check_definition(self, table: CapturedTable, state: TableState, chunk: Chunk) -> None:
        """Compare the table with what it was when it was captured before, if it was."""
        if state.columns is None:
            return
        where = f"database {self._session.address.shown}: table '{table.name}' at {chunk.place}"
        found = {column.name: str(column.arrow) for column in chunk.definition.columns}
        check_columns(found, state.columns, dropped=self._options.dropped, table=table.name, where=where)
        if state.key != chunk.definition.key:
            raise DeclarationError(
                f"{where}: its key has changed from {', '.join(state.key)} to {', '.join(chunk.definition.key)}",
                hint=f"change it back, or begin a new capture of '{table.name}' into another topic",
            )


def replica_id(options: SourceOptions) -> int:
    """The number under which the server knows a capture: always the same for one, and others for others.

    A second connection of the same number makes the server end the first. It is in the upper half of the numbers, away
    from those that people give to servers.
    """
    return 1 << 31 | zlib.crc32(f"{options.name}\0{options.identity}".encode()) >> 1


def check_place(session: Session, place: Place, server_id: int, name: str) -> None:
    """Raise ChangesLostError unless the place is in a log of this server."""
    found = int(str(session.value("SELECT @@global.server_id")))
    shown = session.address.shown
    if found != server_id:
        raise changes_lost(shown, place, name, f"this is another server: its server_id is {found}, and was {server_id}")
    files = {str(row[0]): int(str(row[1])) for row in session.rows("SHOW BINARY LOGS")}
    if place.byte < 1 << 32 and files.get(place.file, -1) < place.byte:
        kept = f"it has {min(files)} to {max(files)}" if files else "it has none"
        raise changes_lost(shown, place, name, f"{kept}, and {place.file} ends at {files.get(place.file, 'no place')}")
