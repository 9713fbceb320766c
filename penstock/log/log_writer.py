"""A writer of the embedded log: rows of several topics and the position that they lead to, stored in one step.

A writer is a named producer whose every write is a transaction. The position is a row of the catalogue, put there by
the same change that commits the transaction (see `transaction`), so no moment has the one without the other. Rows that
are staged wait in a file that no crash leaves behind (see `set_aside`), and become part of the next write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from penstock.contracts import Position, TopicRows
from penstock.errors import DeclarationError, FencedError
from penstock.log.catalog import Catalog, ProducerRecord
from penstock.log.groups import TopicByName
from penstock.log.producer import Producer
from penstock.log.set_aside import Addressed, SetAside
from penstock.log.transaction import Transaction
from penstock.positions import decode_position, encode_position

Begin = Callable[[Producer, str], Transaction]
# Staged rows are in memory by frames, so these are small. They need not be larger to be read fast.
STAGED_FRAME_BYTES = 4 * 1024 * 1024


class LogWriter:
    """Made by `Log.writer`; implements `contracts.Writer` and `contracts.StagesRows`.

    Safe to use from many threads, one write at a time.
    """

    def __init__(
        self, catalog: Catalog, producer: Producer, topic_by_name: TopicByName, begin: Begin, set_aside: SetAside
    ) -> None:
        self.name = producer.name
        self._catalog = catalog
        self._producer = producer
        self._topic = topic_by_name
        self._begin = begin
        self._set_aside = set_aside
        self._turn = threading.Lock()
        self._closed = False

    @property
    def token(self) -> int:
        return self._producer.epoch

    @property
    def position(self) -> Position | None:
        """The position that was stored last; None before the first."""
        self._refuse_if_closed()
        return stored_position(self._catalog, self._producer.id)

    def write(self, rows: Sequence[TopicRows], position: Position) -> bool:
        """Store rows and their position, all or nothing; False if this position was stored last.

        1. Answer a repeat, and forget what was staged for it. 2. Check all rows. 3. Commit them, behind those that were
        staged, together with the position; that is refused if another process has opened this writer meanwhile.
        """
        text = encode_position(position, where=f"writer '{self.name}'")
        with self._turn:
            if self._current_record().position == text:  # 1
                self._set_aside.discard()
                return False
            transaction = self._begin(self._producer, text)
            transaction.add_set_aside(self._set_aside)
            for part in rows:  # 2
                topic = self._topic(part.topic)
                for requests in topic.appender.requests_in_pieces(part.rows, deleted=part.deleted):
                    transaction.add_checked(topic, requests)
            transaction.commit()  # 3
            self._set_aside.discard()
        return True

    def stage(self, rows: Sequence[TopicRows]) -> None:
        """Check rows and set them aside for the next `write`: all of them, or none if one does not fit.

        Of what is staged at most 32 MiB are in memory. More is on the log's disk, twice while it is committed.
        """
        with self._turn:
            self._refuse_if_closed()
            self._set_aside.add([checked for part in rows for checked in self._checked(part)])

    def discard(self) -> None:
        """Forget what was staged since the last `write`."""
        with self._turn:
            self._set_aside.discard()

    def close(self) -> None:
        """Release the name's lock file. The position stays; whoever opens the writer next continues from it."""
        if not self._closed:
            self._closed = True
            self._set_aside.discard()
            self._producer.close()

    def _checked(self, part: TopicRows) -> Iterator[Addressed]:
        topic = self._topic(part.topic)
        pieces = topic.appender.requests_in_pieces(part.rows, deleted=part.deleted, most_bytes=STAGED_FRAME_BYTES)
        for requests in pieces:
            yield from ((topic, number, request) for number, request in requests.items())

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise DeclarationError(f"writer '{self.name}': it is closed", hint="open it again with log.writer(name)")

    def _current_record(self) -> ProducerRecord:
        self._refuse_if_closed()
        record = self._catalog.writer(self._producer.id)
        if record.epoch != self.token:
            raise FencedError(
                f"writer '{self.name}': token {self.token} was replaced by token {record.epoch}",
                hint="another process opened this writer; stop this one",
            )
        return record


def stored_position(catalog: Catalog, producer: int) -> Position | None:
    """The position that a writer has stored last; None before the first."""
    text = catalog.writer(producer).position
    return None if text is None else decode_position(text)
