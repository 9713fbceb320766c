"""The copies of tables, chunk by chunk, beside the stream of changes, such that both together are exact.

A chunk shows the transactions of its snapshot; the stream gives transactions one after the other, each with its id.
So for each pair it is known whether the chunk contains the transaction. The rules; the same letters stand in the code:

a. All transactions that were given before a snapshot is taken must be visible in it. A commit may be in the server's
   log, and so in the stream, a moment before it is visible. Then a snapshot is taken again later.
b. A transaction that is given after the snapshot, before the chunk, and that the chunk does not contain, is newer: rows
   of the chunk with its keys are left out. If one of its rows is incomplete (`unchanged`), the chunk is read again.
c. A transaction that is given after the chunk, and that the chunk contains, is older: its changes to keys of the chunk
   are left out. Its changes to other keys are given; later ones undo them, or the chunk would have those keys.
d. A chunk is safe once the stream has passed its LSN: from then on, no transaction comes that it contains. Only then
   does the position say that it need not be read again, and only then does the copy end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.postgres.catalog import CapturedTable
from penstock.capture.postgres.chunk_size import ChunkSize
from penstock.capture.postgres.chunks import Chunk, ChunkReader, ChunkRows, Key
from penstock.capture.postgres.groups import GroupPart, JudgeTransaction, without
from penstock.capture.postgres.keys import contains, key_texts
from penstock.capture.postgres.position import TableState
from penstock.capture.postgres.rows import RowChanges
from penstock.capture.postgres.visibility import Snapshot

_MOST_UNSEEN = 500


@dataclass(frozen=True, slots=True)
class _GivenChunk:
    """A chunk that was given and is not safe yet. `last`: its last key, or None at the end of the table."""

    chunk: Chunk
    keys: pa.Array[Any]
    last: Key | None
    rows: int


@dataclass(slots=True)
class _Reading:
    """The chunk that is being read, and the keys of later changes to its table, with whether they are incomplete."""

    chunk: Chunk
    newer: list[tuple[pa.Array[Any], bool]] = field(default_factory=list)


class TableCopies:
    """The copies of all tables of a capture. `states` says how far each has come; the position stores it."""

    def __init__(
        self,
        tables: Mapping[str, CapturedTable],
        states: Mapping[str, TableState],
        reader: ChunkReader,
        chunk_rows: int,
    ) -> None:
        self.states = dict(states)
        self.unseen: list[int] = []  # transactions that were given, and that a snapshot might not show yet
        self._tables = dict(tables)
        self._reader = reader
        self._sizes = {name: ChunkSize(chunk_rows, table.row_bytes) for name, table in tables.items()}
        self._reading: _Reading | None = None
        self._given: dict[str, list[_GivenChunk]] = {name: [] for name in tables}
        self.is_complete = False
        self._set_complete()

    def _set_complete(self) -> None:
        """`is_complete` is asked for each transaction, so it is not looked up then."""
        self.is_complete = all(state.state == "complete" for state in self.states.values())

    def restart(self, table: CapturedTable) -> None:
        """Copy a table from its beginning, because it has changed as a whole."""
        self._tables[table.name] = table
        state = self.states[table.name]
        self.states[table.name] = replace(state, state="waiting", key=None, rows=0, columns=table.columns)
        self._set_complete()
        self._given[table.name] = []
        if self._reading is not None and self._reading.chunk.table.name == table.name:
            self._reader.discard(self._reading.chunk)
            self._reading = None

    def follow(self, table: CapturedTable) -> None:
        """Go on with other columns."""
        self._tables[table.name] = table
        self.states[table.name] = replace(self.states[table.name], columns=table.columns)

    # -- transactions of the stream

    def note_transaction(self, xid: int) -> None:
        """A transaction is given."""
        if self.is_complete:
            self.unseen.clear()
            return
        self.unseen.append(xid)
        if len(self.unseen) > _MOST_UNSEEN and self._reading is None:
            self._shows_all_given(self._reader.snapshot())

    def judge(self, table: str) -> JudgeTransaction | None:
        """Which chunks that matter for this table contain a transaction: the one being read, then those given."""
        reading = self._reading
        is_read = reading is not None and reading.chunk.table.name == table
        snapshots = [reading.chunk.snapshot] if reading is not None and is_read else []
        snapshots += [given.chunk.snapshot for given in self._given[table]]
        return (lambda xid: tuple(snapshot.shows(xid) for snapshot in snapshots)) if snapshots else None

    def fit(self, part: GroupPart) -> RowChanges:
        """The changes of a part that may be given, by rule c. Remembers what is newer than the chunk being read."""
        changes, verdict, name = part.changes, list(part.verdict), part.table.name
        if not verdict:
            return changes
        for given in reversed(self._given[name]):
            if verdict.pop():  # c
                changes = without(changes, contains(given.keys, key_texts(changes.batch, part.table.layout)))
        if verdict and not verdict[0] and self._reading is not None:
            keys = key_texts(changes.batch, part.table.layout)
            self._reading.newer += [(keys, False)]
            if changes.unchanged:
                incomplete = _any_marked(changes.unchanged.values())
                self._reading.newer += [(keys.filter(incomplete), True)]
        return changes

    # -- chunks

    def next_table(self) -> str | None:
        """A table of which nothing is being read, and of which there is more to read."""
        if self._reading is not None:
            return None
        for name, state in self.states.items():
            if state.state != "complete" and not self._is_read_to_the_end(name):
                return name
        return None

    def mark_begun(self, name: str) -> bool:
        """Whether the copy of a table begins only now."""
        if self.states[name].state != "waiting":
            return False
        self.states[name] = replace(self.states[name], state="copying", fence=0)
        return True

    def may_begin(self, name: str) -> bool:
        """Whether all transactions have ended that changed a table before it was published."""
        fence = self.states[name].fence
        return not fence or self._reader.snapshot().xmin >= fence

    def begin_chunk(self, name: str) -> bool:
        """Take a snapshot for the next chunk of a table, and begin to read it. False: not now, see rule a."""
        given = self._given[name]
        after = given[-1].last if given else self.states[name].key
        chunk = self._reader.begin(self._tables[name], after, self._sizes[name].rows, self._shows_all_given)
        if chunk is None:
            return False
        self._reading = _Reading(chunk)
        return True

    @property
    def has_chunk(self) -> bool:
        """Whether a chunk has been read."""
        return self._reading is not None and self._reading.chunk.rows.done()

    def take_chunk(self) -> tuple[str, pa.RecordBatch] | None:
        """The rows that may be given of the chunk that has been read, by rule b. None: it must be read again."""
        reading = self._reading
        assert reading is not None
        self._reading = None
        self._reader.clear()
        read = reading.chunk.rows.result()
        table = reading.chunk.table
        self._sizes[table.name].learn(reading.chunk.limit, read.size)
        fitted = _fit_chunk(reading, read)
        if fitted is None:
            return None
        batch, keys = fitted
        self._given[table.name].append(_GivenChunk(reading.chunk, keys, read.last, read.batch.num_rows))
        state = self.states[table.name]
        self.states[table.name] = replace(state, given=state.given + max(1, read.batch.num_rows))
        return table.name, batch

    def wait(self) -> None:
        """Wait until the chunk has been read."""
        if self._reading is not None:
            self._reading.chunk.rows.exception()

    def pass_lsn(self, lsn: int) -> Iterator[str]:
        """The stream has come to this LSN: chunks become safe, by rule d. Gives the tables whose copy ends."""
        for name, chunks in self._given.items():
            while chunks and chunks[0].chunk.lsn <= lsn:
                safe = chunks.pop(0)
                state = self.states[name]
                self.states[name] = replace(state, key=safe.last, rows=state.rows + safe.rows)
                if safe.last is None:
                    self.states[name] = replace(self.states[name], state="complete", given=0)
                    self._set_complete()
                    yield name

    @property
    def awaited_lsn(self) -> int:
        """How far the stream must come until all chunks that were given are safe."""
        return max((given.chunk.lsn for chunks in self._given.values() for given in chunks), default=0)

    def _is_read_to_the_end(self, name: str) -> bool:
        given = self._given[name]
        return bool(given) and given[-1].last is None

    def _shows_all_given(self, snapshot: Snapshot) -> bool:
        """Rule a."""
        self.unseen = [xid for xid in self.unseen if not snapshot.shows(xid)]
        return not self.unseen


def _fit_chunk(reading: _Reading, read: ChunkRows) -> tuple[pa.RecordBatch, pa.Array[Any]] | None:
    """The rows that no newer change has replaced, and their keys. None: a newer change is incomplete."""
    keys = key_texts(read.batch, reading.chunk.table.layout)
    if not reading.newer:
        return read.batch, keys
    if any(is_incomplete and pc.any(contains(newer, keys)).as_py() for newer, is_incomplete in reading.newer):
        return None
    changed = pa.concat_arrays([newer for newer, _ in reading.newer])
    rest = pc.invert(contains(changed, keys))
    return read.batch.filter(rest), keys.filter(rest)


def _any_marked(marks: Iterable[pa.BooleanArray]) -> pa.BooleanArray:
    first, *others = marks
    for marked in others:
        first = pc.or_(first, marked)
    return first
