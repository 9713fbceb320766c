"""A writer of the embedded log: rows of several topics and the position that they lead to, stored in one step.

A writer is a named producer whose every write is a transaction. The position is a row of the catalogue, put there by
the same change that commits the transaction (see `transaction`), so no moment has the one without the other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence

from penstock.contracts import Position, TopicRows
from penstock.errors import DeclarationError, FencedError
from penstock.log.catalog import Catalog, ProducerRecord
from penstock.log.groups import TopicByName
from penstock.log.producer import Producer
from penstock.log.transaction import Transaction

# It is stored with every write. A set of GTIDs or the offsets of some thousand files stay well below.
MOST_POSITION_BYTES = 1024 * 1024

Begin = Callable[[Producer, str], Transaction]


class LogWriter:
    """Made by `Log.writer`; implements `contracts.Writer`. Safe to use from many threads, one write at a time."""

    def __init__(self, catalog: Catalog, producer: Producer, topic_by_name: TopicByName, begin: Begin) -> None:
        self.name = producer.name
        self._catalog = catalog
        self._producer = producer
        self._topic = topic_by_name
        self._begin = begin
        self._turn = threading.Lock()
        self._closed = False

    @property
    def token(self) -> int:
        return self._producer.epoch

    @property
    def position(self) -> Position | None:
        """The position that was stored last; None before the first."""
        stored = self._record().position
        return None if stored is None else _decode(stored)

    def write(self, rows: Sequence[TopicRows], position: Position) -> bool:
        """Store rows and their position, all or nothing; False if this position was stored last.

        1. Answer a repeat. 2. Check all rows. 3. Commit them together with the position; that is refused if another
        process has opened this writer meanwhile.
        """
        text = self._encode(position)
        with self._turn:
            if self._current_record().position == text:  # 1
                return False
            transaction = self._begin(self._producer, text)
            for part in rows:  # 2
                topic = self._topic(part.topic)
                for requests in topic.requests_in_pieces(part.rows, deleted=part.deleted):
                    transaction.add_checked(topic, requests)
            transaction.commit()  # 3
        return True

    def close(self) -> None:
        """Release the name's lock file. The position stays; whoever opens the writer next continues from it."""
        if not self._closed:
            self._closed = True
            self._producer.close()

    def _record(self) -> ProducerRecord:
        if self._closed:
            raise DeclarationError(f"writer '{self.name}': it is closed", hint="open it again with log.writer(name)")
        return self._catalog.writer(self._producer.id)

    def _current_record(self) -> ProducerRecord:
        record = self._record()
        if record.epoch != self.token:
            raise FencedError(
                f"writer '{self.name}': token {self.token} was replaced by token {record.epoch}",
                hint="another process opened this writer; stop this one",
            )
        return record

    def _encode(self, position: Position) -> str:
        """As JSON, the same text for the same value."""
        where = f"writer '{self.name}'"
        try:
            text = json.dumps(position, sort_keys=True, separators=(",", ":"), allow_nan=False)
            exact = text != "null" and json.loads(text) == position
        except (TypeError, ValueError, RecursionError):
            exact, text = False, ""
        if not exact:
            raise DeclarationError(
                f"{where}: a position is a JSON value; found {position!r:.200}",
                hint="give numbers, texts, lists, and dicts whose keys are texts",
            )
        if len(text) > MOST_POSITION_BYTES:
            raise DeclarationError(
                f"{where}: a position has at most {MOST_POSITION_BYTES} bytes as JSON; found {len(text)}"
            )
        return text


def _decode(text: str) -> Position:
    value: Position = json.loads(text)
    return value
