"""A named producer: what it sends is stored once, however often it is sent, and only one process may be it.

Opening a producer raises its epoch. Every append holds the producer's lock shared and looks at the epoch under it, and
opening takes that lock alone: when `Log.producer` has returned, nothing of an earlier epoch will be stored any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from penstock.calls import answer_methods
from penstock.errors import DamagedError, DeclarationError, FencedError
from penstock.log.catalog import REPAIR_HINT, Catalog
from penstock.log.frame import NO_SEQUENCE, Stamp
from penstock.log.intake import Marks, Rows
from penstock.log.pending_write import Appended
from penstock.log.promises import Promise, store_promise
from penstock.log.topic import Topic, parse_moment
from penstock.storage.document import encode_document, load_document
from penstock.storage.files import Files

PRODUCERS_DIRECTORY = "producers"


@answer_methods()
class Producer:
    """Made by `Log.producer`. Its appends are stored in the order of their sequences, one at a time."""

    def __init__(
        self, files: Files, root: Path, catalog: Catalog, name: str, topic_by_name: Callable[[str], Topic]
    ) -> None:
        self.name = name
        self._topic_by_name = topic_by_name
        self._root = root
        self._catalog = catalog
        self.id = catalog.register_producer(name)
        files.make_directory(root / PRODUCERS_DIRECTORY)
        _store_name(files, root / PRODUCERS_DIRECTORY / f"{self.id}.json", self.id, name)
        self._lock = files.lock(root / PRODUCERS_DIRECTORY / f"{self.id}.lock")
        self._turn = threading.Lock()
        self._lock.acquire()
        try:
            self.epoch = catalog.raise_epoch(self.id)
        finally:
            self._lock.release()
        self._sequences: dict[str, int] = {}
        self._closed = False

    def append(
        self,
        topic: Topic | str,
        rows: Rows,
        *,
        sequence: int | None = None,
        deleted: Marks | None = None,
    ) -> list[Appended]:
        """Store rows once. A `sequence` at or below the last one stored is a repeat: acknowledged, not stored again.

        Sequences grow per topic; gaps are allowed. Without one the next number is taken, and nothing counts as a
        repeat: only the caller can know that two calls mean the same rows.
        """
        topic = self._open_topic(topic)
        with self._turn, self.current():
            number = self._next(topic) if sequence is None else sequence
            if number < 0:
                raise DeclarationError(f"producer '{self.name}': a sequence cannot be negative; found {number}")
            requests = topic.appender.requests(rows, deleted=deleted, stamp=Stamp(self.id, self.epoch, number))
            # The number is used up even if storing fails: the rows may be there all the same.
            self._sequences[topic.name] = max(number, self._sequences.get(topic.name, NO_SEQUENCE))
            return topic.appender.store(requests)

    def promise(self, topic: Topic | str, time: datetime | str) -> None:
        """Promise that no event earlier than `time` will follow from this producer in this topic.

        Views need not wait any longer for what this producer might still send. On disk when this returns; readers go by
        it once they have read what the topic held by now. An earlier promise that says more stays. A promise that is
        broken loses nothing: what comes in spite of it is late, as any event is that comes after its time. `time` is a
        datetime or in ISO 8601; without a zone it is taken as UTC.
        """
        topic = self._open_topic(topic)
        if topic.settings.time is None:
            raise DeclarationError(
                f"producer '{self.name}': topic '{topic.name}' has no event time, so no time can be promised in it",
                hint="promise in a topic that was created with time=...",
            )
        moment = self._moment(time)
        with self._turn, self.current():
            promise = Promise(self.id, moment, topic.ends())
            store_promise(self._catalog, topic.name, topic.id, promise)

    def last_sequence(self, topic: Topic | str) -> int:
        """The largest sequence any partition holds; -1 for none.

        A crash may have stored only some partitions of that sequence: send it again first, whole.
        """
        with self._turn, self.current():
            return self._last_stored(self._open_topic(topic))

    def sequences(self, topic: Topic | str) -> list[int]:
        """For each partition the largest sequence that it holds of this producer; -1 for none."""
        topic = self._open_topic(topic)
        marks = [topic.files.writer(number).mark_of(self.id) for number in topic.files.numbers]
        return [mark.sequence if mark else NO_SEQUENCE for mark in marks]

    def last_transaction(self) -> int:
        """The largest sequence of a transaction this producer has committed; -1 for none."""
        return self._catalog.producer(self.id).sequence

    @contextmanager
    def current(self) -> Iterator[None]:
        """Hold this producer's epoch: nobody can open the producer meanwhile. Refused if somebody has."""
        if self._closed:
            raise DeclarationError(f"producer '{self.name}': its log is closed", hint="open the log again")
        self._lock.acquire(shared=True)
        try:
            epoch = self._catalog.producer(self.id).epoch
            if epoch != self.epoch:
                raise FencedError(
                    f"producer '{self.name}': epoch {self.epoch} was replaced by epoch {epoch}",
                    hint="another process opened this producer; stop this one",
                )
            yield
        finally:
            self._lock.release()

    def close(self) -> None:
        self._lock.close()
        self._closed = True

    def _open_topic(self, topic: Topic | str) -> Topic:
        """The topic of this log that is meant, by itself or by its name."""
        if isinstance(topic, str):
            return self._topic_by_name(topic)
        if not topic.files.is_in_log(self._root):
            raise DeclarationError(
                f"producer '{self.name}': topic '{topic.name}' is in another log",
                hint="open a producer of that log; names and sequences are counted per log",
            )
        return topic

    def _moment(self, time: datetime | str) -> int:
        try:
            return parse_moment(time, where=f"producer '{self.name}'")
        except DeclarationError:
            raise DeclarationError(
                f"producer '{self.name}': {time!r} is not a time to promise",
                hint="give a datetime, or a time such as 2026-01-31T12:00:00Z",
            ) from None

    def _next(self, topic: Topic) -> int:
        if topic.name not in self._sequences:
            self._sequences[topic.name] = self._last_stored(topic)
        return self._sequences[topic.name] + 1

    def _last_stored(self, topic: Topic) -> int:
        return max(self.sequences(topic))


def _store_name(files: Files, path: Path, producer: int, name: str) -> None:
    """Keep the name beside the catalogue too, so that it outlives it. A file that has another name proves it wrong.

    The file is new, so it is written in place; one that is not whole is of a process that died meanwhile.
    """
    try:
        found = load_document(files, path, what="producer").get("name")
    except (FileNotFoundError, DamagedError):
        with closing(files.open(path, create=True)) as file:
            file.truncate(0)
            file.write_at(0, [encode_document({"id": producer, "name": name})])
            file.sync()
        files.sync_directory(path.parent)
        return
    if found != name:
        raise DamagedError(
            f"{path}: producer {producer} is '{found}' here, and '{name}' in the catalogue", hint=REPAIR_HINT
        )
