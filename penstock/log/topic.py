"""A topic: a name, a typed schema, a key, an event-time column, and N partitions to append to and read from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.errors import (
    DamagedError,
    DeclarationError,
    PartlyStoredError,
    PenstockError,
    RangeError,
    RowError,
    UnknownOutcomeError,
)
from penstock.log.catalog import Catalog
from penstock.log.conversion import SharedConversion
from penstock.log.ddl import closest, to_ddl
from penstock.log.description import (
    DESCRIPTION_NAME,
    TopicSettings,
    check_topic,
    load_description,
    partition_directory,
    store_description,
)
from penstock.log.files import Files, disk_errors, draft_of
from penstock.log.frame import ANONYMOUS, Stamp, encode
from penstock.log.hashing import hash_keys, partition_of
from penstock.log.headers import HeaderReader, Headers
from penstock.log.holds import HeldRange, Holds, PartitionHolds
from penstock.log.intake import Intake, Marks, Rows
from penstock.log.partition import LOCK_NAME, Partition
from penstock.log.pending_write import Appended, Request
from penstock.log.reader import Batch, FrameReader, Reader, offset_at_time, read_batches
from penstock.log.retention import Expired, Retention
from penstock.log.rewrite import (
    COMPACT_WAIT_SECONDS,
    ERASE_WAIT_SECONDS,
    Choose,
    Progress,
    Rewritten,
    all_but,
    last_of_each_key,
    rewrite,
)
from penstock.log.rows import rows_to_batch
from penstock.log.schema import conform, evolve, parse_schema
from penstock.log.verify import Statistics, Verified, partition_statistics, verify_partition
from penstock.log.versions import Keys
from penstock.log.writer import COALESCE_ROWS, PartitionWriter, WriterSettings

# The partitions of one append are written beside each other by at most so many threads.
MOST_THREADS = 8

Start = int | str | datetime | Mapping[int, int]


class Topic:
    """A topic of an open log. Made by `Log.topic` and `Log.create_topic`; safe to use from many threads."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        catalog: Catalog,
        clock: Callable[[], float] = time.time,
        *,
        holds: Holds | None = None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._catalog = catalog
        self._holds = holds or Holds(files, directory.parent.parent)
        self._clock = clock
        self._guard = threading.Lock()
        self._load()
        self._partitions: dict[int, Partition] = {}
        self._writers: dict[int, PartitionWriter] = {}
        self._conversion = SharedConversion()
        self._next_partition = 0
        self._threads: ThreadPoolExecutor | None = None
        self._closed: str | None = None

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def settings(self) -> TopicSettings:
        return self.description.settings

    @property
    def schema(self) -> pa.Schema:
        """The newest schema."""
        return self._schemas[-1]

    def version(self, schema_id: int) -> pa.Schema:
        """The schema with this number; looked up again on disk when another process added it."""
        if schema_id > len(self._schemas):
            self._load()
        if not 1 <= schema_id <= len(self._schemas):
            raise DamagedError(f"topic '{self.name}': a frame was written with schema {schema_id}, which is not stored")
        return self._schemas[schema_id - 1]

    def evolve(self, schema: str | pa.Schema) -> pa.Schema:
        """Change the schema: new nullable columns and wider types. Old rows stay and read as the new schema."""
        with self._changing():
            evolved = evolve(self.schema, parse_schema(schema), keys=self.settings.key)
            if evolved != self.schema:
                schemas = (*self.description.schemas, to_ddl(evolved))
                store_description(self._files, self._directory, replace(self.description, schemas=schemas))
        return self.schema

    def retain(self, retention: Retention) -> None:
        """Change how much is kept. Writers go by it from their next segment on; `expire` does so now."""
        with self._changing():
            settings = replace(self.settings, retention_seconds=retention.seconds, retention_bytes=retention.bytes)
            check_topic(self.name, self.schema, settings)
            store_description(self._files, self._directory, replace(self.description, settings=settings))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the description, one process at a time, from what is stored to what is stored."""
        lock_path = self._directory / LOCK_NAME
        with self._guard, disk_errors(f"topic '{self.name}'"), closing(self._files.lock(lock_path)) as lock:
            lock.acquire()
            self._load()
            yield
            self._load()

    def _retention(self) -> Retention:
        """As it is stored: another process may have changed it."""
        self._load()
        return Retention(self.settings.retention_seconds, self.settings.retention_bytes)

    def _load(self) -> None:
        self.description = load_description(self._files, self._directory)
        self._schemas = [parse_schema(text) for text in self.description.schemas]

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

        Without a key the whole call goes to one partition, the next in turn. `deleted` marks rows that delete their
        key. `expect` (versioned topics, rows of one key) stores them only if that key's last version is this; 0 means
        it has none. The rows of one partition are stored together or not at all.
        """
        requests = self.requests(rows, deleted=deleted, partition=partition, expect=expect)
        return self.store(requests)

    def delete(self, keys: Rows) -> list[Appended]:
        """Store delete markers for these keys: rows of which only the key (and the event time, if given) counts."""
        batch = self._intake(self.schema).batch(keys, deletes=True)
        return self.append(batch, deleted=pa.array(np.ones(batch.num_rows, dtype=np.bool_)))

    def store(self, requests: Mapping[int, Request]) -> list[Appended]:
        """Hand requests to their partitions, all at once: they write and sync beside each other."""
        if not requests:
            return []
        first, *others = requests.items()
        waiting = [self._pool().submit(self._store, number, request) for number, request in others]
        outcomes: list[Appended | PenstockError] = [self._store(*first)]
        outcomes += [one.result() for one in waiting]
        stored = [one for one in outcomes if isinstance(one, Appended)]
        errors = [one for one in outcomes if isinstance(one, PenstockError)]
        if not errors:
            return stored
        # Where one outcome is unknown, so is that of the whole.
        worst = next((one for one in errors if isinstance(one, UnknownOutcomeError)), errors[0])
        if not stored:
            raise worst
        raise PartlyStoredError(
            f"{worst.message}. Of {len(requests)} partitions, these were stored: "
            + ", ".join(str(one.partition) for one in stored),
            stored=stored,
            hint="append as a named producer, or in a transaction, and a repeat stores nothing twice",
        ) from worst

    def _store(self, number: int, request: Request) -> Appended | PenstockError:
        try:
            self.prepare(request)
            return self.writer(number).append(request)
        except PenstockError as error:
            return error

    def prepare(self, request: Request) -> None:
        """Encode a large request before it gets to the lock, so that nobody waits for that."""
        if request.batch.num_rows > COALESCE_ROWS and request.body is None and not self.settings.versioned:
            request.body = encode(
                request.batch, schema_id=request.schema_id, time_column=self.settings.time, flags=request.flags
            )

    def _pool(self) -> ThreadPoolExecutor:
        with self._guard:
            if self._threads is None:
                workers = min(self.settings.partitions - 1, MOST_THREADS)
                self._threads = ThreadPoolExecutor(workers, thread_name_prefix=f"penstock-{self.name}")
            return self._threads

    def requests(
        self,
        rows: Rows,
        *,
        deleted: Marks | None = None,
        partition: int | None = None,
        expect: int | None = None,
        stamp: Stamp = ANONYMOUS,
    ) -> dict[int, Request]:
        """Check rows and sort them by partition: what `store` and transactions take."""
        schemas = self._schemas
        intake = self._intake(schemas[-1])
        batch, flags = intake.checked(rows, deleted)
        key = intake.only_key(batch, expect) if expect is not None else ""
        if batch.num_rows == 0:
            return {}
        parts = self._split(intake, batch, partition, stamp)
        for part in parts.values():
            intake.check_size(part)
        return {number: Request(part, len(schemas), flags, stamp, expect, key) for number, part in parts.items()}

    def requests_in_pieces(self, rows: Rows, *, deleted: Marks | None = None) -> Iterator[dict[int, Request]]:
        """The same for rows that may be too many for one frame of a partition: as many requests as they need."""
        schemas = self._schemas
        intake = self._intake(schemas[-1])
        batch, flags = intake.checked(rows, deleted)
        for piece in intake.pieces(batch) if batch.num_rows else ():
            parts = self._split(intake, piece, None, ANONYMOUS)
            for part in parts.values():
                intake.check_size(part)
            yield {number: Request(part, len(schemas), flags) for number, part in parts.items()}

    def fitted_rows(self, rows: Rows, *, deleted: Marks | None = None) -> pa.RecordBatch:
        """The rows with the topic's columns, checked in every way in which an append checks them; RowError otherwise.

        They may be more than one append takes, but no single row is.
        """
        intake = self._intake(self.schema)
        batch = intake.batch(rows, deletes=deleted is not None)
        checked, _ = intake.checked(batch, deleted)
        for piece in intake.pieces(checked):
            intake.check_size(piece)
        return batch

    def partitions_of(self, rows: Rows) -> list[int]:
        """The partition of each row, by its key."""
        self._refuse_without_key("asked for the partition of a row")
        intake = self._intake(self.schema)
        return [int(number) for number in intake.partition_numbers(intake.batch(rows, deletes=True))]

    def _split(
        self, intake: Intake, batch: pa.RecordBatch, partition: int | None, stamp: Stamp
    ) -> dict[int, pa.RecordBatch]:
        """By key; without one the whole batch goes to the partition that was asked for, or that is next."""
        if partition is not None:
            self._check_partition(partition)
            if self.settings.key:
                raise DeclarationError(f"topic '{self.name}': its key decides the partition; none may be given")
            return {partition: batch}
        return intake.split(batch) if self.settings.key else {self._turn(stamp): batch}

    def _turn(self, stamp: Stamp) -> int:
        """Which partition is next. A repeat of a producer's sequence must go where the first attempt went."""
        if stamp.producer:
            return stamp.sequence % self.settings.partitions
        with self._guard:
            turn = self._next_partition
            self._next_partition = (turn + 1) % self.settings.partitions
        return turn

    def keys_of(self, batch: pa.RecordBatch) -> Keys:
        """The keys of stored rows, told apart by two hashes."""
        return self._intake(self.schema).keys_of(batch)

    def _intake(self, schema: pa.Schema) -> Intake:
        return Intake(self.name, schema, self.settings, self._conversion)

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, start: Start = "start", *, columns: Sequence[str] | None = None) -> pa.Table:
        """Everything from `start` to the present end, as one Arrow table over the mapped files.

        Delete markers are left out; `batches` has them.
        """
        batches = [batch.rows_kept for batch in self.batches(start, columns=columns)]
        # Known only now: another process may have changed the schema while we were reading.
        names = self._columns(columns) or self.schema.names
        schema = pa.schema([self.schema.field(name).with_nullable(True) for name in names])
        return pa.Table.from_batches([conform(batch, schema) for batch in batches], schema=schema)

    def batches(
        self,
        start: Start = "start",
        *,
        until: Mapping[int, int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        """Batches from `start` up to `until` (exclusive; default: the present end), partition after partition."""
        positions = self.positions(start)
        ends = {number: self.end(number) for number in positions} if until is None else until
        for number in positions:
            yield from self._partition_batches(number, positions[number], ends.get(number, 0), self._columns(columns))

    def headers(self, number: int, start: int, until: int) -> Iterator[Headers]:
        """The headers of the frames of a partition that hold rows from `start` up to `until`, many at a time.

        Frames are whole: the first and the last may hold rows outside the range. No body is read or checked.
        """
        partition = self.partition(number)
        with closing(HeaderReader(partition, start)) as reader:
            tail = partition.tail()
            while len(found := reader.read_headers(tail, until)):
                yield found

    def reader(
        self,
        start: Start = "start",
        *,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Reader:
        """A reader that goes on: `poll` returns what is there, or waits for more."""
        positions = self.positions(start, partitions=partitions)
        opened = {number: self.partition(number) for number in positions}
        return Reader(opened, self, positions, columns=self._columns(columns))

    def positions(self, start: Start, *, partitions: Sequence[int] | None = None) -> dict[int, int]:
        """For every partition (or those chosen) the offset that `start` means.

        It is an offset, 'start', 'end', offsets by partition, or a time: the first offset from which on an event of
        this time or later is found. That is event time where the topic has it, and append time otherwise.
        """
        numbers = list(start) if isinstance(start, Mapping) and partitions is None else partitions
        chosen = range(self.settings.partitions) if numbers is None else numbers
        for number in chosen:
            self._check_partition(number)
        return {number: self._position(number, start) for number in chosen}

    def _position(self, number: int, start: Start) -> int:
        if isinstance(start, Mapping):
            return self._check_offset(number, start[number]) if number in start else self.start(number)
        if isinstance(start, int):
            return self._check_offset(number, start)
        if start == "start":
            return self.start(number)
        if start == "end":
            return self.end(number)
        moment = parse_moment(start, where=f"topic '{self.name}'")
        return offset_at_time(self.partition(number), self, self.settings.time, moment)

    def start(self, number: int) -> int:
        """The first offset of a partition that is kept."""
        partition = self.partition(number)
        return partition.manifest(partition.tail().generation).start_offset

    def end(self, number: int) -> int:
        """The offset the next row of a partition will get."""
        return self.partition(number).tail().end_offset

    def starts(self) -> dict[int, int]:
        return {number: self.start(number) for number in range(self.settings.partitions)}

    def ends(self) -> dict[int, int]:
        return {number: self.end(number) for number in range(self.settings.partitions)}

    def _partition_batches(self, number: int, start: int, until: int, columns: Sequence[str] | None) -> Iterator[Batch]:
        partition = self.partition(number)
        reader = FrameReader(partition, start)
        try:
            tail = partition.tail()
            while (at := reader.next_offset) < min(until, tail.end_offset) and (frames := reader.read(tail)):
                for batch in read_batches(partition, self, frames, start_offset=at, columns=columns):
                    if batch.next_offset > until:
                        batch = batch.slice(0, int(np.searchsorted(batch.offsets, until)))
                    if len(batch):
                        yield batch
        finally:
            reader.close()

    def _columns(self, columns: Sequence[str] | None) -> list[str] | None:
        columns = [columns] if isinstance(columns, str) else columns
        for name in columns or ():
            if name not in self.schema.names:
                raise DeclarationError(
                    f"topic '{self.name}': there is no column '{name}'; it has {', '.join(self.schema.names)}",
                    hint=closest(name, self.schema.names),
                )
        return None if columns is None else list(columns)

    def check_offsets(self, offsets: Mapping[int, int]) -> None:
        """Refuse to commit offsets of partitions that are not there, or behind their end."""
        for number, offset in offsets.items():
            self._check_partition(number)
            if not 0 <= offset <= self.end(number):
                raise RangeError(
                    f"topic '{self.name}' partition {number}: offset {offset} cannot be committed; "
                    f"the end is {self.end(number)}"
                )

    def is_of(self, root: Path) -> bool:
        """Whether this is a topic of the log in that folder."""
        mine = self._directory.parent.parent
        return mine == root or mine.samefile(root)

    def _check_offset(self, number: int, offset: int) -> int:
        first, end = self.start(number), self.end(number)
        if not first <= offset <= end:
            raise RangeError(
                f"topic '{self.name}' partition {number}: offset {offset} is not there; it has {first} to {end}",
                hint="read from 'start', 'end', a time, or an offset in that range; offsets count per partition",
            )
        return offset

    def _check_partition(self, number: int) -> None:
        count = self.settings.partitions
        if not 0 <= number < count:
            raise RangeError(f"topic '{self.name}': partition {number} does not exist; it has {count} (0-{count - 1})")

    # -- keeping it in order ------------------------------------------------------------------------------------------

    def compact(self, *, progress: Progress = lambda rows: None) -> list[Rewritten]:
        """Keep only the last row of each key, while others read and write.

        A delete marker goes once every group and every registered reader has passed it. On versioned topics it stays:
        it holds the number from which the key would go on. Rows that somebody holds stay as they are. What is returned
        tells how many rows and markers would have gone, and because of whom they stay.
        """
        self._refuse_without_key("compacted")
        choose = last_of_each_key(self.keys_of, drops_markers=not self.settings.versioned)
        return [
            self._rewrite(number, choose, progress, wait=COMPACT_WAIT_SECONDS)
            for number in range(self.settings.partitions)
        ]

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

    def expire(self) -> Expired:
        """Let go the segments that retention no longer keeps and nobody holds. Rolling a segment does this too."""
        parts = [self.writer(number).expire() for number in range(self.settings.partitions)]
        return Expired(
            sum(part.segments for part in parts),
            sum(part.held_segments for part in parts),
            tuple(sorted({owner for part in parts for owner in part.held_by})),
        )

    def held_ranges(self, ranges: Mapping[int, tuple[int, int]]) -> list[HeldRange]:
        """What a hold on these rows would store. Refused if some are gone. Only while holds are locked."""
        for number, (start, end) in ranges.items():
            self._check_partition(number)
            if not 0 <= start <= end:
                raise RangeError(f"topic '{self.name}' partition {number}: rows {start} to {end} cannot be held")
            # Only the manifest: asking the tail might wait for the partition, whose owner may wait for holds.
            tail = self.partition(number).tail_file.read()
            first = self.partition(number).manifest(tail.generation if tail else None).start_offset
            if start < end and start < first:
                raise RangeError(
                    f"topic '{self.name}' partition {number}: offset {start} cannot be held, it is gone; "
                    f"what is kept begins at offset {first}",
                    hint=f"hold rows from offset {first} on, or raise the topic's retention",
                )
        topic_id = self.description.id
        return [HeldRange(self.name, topic_id, number, start, end) for number, (start, end) in ranges.items()]

    def verify(self, progress: Progress = lambda count: None) -> list[Verified]:
        """Check every stored byte."""
        numbers = range(self.settings.partitions)
        return [verify_partition(self.partition(number), progress) for number in numbers]

    def statistics(self) -> list[Statistics]:
        return [partition_statistics(self.partition(number)) for number in range(self.settings.partitions)]

    def _rewrite(self, number: int, choose: Choose, progress: Progress, *, wait: float) -> Rewritten:
        return rewrite(
            self.writer(number),
            self,
            choose,
            segment_bytes=self.settings.segment_bytes,
            time_column=self.settings.time,
            progress=progress,
            wait=wait,
        )

    def _refuse_without_key(self, done: str) -> None:
        if not self.settings.key:
            raise DeclarationError(f"topic '{self.name}': it cannot be {done}; it has no key")

    # -- its partitions -----------------------------------------------------------------------------------------------

    def partition(self, number: int) -> Partition:
        with self._guard:
            if self._closed is not None:
                raise DeclarationError(f"topic '{self.name}': {self._closed}", hint="open the log or the topic again")
            if number not in self._partitions:
                with disk_errors(f"topic '{self.name}' partition {number}"):
                    self._partitions[number] = Partition(
                        self._files,
                        self._directory / partition_directory(number),
                        topic=self.name,
                        topic_id=bytes.fromhex(self.description.id),
                        number=number,
                        outcomes=self._catalog.outcome,
                        holds=PartitionHolds(
                            self._holds,
                            self.description.id,
                            number,
                            groups=lambda: self._catalog.group_positions(self.name),
                        ),
                    )
            return self._partitions[number]

    def writer(self, number: int) -> PartitionWriter:
        partition = self.partition(number)
        with self._guard:
            if not self._writers:
                self._remove_draft()
            if number not in self._writers:
                with disk_errors(partition.where):
                    self._writers[number] = PartitionWriter(partition, self, self._writer_settings(), clock=self._clock)
            return self._writers[number]

    def _remove_draft(self) -> None:
        """Remove what a process left that was killed while it changed the description."""
        draft = draft_of(self._directory / DESCRIPTION_NAME)
        if self._files.exists(draft):
            with disk_errors(f"topic '{self.name}'"), closing(self._files.lock(self._directory / LOCK_NAME)) as lock:
                lock.acquire()
                self._files.remove(draft)

    def _writer_settings(self) -> WriterSettings:
        settings = self.settings
        return WriterSettings(
            durability=settings.durability,
            segment_bytes=settings.segment_bytes,
            time_column=settings.time,
            retention=self._retention,
            keys_of=self.keys_of if settings.versioned else None,
        )

    def close(self, *, why: str = "its log is closed") -> None:
        if self._threads is not None:
            self._threads.shutdown()
        with self._guard:
            for writer in self._writers.values():
                writer.close()
            for partition in self._partitions.values():
                partition.close()
            self._writers, self._partitions = {}, {}
            self._closed = why


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
