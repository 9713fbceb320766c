"""A topic: a name, a typed schema, a key, an event-time column, and N partitions to append to and read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from penstock.calls import answer_methods
from penstock.contracts import DELETED, Batch, Extent, Start, TopicSettings
from penstock.errors import DeclarationError, RowError
from penstock.log.appender import Appender
from penstock.log.description import Description, check_topic
from penstock.log.extents import byte_extent, row_extent
from penstock.log.headers import Headers
from penstock.log.intake import Marks, Rows
from penstock.log.pending_write import Appended
from penstock.log.reader import FrameReader, Reader, offset_at_time, read_batches
from penstock.log.retention import Expired, Retention
from penstock.log.rewrite import (
    COMPACT_WAIT_SECONDS,
    ERASE_WAIT_SECONDS,
    Choose,
    Progress,
    Rewritten,
    RowFilter,
    all_but,
    all_except,
    last_of_each_key,
    rewrite,
)
from penstock.log.topic_files import TopicFiles
from penstock.log.verify import Statistics, Verified, partition_statistics, verify_partition
from penstock.schema.arrow import check_columns, conform, evolve, parse_schema
from penstock.schema.ddl import to_ddl
from penstock.schema.hashing import hash_keys, partition_of
from penstock.schema.result import Result
from penstock.schema.rows import rows_to_batch


@answer_methods()
class Topic:
    """A topic of an open log. Made by `Log.topic` and `Log.create_topic`; safe to use from many threads.

    Implements `contracts.Topic`, `MeasuresExtents` and `SummarisesRows`. `files` and `appender` are for other parts of
    the log: producers, transactions, groups.
    """

    def __init__(self, files: TopicFiles) -> None:
        self.files = files
        self.appender = Appender(files)

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.files.name

    @property
    def id(self) -> str:
        """Distinguishes the topic from one of the same name that was dropped."""
        return self.files.description.id

    @property
    def created(self) -> datetime:
        return datetime.fromisoformat(self.files.description.created)

    @property
    def settings(self) -> TopicSettings:
        return self.files.settings

    @property
    def schema(self) -> pa.Schema:
        """The newest schema."""
        return self.files.schema

    @property
    def schema_version(self) -> int:
        """The number of the newest schema; the first is 1."""
        return len(self.files.schemas)

    @property
    def schemas(self) -> tuple[str, ...]:
        """All schemas that the topic has had, as DDL text, oldest first."""
        return self.files.description.schemas

    def evolve(self, schema: str | pa.Schema) -> pa.Schema:
        """Change the schema: new nullable columns and wider types. Old rows stay and read as the new schema."""
        wanted = parse_schema(schema)

        def add_schema(stored: Description) -> Description:
            newest = parse_schema(stored.schemas[-1])
            evolved = evolve(newest, wanted, keys=stored.settings.key)
            return stored if evolved == newest else replace(stored, schemas=(*stored.schemas, to_ddl(evolved)))

        self.files.change_description(add_schema)
        return self.schema

    def retain(self, retention: Retention) -> None:
        """Change how much is kept. Writers go by it from their next segment on; `expire` does so now."""

        def set_retention(stored: Description) -> Description:
            settings = replace(stored.settings, retention_seconds=retention.seconds, retention_bytes=retention.bytes)
            check_topic(stored.name, parse_schema(stored.schemas[-1]), settings)
            return replace(stored, settings=settings)

        self.files.change_description(set_retention)

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(
        self,
        rows: Rows,
        *,
        deleted: Marks | None = None,
        partition: int | None = None,
        expect: int | None = None,
    ) -> list[Appended]:
        """Store rows, each in the partition of its key; return where, once they are as durable as the topic promises.

        `topic.append([{"order_id": 1, "country": "DE"}])`. Rows are a dict, a list of dicts, a batch or table of Arrow,
        or a data frame of pandas or Polars. Without a key the whole call goes to one partition, the next in turn.
        `deleted` marks rows that delete their key. `expect` (versioned topics, rows of one key) stores them only if
        that key's last version is this; 0 means it has none. The rows of one partition are stored together or not at
        all.
        """
        requests = self.appender.requests(rows, deleted=deleted, partition=partition, expect=expect)
        return self.appender.store(requests)

    def append_in_pieces(self, rows: Rows, *, deleted: Marks | None = None) -> None:
        """The same for rows that may be too many for one append: as many appends as they need."""
        for requests in self.appender.requests_in_pieces(rows, deleted=deleted):
            self.appender.store(requests)

    def delete(self, keys: Rows) -> list[Appended]:
        """Store delete markers for these keys: rows of which only the key (and the event time, if given) counts."""
        return self.append(keys, deleted=True)

    def fitted_rows(self, rows: Rows, *, deleted: Marks | None = None) -> pa.RecordBatch:
        """The rows with the topic's columns, checked in every way in which an append checks them; RowError otherwise.

        They may be more than one append takes, but no single row is.
        """
        intake = self.files.intake()
        batch = intake.batch(rows, deletes=deleted is not None)
        checked, _ = intake.checked_rows(batch, deleted)
        for piece in intake.pieces(checked):
            intake.check_size(piece)
        return batch

    def partitions_of(self, rows: Rows) -> list[int]:
        """The partition of each row, by its key."""
        self._refuse_without_key("asked for the partition of a row")
        intake = self.files.intake()
        return [int(number) for number in intake.partition_numbers(intake.batch(rows, deletes=True))]

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, start: Start = "start", *, columns: Sequence[str] | None = None, deletes: bool = False) -> Result:
        """Everything from `start` to the present end: as dicts, Arrow, pandas or Polars, over the mapped files.

        Rows that only delete their key are left out. With `deletes` they are among the others, with null in all columns
        but the key, and the column `_deleted` tells them apart.
        """
        if deletes and DELETED in self.schema.names:
            raise DeclarationError(
                f"topic '{self.name}': it has a column '{DELETED}' of its own", hint="read topic.batches() instead"
            )
        batches = [batch.rows_marked if deletes else batch.rows_kept for batch in self.batches(start, columns=columns)]
        # Known only now: another process may have changed the schema while we were reading.
        fields = [self.schema.field(name).with_nullable(True) for name in self._columns(columns) or self.schema.names]
        schema = pa.schema([*fields, pa.field(DELETED, pa.bool_())] if deletes else fields)
        return Result(pa.Table.from_batches([conform(batch, schema) for batch in batches], schema=schema))

    def batches(
        self,
        start: Start = "start",
        *,
        until: Mapping[int, int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        """Batches from `start` up to `until` (exclusive; default: the present end), partition after partition."""
        positions = self.positions(start)
        ends = {number: self.files.end(number) for number in positions} if until is None else until
        for number in positions:
            yield from self._partition_batches(number, positions[number], ends.get(number, 0), self._columns(columns))

    def reader(
        self,
        start: Start = "start",
        *,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Reader:
        """A reader that goes on: `poll` returns what is there, or waits for more."""
        positions = self.positions(start, partitions=partitions)
        opened = {number: self.files.partition(number) for number in positions}
        return Reader(opened, self.files, positions, columns=self._columns(columns))

    def positions(self, start: Start, *, partitions: Sequence[int] | None = None) -> dict[int, int]:
        """For every partition (or those chosen) the offset that `start` means.

        It is an offset, 'start', 'end', offsets by partition, or a time: the first offset from which on an event of
        this time or later is found. That is event time where the topic has it, and append time otherwise.
        """
        numbers = list(start) if isinstance(start, Mapping) and partitions is None else partitions
        chosen = self.files.numbers if numbers is None else numbers
        for number in chosen:
            self.files.check_partition(number)
        return {number: self._position(number, start) for number in chosen}

    def _position(self, number: int, start: Start) -> int:
        if isinstance(start, Mapping):
            return self.files.check_offset(number, start[number]) if number in start else self.files.start(number)
        if isinstance(start, int):
            return self.files.check_offset(number, start)
        if start == "start":
            return self.files.start(number)
        if start == "end":
            return self.files.end(number)
        moment = parse_moment(start, where=f"topic '{self.name}'")
        return offset_at_time(self.files.partition(number), self.files, self.settings.time, moment)

    def starts(self) -> dict[int, int]:
        """The first offset of each partition that is kept."""
        return {number: self.files.start(number) for number in self.files.numbers}

    def ends(self) -> dict[int, int]:
        """The offset that the next row of each partition will get."""
        return {number: self.files.end(number) for number in self.files.numbers}

    def summaries(self, partition: int, start: int, until: int) -> Iterator[Headers]:
        """What the headers of frames tell about rows from `start` up to `until`. See `contracts.SummarisesRows`."""
        return self.files.headers(partition, start, until)

    def row_extent(self, partition: int, start: int, end: int, *, limit: int | None = None) -> Extent:
        """How many rows lie before some offsets. See `contracts.MeasuresExtents`."""
        return row_extent(self.files, partition, (start, end), limit)

    def byte_extent(self, partition: int, start: int, end: int, *, limit: int | None = None) -> Extent:
        """About how many bytes lie before some offsets. See `contracts.MeasuresExtents`."""
        return byte_extent(self.files.partition(partition), (start, end), limit)

    def _partition_batches(self, number: int, start: int, until: int, columns: Sequence[str] | None) -> Iterator[Batch]:
        partition = self.files.partition(number)
        reader = FrameReader(partition, start)
        try:
            tail = partition.tail()
            while (at := reader.next_offset) < min(until, tail.end_offset) and (frames := reader.read(tail)):
                for batch in read_batches(partition, self.files, frames, start_offset=at, columns=columns):
                    if batch.next_offset > until:
                        batch = batch.slice(0, int(np.searchsorted(batch.offsets, until)))
                    if len(batch):
                        yield batch
        finally:
            reader.close()

    def _columns(self, columns: Sequence[str] | None) -> list[str] | None:
        """None stays None: all columns, also those that another process adds meanwhile."""
        return None if columns is None else check_columns(columns, self.schema.names, where=f"topic '{self.name}'")

    # -- keeping it in order ------------------------------------------------------------------------------------------

    def compact(self, *, progress: Progress = lambda rows: None) -> list[Rewritten]:
        """Keep only the last row of each key, while others read and write.

        A delete marker goes once every group and every registered reader has passed it. On versioned topics it stays:
        it holds the number from which the key would go on. Rows that somebody holds stay as they are. What is returned
        tells how many rows and markers would have gone, and because of whom they stay.
        """
        self._refuse_without_key("compacted")
        choose = last_of_each_key(self.files.keys_of, drops_markers=not self.settings.versioned)
        return [self._rewrite(number, choose, progress, wait=COMPACT_WAIT_SECONDS) for number in self.files.numbers]

    def erase(
        self,
        key: Mapping[str, object],
        *,
        progress: Progress = lambda rows: None,
        wait: float = ERASE_WAIT_SECONDS,
    ) -> list[Rewritten]:
        """Remove every row of one key that is stored now, from all segments. Other rows keep their offsets.

        On versioned topics the key's versions are gone too: it begins again with 1. While somebody holds a row of the
        key this waits, at most `wait` seconds; then it raises UnavailableError, and nothing was removed.
        """
        self._refuse_without_key("erased from")
        where = f"topic '{self.name}'"
        if set(key) != set(self.settings.key):
            raise RowError(f"{where}: the key is {', '.join(self.settings.key)}; found {', '.join(key) or 'nothing'}")
        schema = pa.schema([self.schema.field(name) for name in self.settings.key])
        wanted = rows_to_batch([key], schema, where=where)
        number = int(partition_of(hash_keys(wanted.columns), self.settings.partitions)[0])
        return [self._rewrite(number, lambda frames: all_but(wanted), progress, wait=wait)]

    def erase_where(
        self, matches: RowFilter, *, progress: Progress = lambda rows: None, wait: float = ERASE_WAIT_SECONDS
    ) -> list[Rewritten]:
        """Remove every row that is stored now and matches. Only for a topic without a key, such as `<topic>.late`.

        With a key, removing some of its rows would bring back an older one: see `erase`.
        """
        if self.settings.key:
            key = ", ".join(self.settings.key)
            raise DeclarationError(f"topic '{self.name}': rows are erased by its key, {key}", hint="see Topic.erase")
        choose = all_except(matches)
        return [self._rewrite(number, lambda frames: choose, progress, wait=wait) for number in self.files.numbers]

    def expire(self) -> Expired:
        """Let go the segments that retention no longer keeps and nobody holds. Rolling a segment does this too."""
        parts = [self.files.writer(number).expire() for number in self.files.numbers]
        return Expired(
            sum(part.segments for part in parts),
            sum(part.held_segments for part in parts),
            tuple(sorted({owner for part in parts for owner in part.held_by})),
        )

    def verify(self, progress: Progress = lambda count: None) -> list[Verified]:
        """Check every stored byte."""
        return [verify_partition(self.files.partition(number), progress) for number in self.files.numbers]

    def statistics(self) -> list[Statistics]:
        return [partition_statistics(self.files.partition(number)) for number in self.files.numbers]

    def _rewrite(self, number: int, choose: Choose, progress: Progress, *, wait: float) -> Rewritten:
        return rewrite(
            self.files.writer(number),
            self.files,
            choose,
            segment_bytes=self.settings.segment_bytes,
            time_column=self.settings.time,
            progress=progress,
            wait=wait,
        )

    def _refuse_without_key(self, done: str) -> None:
        if not self.settings.key:
            raise DeclarationError(f"topic '{self.name}': it cannot be {done}; it has no key")

    def close(self, *, why: str = "its log is closed") -> None:
        self.appender.close()
        self.files.close(why=why)


def parse_moment(moment: str | datetime, *, where: str) -> int:
    """Microseconds since 1970 of a time, given as datetime or in ISO 8601; without a zone it is taken as UTC."""
    try:
        moment = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        raise _no_position(moment, where) from None
    if not isinstance(moment, datetime):
        raise _no_position(moment, where)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _no_position(found: object, where: str) -> DeclarationError:
    return DeclarationError(
        f"{where}: {found!r} is not a position",
        hint="give 'start', 'end', an offset, or a time such as 2026-01-31T12:00:00Z",
    )
