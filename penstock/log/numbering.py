"""Numbering: on versioned topics every row gets its key's next version, and an append can depend on the last one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.errors import ConflictError
from penstock.log.frame import VERSION_COLUMN, decode
from penstock.log.partition import Partition
from penstock.log.pending_write import PendingWrite, Request
from penstock.log.reader import FrameReader, Schemas
from penstock.log.tail import Tail
from penstock.log.versions import Keys, KeyVersions

KeysOf = Callable[[pa.RecordBatch], Keys]


class Numbering:
    """The versions of one partition's keys, used by its writer under the partition's lock."""

    def __init__(self, partition: Partition, schemas: Schemas, keys_of: KeysOf) -> None:
        self._partition = partition
        self._schemas = schemas
        self._keys_of = keys_of
        self._versions: KeyVersions | None = None

    def number(self, request: Request, plan: PendingWrite) -> pa.RecordBatch:
        """The request's rows with their versions, if its key stands where the request expects it."""
        versions = self._catch_up(plan)
        keys = self._keys_of(request.batch)
        numbers = versions.number(keys)
        actual = int(numbers[0]) - 1
        if request.expect is not None and actual != request.expect:
            raise ConflictError(
                f"{self._partition.where}: key {request.key} is at version {actual}; expected {request.expect}",
                expected=request.expect,
                actual=actual,
                hint="read the key's events again and decide again",
            )
        versions.store(keys, numbers, next_offset=plan.next_offset + len(keys))
        return request.batch.append_column(VERSION_COLUMN, pa.array(numbers))

    def forget(self) -> None:
        """Rows that were numbered have not been stored: begin again from what is on disk."""
        self._versions = None

    def save(self, tail: Tail) -> None:
        """Spare the next process a scan. Versions of rows that a power loss may still take must not outlive them."""
        if self._versions is not None and self._versions.next_offset <= tail.durable_offset:
            self._versions.save(self._partition.files, self._partition.directory)

    def _catch_up(self, plan: PendingWrite) -> KeyVersions:
        """The versions up to the end of the plan so far: saved ones, and what was appended since."""
        tail, partition = plan.start, self._partition
        rewrites = partition.manifest(tail.generation).rewrites
        versions = self._versions
        if versions is None or versions.rewrites != rewrites:
            versions = KeyVersions.load(partition.files, partition.directory, rewrites=rewrites)
        if versions.next_offset > plan.next_offset:
            versions = KeyVersions(rewrites=rewrites)
        if versions.next_offset < tail.end_offset:
            self._read(versions, tail)
        self._versions = versions
        return versions

    def _read(self, versions: KeyVersions, tail: Tail) -> None:
        start = self._partition.manifest(tail.generation).start_offset
        reader = FrameReader(self._partition, max(versions.next_offset, start))
        while frames := reader.read(tail):
            for header, body in frames:
                batch = decode(header, body, self._schemas.version(header.schema_id))
                numbers = batch.column(VERSION_COLUMN).to_numpy()
                versions.store(self._keys_of(batch), numbers, next_offset=header.next_offset)
        reader.close()
        versions.next_offset = tail.end_offset
