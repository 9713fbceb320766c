"""A transaction: appends to several topics and partitions, and a group's offsets, all visible or none.

Appends are collected in memory, or set aside (see `set_aside`) where they may be more; committing takes these steps:

1. Hold the producer, if it has a name, and lock all partitions, always in the same order.
2. Write the frames behind the end of each partition and sync them. In all partitions they get the same append time.
3. Publish each partition's new end as pending on this transaction. Readers still see the old end.
4. Record the transaction, the group's offsets and the writer's position in the catalogue, in one change. This is the
   commit: every reader that meets a pending end asks the catalogue, so all partitions become visible together.
5. Publish the ends as plain ones, and unlock.

A crash before 4 leaves frames that no reader saw; whoever next locks a partition cuts them. A crash after 4 leaves
pending ends that are as good as plain ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import TracebackType

from penstock.calls import answer_methods
from penstock.errors import DeclarationError, FencedError, PenstockError, RowError
from penstock.log.catalog import Catalog, record_position, record_sequence, record_transaction
from penstock.log.frame import ANONYMOUS, NO_SEQUENCE, Stamp
from penstock.log.groups import Member, TopicByName, store_offsets
from penstock.log.intake import Marks, Rows
from penstock.log.partition import Partition
from penstock.log.pending_write import Appended, Request, Staged
from penstock.log.producer import Producer
from penstock.log.recovery import Outcome
from penstock.log.set_aside import SetAside
from penstock.log.threads import Threads
from penstock.log.topic import Topic
from penstock.log.writer import PartitionWriter

MOST_TRANSACTION_BYTES = 512 * 1024 * 1024
# After so many commits this process syncs the tails it touched, and the catalogue forgets those transactions.
FORGET_EVERY = 256


class CommittedTransactions:
    """The transactions of this process that the catalogue still has to remember."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._transactions: list[int] = []
        self._partitions: dict[int, Partition] = {}

    def add(self, transaction: int, partitions: Sequence[Partition]) -> None:
        self._transactions.append(transaction)
        self._partitions.update({id(partition): partition for partition in partitions})
        if len(self._transactions) >= FORGET_EVERY:
            # The transaction is committed whatever happens here; what is not forgotten now is forgotten next time.
            with suppress(PenstockError, OSError):
                self.forget()

    def forget(self) -> None:
        for partition in self._partitions.values():
            if not partition.closed:  # else its topic was dropped, and nobody will ask
                partition.tail_file.sync()
        self._catalog.forget_transactions(self._transactions)
        self._transactions, self._partitions = [], {}


@dataclass(slots=True)
class _Part:
    """What a transaction stores in one partition: first what was set aside for it, then the requests."""

    writer: PartitionWriter
    topic: str
    number: int
    requests: list[Request] = field(default_factory=list)


@answer_methods()
class Transaction:
    """Made by `Log.transaction`. As a context manager it commits at the end of the block; not if the block raises."""

    def __init__(
        self,
        catalog: Catalog,
        committed: CommittedTransactions,
        topic_by_name: TopicByName,
        *,
        threads: Threads,
        producer: Producer | None = None,
        sequence: int | None = None,
        position: str | None = None,
    ) -> None:
        if sequence is not None and producer is None:
            raise DeclarationError("transaction: a sequence needs a named producer", hint="log.producer(name)")
        self._catalog = catalog
        self._committed = committed
        self._topic = topic_by_name
        self._threads = threads
        self._set_aside: SetAside | None = None
        self._producer = producer
        self._sequence = sequence
        self._position = position
        self._requests: list[tuple[Topic, int, Request]] = []
        self._offsets: list[tuple[str, str | None, str, Mapping[int, int]]] = []
        self._bytes = 0
        self._ended = False

    def append(
        self,
        topic: Topic,
        rows: Rows,
        *,
        deleted: Marks | None = None,
        partition: int | None = None,
        expect: int | None = None,
    ) -> None:
        """Add rows; they are checked now and stored when the transaction commits."""
        self._refuse_if_ended()
        self.add_checked(topic, topic.appender.requests(rows, deleted=deleted, partition=partition, expect=expect))

    def add_checked(self, topic: Topic, requests: Mapping[int, Request]) -> None:
        """Add rows that were checked and sorted by partition, as `Appender.requests` returns them."""
        self._refuse_if_ended()
        for request in requests.values():
            topic.appender.encode_large(request)
        size = self._bytes + sum(
            request.body.length if request.body else request.batch.nbytes for request in requests.values()
        )
        if size > MOST_TRANSACTION_BYTES:
            raise RowError(
                f"transaction: it would have {size} bytes with these rows; {MOST_TRANSACTION_BYTES} are allowed",
                hint="commit more often, or set rows aside with `stage` of a writer",
            )
        self._bytes = size
        for number, request in requests.items():
            self.add(topic, number, request)

    def add_set_aside(self, set_aside: SetAside) -> None:
        """Store rows that were set aside before those that are added. They are read when the transaction commits."""
        self._refuse_if_ended()
        self._set_aside = set_aside

    def add(self, topic: Topic, partition: int, request: Request) -> None:
        """Add rows that were checked and sorted by partition before, such as those that Spark tasks have staged."""
        self._refuse_if_ended()
        if not topic.files.is_in_log(self._catalog.root):
            raise DeclarationError(f"transaction: topic '{topic.name}' is in another log")
        request.stamp = self._stamp
        self._requests.append((topic, partition, request))

    def commit_offsets(
        self, group: Member | str, topic: Topic | str | None = None, offsets: Mapping[int, int] | None = None
    ) -> None:
        """Commit a group's offsets together with the rows.

        For a member, by default, everything that its `poll` has returned; it must still own the partitions when the
        transaction commits. For a group by its name, the topic and the offsets are needed.
        """
        self._refuse_if_ended()
        if isinstance(group, Member) and topic is None:
            for name, positions in group.positions().items():
                self._offsets.append((group.group, group.id, name, positions))
            return
        if topic is None or offsets is None:
            raise DeclarationError("transaction: to commit offsets of a group, give the topic and the offsets")
        opened = self._topic(topic) if isinstance(topic, str) else topic
        opened.files.check_commit(offsets)
        name, member = (group, None) if isinstance(group, str) else (group.group, group.id)
        self._offsets.append((name, member, opened.name, dict(offsets)))

    def commit(self) -> list[Appended]:
        """Make everything visible at once; return where the rows are. A repeated sequence changes nothing."""
        self._refuse_if_ended()
        self._ended = True
        with ExitStack() as held:
            if self._producer is not None:
                held.enter_context(self._producer.current())  # 1
                if self._sequence is not None and self._sequence <= self._catalog.producer(self._producer.id).sequence:
                    return [
                        Appended(number, -1, request.batch.num_rows, repeated=True)
                        for _, number, request in self._requests
                    ]
            parts = self._by_partition()
            for part in parts:
                held.enter_context(part.writer.exclusive())  # 1
            return self._commit_locked(parts)

    def abort(self) -> None:
        """Forget the transaction. Nothing of it was stored."""
        self._refuse_if_ended()
        self._ended = True
        self._requests, self._offsets = [], []

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended:
            (self.commit if kind is None else self.abort)()

    @property
    def _stamp(self) -> Stamp:
        return ANONYMOUS if self._producer is None else Stamp(self._producer.id, self._producer.epoch)

    def _by_partition(self) -> list[_Part]:
        """The rows of each partition, partitions in the order in which everybody locks them."""
        parts: dict[tuple[str, int], _Part] = {}
        for topic, number in () if self._set_aside is None else self._set_aside.partitions():
            parts[topic.name, number] = _Part(topic.files.writer(number), topic.name, number)
        for topic, number, request in self._requests:
            part = parts.setdefault((topic.name, number), _Part(topic.files.writer(number), topic.name, number))
            part.requests.append(request)
        return [parts[partition] for partition in sorted(parts)]

    def _commit_locked(self, parts: list[_Part]) -> list[Appended]:
        transaction = secrets.randbits(62) + 1
        touched = [part.writer for part in parts]
        try:
            staged = self._write(parts, transaction)  # 2
            for writer, frames in staged:
                writer.publish_pending(frames, transaction)  # 3
            self._record(transaction if staged else 0)  # 4
        except BaseException as error:
            self._undo(transaction, touched, error)
            raise
        for writer, frames in staged:
            writer.publish(frames)  # 5
        if not staged:
            return []
        self._committed.add(transaction, [writer.partition for writer in touched])
        return [request.result for part in parts for request in part.requests if request.result is not None]

    def _write(self, parts: Sequence[_Part], transaction: int) -> list[tuple[PartitionWriter, Staged]]:
        """Step 2. Partitions are synced beside each other: many disks do that in the time of one sync."""
        append_time = max((part.writer.append_time() for part in parts), default=0)
        staged = []
        for part in parts:
            frames = part.writer.write(
                part.requests,
                transaction=transaction,
                set_aside=self._requests_set_aside(part),
                append_time=append_time,
            )
            staged.append((part.writer, frames))
            self._refuse_if_any_failed(part.requests)
        self._threads.run([writer.sync for writer, frames in staged if frames.frames])
        return staged

    def _requests_set_aside(self, part: _Part) -> Iterator[Request]:
        if self._set_aside is not None:
            for request in self._set_aside.requests(part.topic, part.number):
                request.stamp = self._stamp
                yield request

    def _undo(self, transaction: int, touched: Sequence[PartitionWriter], error: BaseException) -> None:
        """Take everything back, unless the transaction is committed all the same, or may be.

        Where its record may or may not be on disk, the pending ends stay: whoever opens the log next decides them by
        what the catalogue says then, and until then nobody here writes behind them.
        """
        try:
            committed = self._catalog.outcome(transaction) is Outcome.COMMITTED
        except PenstockError:
            for writer in touched:
                writer.poison(f"the outcome of a transaction is unknown ({error})")
            return
        if not committed:
            for writer in touched:
                # One that cannot take back has stopped for good, and the next opening does it. The others still can.
                with suppress(PenstockError):
                    writer.roll_back()

    @staticmethod
    def _refuse_if_any_failed(requests: Sequence[Request]) -> None:
        for request in requests:
            if request.error is not None:
                raise request.error

    def _record(self, transaction: int) -> None:
        """Without a number only what comes with the rows is recorded: nobody will ask for the transaction."""
        with self._catalog.change() as connection:
            if transaction:
                record_transaction(connection, transaction)
            for group, member, topic, offsets in self._offsets:
                store_offsets(connection, group, member, topic, offsets)
            if self._producer is not None:
                sequence = NO_SEQUENCE if self._sequence is None else self._sequence
                if not record_sequence(connection, self._producer.id, self._producer.epoch, sequence):
                    raise FencedError(f"producer '{self._producer.name}': epoch {self._producer.epoch} was replaced")
                if self._position is not None:
                    record_position(connection, self._producer.id, self._position)

    def _refuse_if_ended(self) -> None:
        if self._ended:
            raise DeclarationError("transaction: it has ended", hint="begin another one")
