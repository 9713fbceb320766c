"""A log: a directory of topics, opened like a SQLite file. Several processes may have it open at once."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from penstock.calls import answer_methods
from penstock.contracts import Hold, Offsets, Position, ReadOffset, TopicSettings
from penstock.errors import DamagedError, DeclarationError, FencedError, RowError
from penstock.log.catalog import (
    CATALOG_FORMAT,
    CATALOG_NAME,
    TOPICS_DIRECTORY,
    Catalog,
    catalog_errors,
    create_catalog,
    refuse_missing_catalog,
)
from penstock.log.catalog_mark import MARK_NAME
from penstock.log.description import (
    DESCRIPTION_NAME,
    check_topic,
    create_topic_files,
)
from penstock.log.ends import consistent_ends
from penstock.log.frame import NO_SEQUENCE
from penstock.log.groups import Group, Member, group_names
from penstock.log.holds import HOLD_NAME_PATTERN, Holds
from penstock.log.identity import LOG_NAME, Identity, load_identity, new_id, store_identity
from penstock.log.kept import Kept, kept_by_group, kept_by_holds
from penstock.log.log_writer import LogWriter, stored_position
from penstock.log.producer import Producer
from penstock.log.promises import Promise, effective_times, store_promise, stored_promises
from penstock.log.repair import catalog_problem
from penstock.log.set_aside import SetAside
from penstock.log.staging import StagedRows, staged_requests
from penstock.log.threads import Threads
from penstock.log.topic import Topic, parse_moment
from penstock.log.topic_files import TopicFiles
from penstock.log.transaction import CommittedTransactions, Transaction
from penstock.names import NAME_PATTERN, NAME_RULE
from penstock.paths import apps_folder
from penstock.schema.arrow import parse_schema
from penstock.storage.files import Disk, Files, disk_errors, refuse_in_a_fork
from penstock.storage.watch import Watch
from penstock.suggest import closest

LOCK_NAME = "lock"
# The partitions are locked while a commit copies staged frames, and others wait at most 30 seconds for that.
MOST_STAGED_BYTES = 2 * 1024 * 1024 * 1024
CATALOG_FILES = [CATALOG_NAME, *(CATALOG_NAME + suffix for suffix in ("-wal", "-shm", "-journal"))]
# What an interrupted creation of a log may have left in its folder.
UNFINISHED = {LOCK_NAME, TOPICS_DIRECTORY, LOG_NAME + ".tmp", MARK_NAME, MARK_NAME + ".tmp", *CATALOG_FILES}


@answer_methods()
class Log:
    """An open log. Use it as a context manager, `with Log("./penstock-data") as log`, or call `close`.

    It is safe for many threads. Reopen it after a fork.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        """Open the log in a folder, or begin one. `clock` tells the seconds since 1970 to stamp appends with."""
        self.path = Path(path)
        self._clock = clock
        self._files: Files = Disk()
        self._process = os.getpid()
        self._guard = threading.RLock()
        self._topics: dict[str, Topic] = {}
        self._producers: list[Producer] = []
        self._members: list[Member] = []
        self._closed = False
        with disk_errors(str(self.path)):
            identity = _prepare(self._files, self.path, create=create)
        self._catalog = Catalog(self.path, self._files)
        self._committed = CommittedTransactions(self._catalog)
        self._threads = Threads()
        self._holds = Holds(self._files, self.path, identity.id)

    @property
    def url(self) -> str:
        """By which every process opens this log, whatever its folder is."""
        return self.path.absolute().as_uri()

    @property
    def apps_folder(self) -> Path:
        """Where apps of this log keep their epochs, states and views."""
        return apps_folder(self.path.absolute())

    # -- topics -------------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        schema: str | pa.Schema,
        *,
        key: str | Sequence[str] = (),
        time: str | None = None,
        settings: TopicSettings | None = None,
        partitions: int | None = None,
    ) -> Topic:
        """Create a topic: `log.create_topic("orders", "order_id bigint not null, country string", key="order_id")`.

        `schema` is Spark DDL text or an Arrow schema; further choices are in TopicSettings."""
        self._refuse_if_unusable()
        chosen = _settings(settings or TopicSettings(), key=key, time=time, partitions=partitions)
        parsed = parse_schema(schema)
        check_topic(name, parsed, chosen)
        directory = self._directory(name)
        with disk_errors(f"topic '{name}'"), closing(self._files.lock(self.path / LOCK_NAME)) as lock:
            lock.acquire()
            if self._files.exists(directory / DESCRIPTION_NAME):
                raise DeclarationError(
                    f"topic '{name}': it exists already",
                    hint="open it with log.topic(name), or change its schema with topic.evolve(schema)",
                )
            # What a crash may have left of an earlier topic of this name must not be taken for ours.
            self._catalog.forget_topic(name)
            shutil.rmtree(directory, ignore_errors=True)
            create_topic_files(self._files, directory, name, parsed, chosen)
        return self.topic(name)

    def topic(self, name: str) -> Topic:
        """Open a topic that exists."""
        self._refuse_if_unusable()
        with self._guard:
            if name not in self._topics:
                if not NAME_PATTERN.fullmatch(name) or name not in self.topics():
                    raise self._unknown_topic(name)
                with disk_errors(f"topic '{name}'"):
                    self._topics[name] = Topic(
                        TopicFiles(self._files, self._directory(name), self._catalog, self._clock, holds=self._holds)
                    )
            return self._topics[name]

    def topics(self) -> list[str]:
        """The names of all topics."""
        self._refuse_if_unusable()
        directory = self.path / TOPICS_DIRECTORY
        with disk_errors(str(self.path)):
            names = self._files.names(directory)
            return [name for name in names if self._files.exists(directory / name / DESCRIPTION_NAME)]

    def drop_topic(self, name: str) -> None:
        """Remove a topic with all its data and its groups' offsets."""
        topic = self.topic(name)
        with self._guard:
            # Nobody may be in the middle of an append: it would be acknowledged and then gone.
            with topic.files.exclusive():
                # Without its description the topic is gone; what a crash leaves of the rest is garbage.
                self._files.remove(self._directory(name) / DESCRIPTION_NAME)
                self._files.sync_directory(self._directory(name))
                self._catalog.forget_topic(name)
                with disk_errors(f"topic '{name}'"):
                    shutil.rmtree(self._directory(name))
            self._topics.pop(name).close(why="the topic was dropped")

    def _directory(self, name: str) -> Path:
        return self.path / TOPICS_DIRECTORY / name

    def _unknown_topic(self, name: str) -> DeclarationError:
        known = self.topics()
        near = closest(name, known)
        none = "this log has no topics yet; create one with log.create_topic or `penstock topic create`"
        hint = near or (f"there are {', '.join(known)}" if known else none)
        return DeclarationError(f"topic '{name}': it does not exist in {self.path}", hint=hint)

    # -- producers, transactions, groups ------------------------------------------------------------------------------

    def producer(self, name: str) -> Producer:
        """Become the producer of this name. Any other process that was it is refused from now on."""
        self._refuse_if_unusable()
        if not NAME_PATTERN.fullmatch(name):
            raise DeclarationError(f"producer '{name}': this is not a name for a producer", hint=NAME_RULE)
        with disk_errors(f"producer '{name}'"):
            producer = Producer(self._files, self.path, self._catalog, name, self.topic)
        self._producers.append(producer)
        return producer

    def writer(self, name: str) -> LogWriter:
        """Become the writer of this name, and the producer of it. Whoever was either is refused from now on.

        What it writes is stored together with a position, from which it continues after any crash.
        """
        return LogWriter(self._catalog, self.producer(name), self.topic, self._begin_write, SetAside(self.path))

    def _begin_write(self, producer: Producer, position: str) -> Transaction:
        self._refuse_if_unusable()
        return Transaction(
            self._catalog, self._committed, self.topic, threads=self._threads, producer=producer, position=position
        )

    def position(self, writer: str) -> Position | None:
        """The position that the writer of this name stored last; None for none. Nobody is replaced by asking."""
        known = self._producer_id(writer)
        return None if known is None else stored_position(self._catalog, known)

    def last_transaction(self, producer: str) -> int:
        """The largest sequence of a transaction that the producer of this name has committed; -1 for none.

        Nobody is replaced by asking.
        """
        known = self._producer_id(producer)
        return NO_SEQUENCE if known is None else self._catalog.producer(known).sequence

    def _producer_id(self, name: str) -> int | None:
        return next((id_ for id_, known in self.producers().items() if known == name), None)

    def producers(self) -> dict[int, str]:
        """The names of all producers, by the ids that batches carry."""
        return self._catalog.producers()

    def promises(self, topic: Topic | str) -> list[Promise]:
        """What producers have promised about a topic."""
        opened = self.topic(topic) if isinstance(topic, str) else topic
        return stored_promises(self._catalog, opened.name, opened.id)

    def promise(self, topic: Topic | str, time: datetime | str, *, producers: Iterable[int] | None = None) -> None:
        """Promise that nothing earlier than `time` will follow in a topic, on behalf of producers by their ids.

        Id 0 is everybody without a name. Without `producers`, it is promised for all that the log knows. Unlike
        `Producer.promise`, nobody is replaced: those who write at the moment continue.
        """
        opened = self.topic(topic) if isinstance(topic, str) else topic
        moment, ends = parse_moment(time, where=f"topic '{opened.name}'"), opened.ends()
        for producer in [0, *self.producers()] if producers is None else producers:
            store_promise(self._catalog, opened.name, opened.id, Promise(producer, moment, ends))

    def promised_times(self, topic: str, read: Offsets) -> dict[int, int]:
        """By producer, the latest time it has promised, as far as it counts for a reader that has read up to `read`."""
        return effective_times(self.promises(topic), read)

    def transaction(self, producer: Producer | None = None, *, sequence: int | None = None) -> Transaction:
        """Begin a transaction. As a named producer with a `sequence`, a repeat of it changes nothing."""
        self._refuse_if_unusable()
        return Transaction(
            self._catalog, self._committed, self.topic, threads=self._threads, producer=producer, sequence=sequence
        )

    def commit_staged(
        self, topic: str, staged: Sequence[StagedRows], *, producer: str | None = None, sequence: int | None = None
    ) -> None:
        """Store all rows that other processes have staged for a topic (see `staging`), or none.

        As a producer with a sequence, a repeat of the last one changes nothing. An older one is refused with
        FencedError: its rows may be others than those that were stored.
        """
        named = None if producer is None else self.producer(producer)
        if named is not None and sequence is not None and sequence < (last := named.last_transaction()):
            raise FencedError(
                f"producer '{named.name}': batch {sequence} comes after batch {last} was stored; "
                "this is another checkpoint or another query under the same name",
                hint="give this query a producer name of its own: .option('producer', '<name>')",
            )
        opened, size = self.topic(topic), 0
        with self.transaction(named, sequence=sequence) as transaction:
            for partition, request in staged_requests(opened, staged):
                size += request.body.length if request.body else request.batch.nbytes
                transaction.add(opened, partition, request)
            if size > MOST_STAGED_BYTES:
                raise RowError(
                    f"topic '{topic}': {size} bytes were written at once; {MOST_STAGED_BYTES} are allowed",
                    hint="write in several parts, or limit the size of the stream's batches",
                )

    def group(self, name: str) -> Group:
        """The consumer group of this name. It exists from its first member or commit on."""
        self._refuse_if_unusable()
        if not NAME_PATTERN.fullmatch(name):
            raise DeclarationError(f"group '{name}': this is not a name for a group", hint=NAME_RULE)
        return Group(self._catalog, self._holds, self.topic, self._members, name)

    def groups(self) -> list[str]:
        """The names of all consumer groups."""
        return group_names(self._catalog)

    # -- reading several topics ---------------------------------------------------------------------------------------

    def consistent_ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """The ends of several topics with every transaction whole. See `contracts.FindsConsistentEnds`."""
        return consistent_ends({name: self.topic(name).files for name in topics})

    def watch(self, topics: Iterable[str]) -> Watch:
        """Watch for rows that are appended to these topics. See `contracts.Wakes`."""
        files = [self.topic(name).files for name in topics]
        return Watch([topic.partition(number).tail_file.path for topic in files for number in topic.numbers])

    # -- holds --------------------------------------------------------------------------------------------------------

    def hold(
        self,
        name: str,
        ranges: Mapping[str, Mapping[int, tuple[int, int]]],
        *,
        read: Sequence[ReadOffset] = (),
        token: int = 0,
    ) -> None:
        """Keep rows as they are until `release`: by topic and partition, those from start up to end (exclusive).

        Compaction, retention and erasure leave them alone, also after a crash, so they are read again with the same
        offsets, append times, producers and frames. Rows that are yet to come may be held. This takes the place of what
        `name` held before, and is on disk when it returns. RangeError if a row is gone already: nothing is changed.

        `read` registers `name` as a reader that has come so far: compaction keeps the delete markers from there on. A
        position may lag behind what was really read. FencedError if the hold was placed with a higher `token`.
        """
        self._refuse_if_unusable()
        if not HOLD_NAME_PATTERN.fullmatch(name):
            raise DeclarationError(f"hold '{name}': this is not a name for a hold", hint=NAME_RULE)
        topics = {topic: self.topic(topic) for topic in ranges}
        with disk_errors(f"hold '{name}'"), self._holds.locked():
            held = [rows for topic in topics for rows in topics[topic].files.held_ranges(ranges[topic])]
            self._holds.place(name, held, read=read, token=token)

    def release(self, name: str) -> None:
        """Hold nothing any more under this name. Releasing what is not held is no mistake."""
        self._refuse_if_unusable()
        if HOLD_NAME_PATTERN.fullmatch(name):
            with disk_errors(f"hold '{name}'"):
                self._holds.release(name)

    def holds(self) -> list[Hold]:
        """Who holds which rows. DamagedError if that cannot be told of one of them."""
        self._refuse_if_unusable()
        with self._holds.locked():
            return self._holds.all()

    def kept(self) -> list[Kept]:
        """What holds, readers and groups keep on disk, partition by partition. It looks through what they keep."""
        topics = {topic.id: topic for topic in map(self.topic, self.topics())}
        found = list(kept_by_holds(self.holds(), topics))
        for topic in topics.values():
            for group, committed in self._catalog.group_positions(topic.name).items():
                found += kept_by_group(group, committed, topic)
        return found

    # -- checking it --------------------------------------------------------------------------------------------------

    def verify(self) -> list[str]:
        """What is wrong with the catalogue and the holds; `Topic.verify` is about rows."""
        self._refuse_if_unusable()
        problems = [catalog_problem(self._files, self.path, load_identity(self._files, self.path))]
        try:
            self.holds()
        except DamagedError as error:
            problems.append(error.message)
        return [problem for problem in problems if problem is not None]

    # -- its life -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave all groups and close every file. What was acknowledged needs no closing to be safe."""
        if self._closed:
            return
        for member in self._members:
            member.close()
        with self._guard:
            self._closed = True
            for producer in self._producers:
                producer.close()
            self._threads.close()
            for topic in self._topics.values():
                topic.close()
            self._topics, self._producers = {}, []
            self._catalog.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_if_unusable(self) -> None:
        refuse_in_a_fork(self._process, self.path)
        if self._closed:
            raise DeclarationError(f"{self.path}: this log is closed", hint="open it again")


def _settings(
    settings: TopicSettings, *, key: str | Sequence[str], time: str | None, partitions: int | None
) -> TopicSettings:
    changes: dict[str, object] = {}
    if key:
        changes["key"] = (key,) if isinstance(key, str) else tuple(key)
    if time is not None:
        changes["time"] = time
    if partitions is not None:
        changes["partitions"] = partitions
    return replace(settings, **changes)  # type: ignore[arg-type]


def _prepare(files: Files, path: Path, *, create: bool) -> Identity:
    """Find the log at `path`, or begin one there."""
    marker = path / LOG_NAME
    if not files.exists(marker):
        if not create and not path.is_file():
            raise DeclarationError(
                f"{path}: there is no log",
                hint="give its folder with --log or PENSTOCK_LOG, or create a topic in a new one",
            )
        if path.exists() and not path.is_dir():
            raise DeclarationError(f"{path}: this is a file; a log is a folder", hint="give the log's folder")
        if path.exists() and not _can_become_a_log(files, path):
            raise DeclarationError(
                f"{path}: this is not a log, and not empty", hint="choose an empty or a new folder for the log"
            )
        _begin(files, path)
    identity = load_identity(files, path)
    refuse_missing_catalog(path, identity)
    return identity


def _can_become_a_log(files: Files, path: Path) -> bool:
    """Whether the folder is empty, half created, or has just been created by another process."""
    names = set(files.names(path))
    if LOG_NAME in names:
        return True
    return names <= UNFINISHED and not (TOPICS_DIRECTORY in names and files.names(path / TOPICS_DIRECTORY))


def _begin(files: Files, path: Path) -> None:
    """Lay out an empty log. Several processes may do so at once; a crash leaves what the next attempt completes."""
    files.make_directory(path)
    files.sync_directory(path.parent)
    with closing(files.lock(path / LOCK_NAME)) as lock:
        lock.acquire()
        if not files.exists(path / LOG_NAME):
            files.make_directory(path / TOPICS_DIRECTORY)
            for name in CATALOG_FILES:
                files.remove(path / name)
            identity = Identity(new_id(), CATALOG_FORMAT)
            with catalog_errors(path / CATALOG_NAME):
                create_catalog(files, path, identity.id, {})
            store_identity(files, path, identity)
