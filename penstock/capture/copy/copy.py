"""The copy of a database: a source for the pump, whose rows can be written to topics as they are.

What it does with each item of the database; the same numbers mark the steps in the code:

1. Rows get the columns of their topic, and the values that the database did not send.
2. `truncated` becomes delete markers for all rows that the topic and the open transaction have.
3. `copy begins` remembers in the position where the topic ends.
4. `copy ends` becomes delete markers for the rows whose last event is before that: the source has them no longer.

For 2, 3 and 4 it needs to know what the topic has, so it first gives a heartbeat, on which the pump writes what is
complete. What is open is known from `OpenRowsOfTable`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.copy.position import CopyBegin, CopyPosition
from penstock.capture.copy.table import CopiedTable
from penstock.capture.copy.topics import table_topic
from penstock.contracts import COMMIT_TIME, Captured, Database, Log, Position, SourceTable, TableEvent
from penstock.units import now_microseconds


class Copy:
    """Implements `Source` and `Confirms`. `topics` names the topic of each table; `folder` is for its own files.

    Its positions are those of `CopyPosition`. It may be read again after any error.
    """

    def __init__(
        self,
        database: Database,
        log: Log,
        topics: Mapping[str, str],
        folder: Path,
        *,
        name: str = "capture",
        partitions: Mapping[str, int] | None = None,
        clock: Callable[[], int] = now_microseconds,
    ) -> None:
        self._database = database
        self._log = log
        self._topics = dict(topics)
        self._folder = folder
        self._name = name
        self._partitions = dict(partitions or {})
        self._clock = clock
        self._tables: dict[str, CopiedTable] = {}
        self._copying: dict[str, CopyBegin] = {}
        self._given: Position | None = None  # the last position, unless rows followed it
        self._source: Position | None = None  # the last position of the database
        self._newest_commit = 0

    def tables(self) -> Sequence[SourceTable]:
        """The tables of the database. Their topics exist afterwards."""
        found = self._database.tables()
        for table in found:
            if table.name not in self._tables:
                self._tables[table.name] = self._copied_table(table)
        return found

    def _copied_table(self, table: SourceTable) -> CopiedTable:
        topic_name = self._topics[table.name]
        topic = table_topic(self._log, table, topic_name, partitions=self._partitions.get(table.name, 1))

        def is_copied() -> bool:
            copies = self._database.copies(self._source)
            return all(copy.state == "complete" for copy in copies if copy.table == table.name)

        return CopiedTable(table.name, self._name, topic, self._folder, is_copied, table.inserts_only)

    def read(self, after: Position | None) -> Iterator[Captured]:
        self.tables()
        place = CopyPosition.parse(after)
        self._copying = {table: begin for table, begin in place.copying.items() if table in self._tables}
        self._given, self._source = None, place.source
        for table in self._tables.values():
            table.restart(self._copying.get(table.name))
        items = self._database.read(place.source)
        try:
            for item in items:
                yield from self._event(item) if isinstance(item, TableEvent) else self._rows(item)
        finally:
            if isinstance(items, Generator):
                items.close()

    def confirm(self, position: Position) -> None:
        if position == self._given:
            for table in self._tables.values():
                table.commit()
                table.forget_digests()
        if (source := CopyPosition.parse(position).source) is not None:
            self._database.confirm(source)

    def close(self) -> None:
        for table in self._tables.values():
            table.close()
        self._database.close()

    def take_newest_commit(self) -> int:
        """The time of the newest commit of which rows were given since this was asked last; 0 if there was none."""
        newest, self._newest_commit = self._newest_commit, 0
        return newest

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _rows(self, item: Captured) -> Iterator[Captured]:
        if not len(item.rows):
            yield Captured(item.table, position=self._wrap(item.position))
            return
        table = self._tables[item.table]
        if table.lacks_earlier_values(item):
            yield _HEARTBEAT
            table.open_values()
        assert isinstance(item.rows, pa.RecordBatch), "rows of databases are Arrow batches"
        # Of what the database gives: rows of a copy have no time there, and may get one of earlier.
        self._newest_commit = max(self._newest_commit, pc.max(item.rows.column(COMMIT_TIME).cast(pa.int64())).as_py())
        rows, deleted = table.rows(item)  # 1
        self._given = None
        yield Captured(item.table, rows, deleted, self._wrap(item.position))

    # -- tables as a whole --------------------------------------------------------------------------------------------

    def _event(self, event: TableEvent) -> Iterator[Captured]:
        table = self._tables[event.table]
        time = self._clock() if event.committed_at is None else round(event.committed_at.timestamp() * 1_000_000)
        yield _HEARTBEAT
        if event.what == "truncated":
            yield from self._give(table, table.truncate(time))  # 2
        elif event.what == "copy begins":
            self._copying[table.name] = table.begin_copy(time)  # 3
        else:
            yield from self._give(table, table.end_copy(time))  # 4
            self._copying.pop(table.name, None)
        yield Captured(event.table, position=self._wrap(event.position))

    def _give(self, table: CopiedTable, parts: Iterator[tuple]) -> Iterator[Captured]:  # type: ignore[type-arg]
        for rows, deleted in parts:
            self._given = None
            yield Captured(table.name, rows, deleted)

    # -- positions ----------------------------------------------------------------------------------------------------

    def _wrap(self, position: Position | None) -> Position | None:
        """The position of a copy for one of its source. With it, the transaction that was open is complete."""
        if position is None:
            return None
        for table in self._tables.values():
            table.open_rows.clear()
        self._source = position
        self._given = CopyPosition(position, dict(self._copying)).to_json()
        return self._given


_HEARTBEAT = Captured("")
