"""Appending to a topic: rows are checked, sorted by partition, and stored in all partitions at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from penstock.errors import DeclarationError, PartlyStoredError, PenstockError, UnknownOutcomeError
from penstock.log.frame import ANONYMOUS, Stamp, encode
from penstock.log.intake import Intake, Marks, Rows
from penstock.log.pending_write import Appended, Request
from penstock.log.topic_files import TopicFiles
from penstock.log.writer import COALESCE_ROWS

# The partitions of one append are written beside each other by at most so many threads.
MOST_THREADS = 8


class Appender:
    """Turns rows into requests to partitions, for appends, producers and transactions, and stores them."""

    def __init__(self, files: TopicFiles) -> None:
        self._files = files
        self._guard = threading.Lock()
        self._next_partition = 0
        self._threads: ThreadPoolExecutor | None = None

    # -- from rows to requests ----------------------------------------------------------------------------------------

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
        schemas = self._files.schemas  # once: another thread may find a newer one meanwhile
        intake = self._files.intake(schemas[-1])
        batch, flags = intake.checked_rows(rows, deleted)
        key = intake.only_key(batch, expect) if expect is not None else ""
        if batch.num_rows == 0:
            return {}
        parts = self._split(intake, batch, partition, stamp)
        for part in parts.values():
            intake.check_size(part)
        return {number: Request(part, len(schemas), flags, stamp, expect, key) for number, part in parts.items()}

    def requests_in_pieces(
        self, rows: Rows, *, deleted: Marks | None = None, most_bytes: int | None = None
    ) -> Iterator[dict[int, Request]]:
        """The same for rows that may be too many for one frame of a partition: as many requests as they need.

        With `most_bytes`, no request has more than about so many, unless it is one row.
        """
        schemas = self._files.schemas
        intake = self._files.intake(schemas[-1])
        batch, flags = intake.checked_rows(rows, deleted)
        for piece in intake.pieces(batch, most_bytes) if batch.num_rows else ():
            parts = self._split(intake, piece, None, ANONYMOUS)
            for part in parts.values():
                intake.check_size(part)
            yield {number: Request(part, len(schemas), flags) for number, part in parts.items()}

    def encode_large(self, request: Request) -> None:
        """Encode a large request before it gets to the lock, so that nobody waits for that."""
        settings = self._files.settings
        if request.batch.num_rows > COALESCE_ROWS and request.body is None and not settings.versioned:
            request.body = encode(
                request.batch, schema_id=request.schema_id, time_column=settings.time, flags=request.flags
            )

    def _split(
        self, intake: Intake, batch: pa.RecordBatch, partition: int | None, stamp: Stamp
    ) -> dict[int, pa.RecordBatch]:
        """By key; without one the whole batch goes to the partition that was asked for, or that is next."""
        if partition is not None:
            self._files.check_partition(partition)
            if intake.settings.key:
                raise DeclarationError(f"{intake.where}: its key decides the partition; none may be given")
            return {partition: batch}
        return intake.split(batch) if intake.settings.key else {self._turn(stamp): batch}

    def _turn(self, stamp: Stamp) -> int:
        """Which partition is next. A repeat of a producer's sequence must go where the first attempt went."""
        count = self._files.settings.partitions
        if stamp.producer:
            return stamp.sequence % count
        with self._guard:
            turn = self._next_partition
            self._next_partition = (turn + 1) % count
        return turn

    # -- storing them -------------------------------------------------------------------------------------------------

    def store(self, requests: Mapping[int, Request]) -> list[Appended]:
        """Hand requests to their partitions, all at once: they write and sync beside each other."""
        if not requests:
            return []
        first, *rest = requests.items()
        waiting = [self._pool().submit(self._store, number, request) for number, request in rest]
        outcomes = [self._store(*first), *(future.result() for future in waiting)]
        stored = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
        errors = [outcome for outcome in outcomes if isinstance(outcome, PenstockError)]
        if not errors:
            return stored
        # Where the outcome of a part is unknown, so is that of the whole.
        worst = next((error for error in errors if isinstance(error, UnknownOutcomeError)), errors[0])
        if not stored:
            raise worst
        raise PartlyStoredError(
            f"{worst.message}. Of {len(requests)} partitions, these were stored: "
            + ", ".join(str(appended.partition) for appended in stored),
            stored=stored,
            hint="append as a named producer, or in a transaction, and a repeat stores nothing twice",
        ) from worst

    def _store(self, number: int, request: Request) -> Appended | PenstockError:
        try:
            self.encode_large(request)
            return self._files.writer(number).append(request)
        except PenstockError as error:
            return error

    def _pool(self) -> ThreadPoolExecutor:
        with self._guard:
            if self._threads is None:
                workers = min(self._files.settings.partitions - 1, MOST_THREADS)
                self._threads = ThreadPoolExecutor(workers, thread_name_prefix=f"penstock-{self._files.name}")
            return self._threads

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
