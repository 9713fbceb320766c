"""Writes the golden log: what format 1 looks like on disk, with every feature that leaves a trace there.

Run once per format (`python tests/log/golden/make.py DIRECTORY`) and keep the result for ever: the test beside it makes
sure that every later version reads it.
"""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

from penstock.contracts import Position, TopicRows
from penstock.log import Log, TopicSettings

EVERYTHING = """
    id long, flag boolean, tiny tinyint, small smallint, medium int, ratio float, exact double,
    price decimal(10,2), name string, raw binary, day date, at timestamp, local timestamp_ntz,
    tags array<string>, attributes map<string,int>, address struct<street: string, zip: int>
"""
POSITION: Position = {"lsn": "0/16B3748", "files": {"a.csv": 7}}


def full_row(number: int) -> dict[str, object]:
    return {
        "id": number,
        "flag": number % 2 == 0,
        "tiny": number % 100,
        "small": number * 10,
        "medium": number * 1_000,
        "ratio": number / 2,
        "exact": number / 4,
        "price": Decimal(number) + Decimal("0.25"),
        "name": f"name {number} ü",
        "raw": bytes([number % 256, 0, 255]),
        "day": date(2026, 1, 1 + number % 28),
        "at": datetime(2026, 1, 1, number % 24, tzinfo=UTC),
        "local": datetime(2026, 1, 1, number % 24),  # noqa: DTZ001
        "tags": [f"tag {number}"] * (number % 3),
        "attributes": [("a", number)],
        "address": {"street": f"street {number}", "zip": number},
    }


def make(path: Path) -> None:
    with Log(path) as log:
        everything = log.create_topic("everything", EVERYTHING, key="id", time="at", partitions=2)
        everything.append([full_row(number) for number in range(10)])
        everything.append({"id": 10, "at": datetime(2026, 1, 2, tzinfo=UTC)})
        table = log.create_topic(
            "table", "key string, value int", key="key", settings=TopicSettings(segment_bytes=1_500)
        )
        for value in range(6):
            table.append([{"key": "a", "value": value}, {"key": "b", "value": -value}])
        table.delete({"key": "b"})
        log.group("slow").commit("table", {0: 0})
        log.topic("table").compact()
        table.evolve("key string, value long, note string")
        table.append({"key": "c", "value": 2**40, "note": "wide"})
        accounts = log.create_topic("accounts", "id string", key="id", settings=TopicSettings(versioned=True))
        accounts.append([{"id": "a"}, {"id": "b"}, {"id": "a"}])
        producer = log.producer("feed")
        producer.append(everything, full_row(11), sequence=41)
        with log.transaction(producer, sequence=7) as transaction:
            transaction.append(accounts, {"id": "a"}, expect=2)
            transaction.append(table, {"key": "d", "value": 4})
            transaction.commit_offsets("copier", everything, {0: 3, 1: 4})
        log.create_topic("captured", "id long", key="id")
        rows = [TopicRows("captured", [{"id": 1}, {"id": 2}]), TopicRows("captured", [{"id": 1}], [True])]
        log.writer("capture").write(rows, POSITION)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
