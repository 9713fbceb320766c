"""The loop of a capture: changes from the stream and chunks of copies, as items, each at its place.

It reads what the server has sent, up to a limit, decodes it by table, and gives it; then a chunk, if one has been read;
then a heartbeat, if there was neither, and waits. Transactions that the server streams while they run are staged in
files and given when they commit. Nothing is given twice, and only the last item of a group has a position.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from struct import Struct
from typing import TypeAlias

import pyarrow as pa

from penstock.capture.postgres.catalog import CapturedTable
from penstock.capture.postgres.copies import TableCopies
from penstock.capture.postgres.groups import GroupPart, RowGroup
from penstock.capture.postgres.pgoutput import (
    EPOCH_MICROSECONDS,
    Relation,
    StreamAbort,
    StreamCommit,
    StreamStart,
    Truncate,
    decode,
)
from penstock.capture.postgres.position import StreamPosition, to_json
from penstock.capture.postgres.replication import MESSAGE_BYTES, AddRow, ReplicationStream
from penstock.capture.postgres.staging import StagedTransaction, Staging
from penstock.contracts import Captured, Position, TableEvent

Item: TypeAlias = Captured | TableEvent
Steps: TypeAlias = Generator[Item, None, bool]
"""Items, and in the end whether there were any."""

_GROUP_BYTES = 8 << 20
_IDLE_SECONDS = 1.0
_RETRY_SECONDS = 0.05  # a chunk could not be begun
_BEGIN, _COMMIT = Struct(">xQqI"), Struct(">xBQQq")
_BEGIN_KIND, _COMMIT_KIND = b"BC"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the loop needs beside the stream: it asks for these where it meets something that is no row.

    `look_again` describes a table as it is now, and says whether it must be copied again. `complete_moved` fills in
    what the stream does not have of rows whose key changed. `check` is called about once a second, with the LSN up to
    which everything has been given.
    """

    look_again: Callable[[CapturedTable, Relation], tuple[CapturedTable, bool]]
    complete_moved: Callable[[GroupPart], GroupPart]
    check: Callable[[int], None]


class _BlockRows(dict[bytes, AddRow]):
    """Adds the rows of every table to a transaction that is staged."""

    def __init__(self, add: AddRow) -> None:
        self._add = add

    def __missing__(self, table: bytes) -> AddRow:
        return self._add


class Follower:
    """One `read` of a database. `tables` are by their oid, which the stream uses too."""

    def __init__(
        self,
        stream: ReplicationStream,
        tables: Mapping[int, CapturedTable],
        copies: TableCopies,
        position: StreamPosition,
        surroundings: Surroundings,
        *,
        ready: int,
    ) -> None:
        self._stream = stream
        self._tables = dict(tables)
        self._copies = copies
        self._position = position
        self._surroundings = surroundings
        self._ready = ready
        self._any_table = next(iter(tables.values())).name
        self._group = RowGroup(streaming=False)
        self._staged_group = RowGroup(streaming=True)
        self._staging = Staging()
        self._block: StagedTransaction | None = None
        self._open: tuple[int, int] | None = None  # commit time and id of the transaction that has begun
        self._lsn = position.lsn
        self._owes_position = False  # rows were given without one
        self._last_position: Position | None = None
        self._position_time = 0.0
        self._budget = 0
        self._next_check = time.monotonic() + _IDLE_SECONDS
        self._wait_seconds = _IDLE_SECONDS

    def items(self) -> Iterator[Item]:
        """Everything that comes, for as long as it is asked for."""
        yield Captured(self._any_table, position=self._next_position())
        while True:
            has_given = yield from self._give_changes()
            has_given = (yield from self._give_copies()) or has_given
            if not has_given:
                yield self._heartbeat()
                self._stream.wait(self._wait_seconds, self._ready)
            self._check()

    def close(self) -> None:
        self._staging.close()

    # -- changes

    def _give_changes(self) -> Steps:
        """Give what the server has sent so far, up to a limit."""
        self._budget = _GROUP_BYTES
        has_given = False
        while self._budget > 0:
            rows = self._group.rows if self._block is None else _BlockRows(self._block.append)
            self._budget, message = self._stream.read(rows, self._budget)
            if message is None:
                break
            if message[0] == _BEGIN_KIND:
                _, commit_time, xid = _BEGIN.unpack(message)
                self._open = (commit_time + EPOCH_MICROSECONDS, xid)
            elif message[0] == _COMMIT_KIND:
                self._commit(self._group, _COMMIT.unpack(message)[2])
            else:
                has_given = (yield from self._take(message)) or has_given
        if self._open is not None and self._budget > 0:
            return has_given  # the rest of the transaction is on its way
        return (yield from self._give_group(self._group)) or has_given

    def _take(self, message: bytes) -> Steps:
        """Take one message that is neither the change of a row nor the begin or commit of a transaction."""
        kind = message[:1]
        if kind == b"S":
            start = decode(message, streaming=False)
            assert isinstance(start, StreamStart)
            self._block = self._staging.open(start.xid)
        elif kind == b"E":
            self._block = None
        elif self._block is not None:
            self._block.append(message)
        elif kind == b"A":
            abort = decode(message, streaming=False)
            assert isinstance(abort, StreamAbort)
            self._staging.abort(abort)
        elif kind == b"c":
            yield from self._give_group(self._group)
            yield from self._give_staged(message)
            return True
        else:
            return (yield from self._take_other(message, self._group, streaming=False))
        return False

    def _take_other(self, message: bytes, group: RowGroup, *, streaming: bool) -> Steps:
        """A description of a table, or a truncate."""
        if message[:1] not in (b"R", b"T"):
            return False
        decoded = decode(message, streaming=streaming)
        if isinstance(decoded, Relation):
            return (yield from self._describe(decoded, group))
        assert isinstance(decoded, Truncate)
        yield from self._give_group(group)
        for oid in decoded.relation_ids:
            table = self._tables.get(oid)
            if table is not None and not table.inserts_only:
                self._owes_position = True
                yield TableEvent(table.name, "truncated")
                if self._copies.states[table.name].state == "copying":
                    self._copies.restart(table)
        return True

    def _commit(self, group: RowGroup, end_lsn: int) -> None:
        assert self._open is not None, "a commit without a begin"
        commit_time, xid = self._open
        group.end_transaction(commit_time, xid)
        self._copies.note_transaction(xid)
        self._open = None
        self._lsn = end_lsn

    def _describe(self, relation: Relation, group: RowGroup) -> Steps:
        """A table as it is from here on, which may differ from what it was."""
        relation = replace(relation, xid=None)
        table = self._tables.get(relation.relation_id)
        groups = (self._group, self._staged_group)
        if all(described.relation(relation.relation_id) == relation for described in groups):
            return False
        has_given = yield from self._give_group(group)
        if table is not None:
            found, copy_again = self._surroundings.look_again(table, relation)
            if found != table:
                table = self._tables[relation.relation_id] = found
                self._copies.follow(table)
            if copy_again:
                self._copies.restart(table)
        for described in groups:
            described.describe(relation, table)
        return has_given

    def _give_staged(self, message: bytes) -> Iterator[Item]:
        """Give a transaction that was streamed, which now has committed."""
        commit = decode(message, streaming=False)
        assert isinstance(commit, StreamCommit)
        group, budget = self._staged_group, _GROUP_BYTES
        self._open = (commit.commit_time, commit.xid)
        for staged in self._staging.open(commit.xid).messages():
            add = group.rows.get(staged[5:9]) if staged[0] in b"IUD" else None
            if add is None:
                yield from self._take_other(staged, group, streaming=True)
                continue
            add(staged)
            budget -= len(staged) + MESSAGE_BYTES
            if budget <= 0:
                yield from self._give_group(group)
                self._stream.keep_alive()
                budget = _GROUP_BYTES
        self._commit(group, commit.end_lsn)
        self._staging.remove(commit.xid)
        yield from self._give_group(group)

    def _give_group(self, group: RowGroup) -> Steps:
        """Give all rows of a group; the last item has the position, if no transaction is open."""
        if self._open is not None:
            group.end_transaction(*self._open)
        last: Captured | None = None
        for part in group.take(self._copies.judge):
            if last is not None:
                yield last
            changes = self._copies.fit(self._surroundings.complete_moved(part))
            last = Captured(part.table.name, changes.batch, changes.deleted, None, changes.unchanged)
            self._owes_position = True
        if self._open is None and self._owes_position:
            yield replace(last or Captured(self._any_table), position=self._next_position())
            return True
        if last is not None:
            yield last
        return last is not None

    # -- copies

    def _give_copies(self) -> Steps:
        """Give a chunk that has been read, and begin the next one, between two transactions."""
        self._wait_seconds = _IDLE_SECONDS
        if self._open is not None or self._copies.is_complete:
            return False
        has_given = yield from self._end_copies()
        if self._copies.has_chunk:
            taken = self._copies.take_chunk() or self._read_chunk_now()
            name = self._copies.next_table()
            if name is not None and self._copies.states[name].state == "copying":
                self._begin_chunk(name)  # the server reads it while the log writes this one
            if taken is not None:
                yield Captured(*taken, position=self._next_position())
                has_given = True
        name = self._copies.next_table()
        if name is not None and not self._copies.may_begin(name):
            self._wait_seconds = _RETRY_SECONDS
        elif name is not None:
            if self._copies.mark_begun(name):
                yield TableEvent(name, "copy begins", self._next_position())
            self._begin_chunk(name)
        return has_given

    def _begin_chunk(self, name: str) -> None:
        if not self._copies.begin_chunk(name):
            self._wait_seconds = _RETRY_SECONDS

    def _read_chunk_now(self) -> tuple[str, pa.RecordBatch] | None:
        """Read the chunk again, without giving changes meanwhile, so that nothing in it is older than they are."""
        name = self._copies.next_table()
        if name is None or not self._copies.begin_chunk(name):
            return None
        self._copies.wait()
        return self._copies.take_chunk()

    def _end_copies(self) -> Steps:
        has_given = False
        self._advance()
        for name in self._copies.pass_lsn(self._lsn):
            yield TableEvent(name, "copy ends", self._next_position())
            has_given = True
        return has_given

    # -- positions

    def _advance(self) -> None:
        """Between transactions, all that the server has sent is given, also what had nothing for us."""
        if self._open is None:
            self._lsn = max(self._lsn, self._stream.received)

    def _next_position(self) -> Position:
        position = StreamPosition(
            lsn=self._lsn,
            tables=self._copies.states,
            system=self._position.system,
            timeline=self._position.timeline,
            unseen=tuple(self._copies.unseen),
        )
        self._owes_position = False
        self._position_time = time.monotonic()
        self._last_position = to_json(position)
        return self._last_position

    def _heartbeat(self) -> Captured:
        """There is nothing more. A position that moved without rows comes once a second: storing it costs a write."""
        self._advance()
        if self._open is None and time.monotonic() - self._position_time >= _IDLE_SECONDS:
            return Captured(self._any_table, position=self._next_position())
        return Captured(self._any_table, position=None if self._owes_position else self._last_position)

    def _check(self) -> None:
        if time.monotonic() >= self._next_check:
            self._surroundings.check(self._lsn)
            self._next_check = time.monotonic() + _IDLE_SECONDS
