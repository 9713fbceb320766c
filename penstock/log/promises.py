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

from penstock.log.catalog import Catalog

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


def effective(promises: Iterable[Promise], ends: Mapping[int, int]) -> dict[int, int]:
    """For each producer the latest time it has promised, as far as a reader that has read up to `ends` may know."""
    latest: dict[int, int] = {}
    for promise in promises:
        if promise.counts_at(ends):
            latest[promise.producer] = max(promise.time, latest.get(promise.producer, promise.time))
    return latest


def store_promise(catalog: Catalog, topic: str, topic_id: str, promise: Promise) -> None:
    """Store a promise, durably, unless it says no more than the last one, whose place it takes at the same ends."""
    with catalog.change_promises() as connection:
        place = (topic, topic_id, promise.producer)
        last = _last(connection, place)
        if last is not None and promise.time <= last[1].time:
            return
        if last is not None and last[1].ends == promise.ends:
            connection.execute("DELETE FROM promises WHERE number = ?", (last[0],))
        connection.execute(
            "INSERT INTO promises (topic, topic_id, producer, time, ends) VALUES (?, ?, ?, ?, ?)",
            (*place, promise.time, json.dumps(promise.ends)),
        )
        connection.execute(
            "DELETE FROM promises WHERE topic = ?1 AND topic_id = ?2 AND producer = ?3 AND number NOT IN "
            "(SELECT number FROM promises WHERE topic = ?1 AND topic_id = ?2 AND producer = ?3 "
            "ORDER BY number DESC LIMIT ?4)",
            (*place, MOST_KEPT),
        )


def stored_promises(catalog: Catalog, topic: str, topic_id: str) -> list[Promise]:
    """The promises kept for a topic, of each producer in the order in which they were made."""
    with catalog.look_at_promises() as connection:
        if connection is None:
            return []
        rows = connection.execute(
            "SELECT producer, time, ends FROM promises WHERE topic = ? AND topic_id = ? ORDER BY producer, number",
            (topic, topic_id),
        ).fetchall()
    return [Promise(producer, time, _loaded(ends)) for producer, time, ends in rows]


def _last(connection: sqlite3.Connection, place: tuple[str, str, int]) -> tuple[int, Promise] | None:
    row = connection.execute(
        "SELECT number, time, ends FROM promises WHERE topic = ? AND topic_id = ? AND producer = ? "
        "ORDER BY number DESC LIMIT 1",
        place,
    ).fetchone()
    return (row[0], Promise(place[2], row[1], _loaded(row[2]))) if row else None


def _loaded(ends: str) -> dict[int, int]:
    return {int(partition): end for partition, end in json.loads(ends).items()}
