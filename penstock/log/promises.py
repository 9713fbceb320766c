"""Promises of producers: "nothing earlier than this time will follow from me in this topic".

A promise speaks of what comes after it, so it counts for a reader only from where the topic ended when it was made:
until the reader has come that far, the events before it are still to come. Promises are kept in the catalogue, the
latest few of each producer and topic, because readers that are behind need older ones than those that are not.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.log.catalog import Catalog, number_of
from penstock.log.catalog_rows import Row, put, rows

MOST_KEPT = 64  # of one producer in one topic


@dataclass(frozen=True, slots=True)
class Promise:
    """No event earlier than `time` (microseconds since 1970) follows from this producer after `ends`, by partition."""

    producer: int
    time: int
    ends: Mapping[int, int]

    def counts_at(self, ends: Mapping[int, int]) -> bool:
        """Whether a reader that has read up to `ends` has everything that came before the promise."""
        return all(ends.get(partition, 0) >= end for partition, end in self.ends.items())


def effective_times(promises: Iterable[Promise], ends: Mapping[int, int]) -> dict[int, int]:
    """For each producer the latest time it has promised, as far as a reader that has read up to `ends` may know."""
    latest: dict[int, int] = {}
    for promise in promises:
        if promise.counts_at(ends):
            latest[promise.producer] = max(promise.time, latest.get(promise.producer, promise.time))
    return latest


def store_promise(catalog: Catalog, topic: str, topic_id: str, promise: Promise) -> None:
    """Store a promise, durably, unless it says no more than the last one, which it replaces at the same ends."""
    with catalog.change() as connection:
        key = (topic, topic_id, promise.producer)
        last = _last(connection, key)
        if last is not None and promise.time <= last[1].time:
            return
        if last is not None and last[1].ends == promise.ends:
            connection.execute("DELETE FROM promises WHERE number = ?", (last[0],))
        (number,) = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM promises").fetchone()
        put(connection, "promises", number, *key, promise.time, json.dumps(promise.ends))
        connection.execute(
            "DELETE FROM promises WHERE topic = ?1 AND topic_id = ?2 AND producer = ?3 AND number NOT IN "
            "(SELECT number FROM promises WHERE topic = ?1 AND topic_id = ?2 AND producer = ?3 "
            "ORDER BY number DESC LIMIT ?4)",
            (*key, MOST_KEPT),
        )


def stored_promises(catalog: Catalog, topic: str, topic_id: str) -> list[Promise]:
    """The promises kept for a topic, of each producer in the order in which they were made."""
    with catalog.look() as connection:
        where, order = "topic = ? AND topic_id = ?", "producer, number"
        return [_promise(row) for row in rows(connection, "promises", where, (topic, topic_id), order=order)]


def _last(connection: sqlite3.Connection, key: tuple[str, str, int]) -> tuple[int, Promise] | None:
    where = "topic = ? AND topic_id = ? AND producer = ?"
    found = rows(connection, "promises", where, key, order="number DESC LIMIT 1")
    return (number_of(found[0][0]), _promise(found[0])) if found else None


def _promise(row: Row) -> Promise:
    _, _, _, producer, time, ends = row
    return Promise(number_of(producer), number_of(time), _decode_ends(str(ends)))


def _decode_ends(ends: str) -> dict[int, int]:
    return {int(partition): end for partition, end in json.loads(ends).items()}
