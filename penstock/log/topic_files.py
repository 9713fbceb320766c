"""What lies on disk of a topic: its description with all schemas, and its partitions with their writers.

`Topic` is what users see; producers, transactions, groups and rewrites work with this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyarrow as pa

from penstock.contracts import HeldRange, TopicSettings
from penstock.errors import DamagedError, DeclarationError, RangeError
from penstock.log.catalog import Catalog
from penstock.log.conversion import SharedConversion
from penstock.log.description import (
    DESCRIPTION_NAME,
    Description,
    load_description,
    partition_directory,
    store_description,
)
from penstock.log.headers import HeaderReader, Headers
from penstock.log.holds import Holds, PartitionHolds
from penstock.log.intake import Intake
from penstock.log.partition import LOCK_NAME, Partition
from penstock.log.retention import Retention
from penstock.log.versions import Keys
from penstock.log.writer import PartitionWriter, WriterSettings
from penstock.schema.arrow import parse_schema
from penstock.storage.files import Files, disk_errors, draft_of


class TopicFiles:
    """The files of one topic of an open log. Safe to use from many threads."""

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
        self._conversion = SharedConversion()
        self._partitions: dict[int, Partition] = {}
        self._writers: dict[int, PartitionWriter] = {}
        self._closed: str | None = None
        self._load()

    def _load(self) -> None:
        self.description = load_description(self._files, self._directory)
        self.schemas = [parse_schema(text) for text in self.description.schemas]

    # -- the description ----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def settings(self) -> TopicSettings:
        return self.description.settings

    @property
    def numbers(self) -> range:
        """The numbers of all partitions."""
        return range(self.settings.partitions)

    @property
    def schema(self) -> pa.Schema:
        """The newest schema."""
        return self.schemas[-1]

    def version(self, schema_id: int) -> pa.Schema:
        """The schema with this number; looked up again on disk when another process added it."""
        if schema_id > len(self.schemas):
            self._load()
        if not 1 <= schema_id <= len(self.schemas):
            raise DamagedError(f"topic '{self.name}': a frame was written with schema {schema_id}, which is not stored")
        return self.schemas[schema_id - 1]

    def change_description(self, change: Callable[[Description], Description]) -> None:
        """Change what is stored about the topic, one process at a time. `change` gets it as it is stored now."""
        lock_path = self._directory / LOCK_NAME
        with self._guard, disk_errors(f"topic '{self.name}'"), closing(self._files.lock(lock_path)) as lock:
            lock.acquire()
            self._load()
            changed = change(self.description)
            if changed != self.description:
                store_description(self._files, self._directory, changed)
                self._load()

    def intake(self, schema: pa.Schema | None = None) -> Intake:
        """Checks rows against a schema of the topic; without one, against the newest."""
        return Intake(self.name, schema or self.schema, self.settings, self._conversion)

    def keys_of(self, batch: pa.RecordBatch) -> Keys:
        """The keys of stored rows, distinguished by two hashes."""
        return self.intake().keys_of(batch)

    def is_in_log(self, root: Path) -> bool:
        """Whether this is a topic of the log in that folder."""
        own = self._directory.parent.parent
        return own == root or own.samefile(root)

    # -- partitions ---------------------------------------------------------------------------------------------------

    def partition(self, number: int) -> Partition:
        with self._guard:
            if self._closed is not None:
                raise DeclarationError(f"topic '{self.name}': {self._closed}", hint="open the log or the topic again")
            if number not in self._partitions:
                with disk_errors(f"topic '{self.name}' partition {number}"):
                    self._partitions[number] = self._open_partition(number)
            return self._partitions[number]

    def _open_partition(self, number: int) -> Partition:
        holds = PartitionHolds(
            self._holds, self.description.id, number, groups=lambda: self._catalog.group_positions(self.name)
        )
        return Partition(
            self._files,
            self._directory / partition_directory(number),
            topic=self.name,
            topic_id=bytes.fromhex(self.description.id),
            number=number,
            outcomes=self._catalog.outcome,
            holds=holds,
        )

    def writer(self, number: int) -> PartitionWriter:
        partition = self.partition(number)
        with self._guard:
            if not self._writers:
                self._remove_draft()
            if number not in self._writers:
                with disk_errors(partition.where):
                    self._writers[number] = PartitionWriter(partition, self, self._writer_settings(), clock=self._clock)
            return self._writers[number]

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the locks of all partitions: nobody is in the middle of an append."""
        with ExitStack() as locks:
            for number in self.numbers:
                locks.enter_context(self.writer(number).exclusive())
            yield

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
            retention=self._stored_retention,
            keys_of=self.keys_of if settings.versioned else None,
        )

    def _stored_retention(self) -> Retention:
        """As it is stored: another process may have changed it."""
        self._load()
        return Retention(self.settings.retention_seconds, self.settings.retention_bytes)

    # -- offsets ------------------------------------------------------------------------------------------------------

    def start(self, number: int) -> int:
        """The first offset of a partition that is kept."""
        partition = self.partition(number)
        return partition.manifest(partition.tail().generation).start_offset

    def end(self, number: int) -> int:
        """The offset the next row of a partition will get."""
        return self.partition(number).tail().end_offset

    def headers(self, number: int, start: int, until: int) -> Iterator[Headers]:
        """The headers of the frames of a partition that hold rows from `start` up to `until`, many at a time.

        Frames are whole: the first and the last may hold rows outside the range. No body is read or checked.
        """
        partition = self.partition(number)
        with closing(HeaderReader(partition, start)) as reader:
            tail = partition.tail()
            while len(found := reader.read_headers(tail, until)):
                yield found

    def check_partition(self, number: int) -> None:
        count = self.settings.partitions
        if not 0 <= number < count:
            raise RangeError(f"topic '{self.name}': partition {number} does not exist; it has {count} (0-{count - 1})")

    def check_offset(self, number: int, offset: int) -> int:
        """The offset itself, if it can be read from."""
        first, end = self.start(number), self.end(number)
        if not first <= offset <= end:
            raise RangeError(
                f"topic '{self.name}' partition {number}: offset {offset} does not exist; it has {first} to {end}",
                hint="read from 'start', 'end', a time, or an offset in that range; offsets count per partition",
            )
        return offset

    def check_commit(self, offsets: Mapping[int, int]) -> None:
        """Refuse to commit offsets of partitions that do not exist, or behind their end."""
        for number, offset in offsets.items():
            self.check_partition(number)
            if not 0 <= offset <= self.end(number):
                raise RangeError(
                    f"topic '{self.name}' partition {number}: offset {offset} cannot be committed; "
                    f"the end is {self.end(number)}"
                )

    def held_ranges(self, ranges: Mapping[int, tuple[int, int]]) -> list[HeldRange]:
        """What a hold on these rows would store. Refused if some are gone. Only while holds are locked."""
        for number, (start, end) in ranges.items():
            self.check_partition(number)
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

    # -- closing ------------------------------------------------------------------------------------------------------

    def close(self, *, why: str) -> None:
        with self._guard:
            for writer in self._writers.values():
                writer.close()
            for partition in self._partitions.values():
                partition.close()
            self._writers, self._partitions = {}, {}
            self._closed = why
