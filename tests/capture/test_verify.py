"""Comparing a table with its copy finds exactly what differs, also while both change."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.capture.copy.position import CopyPosition
from penstock.capture.verify import CellDifference, Comparison, RowDifference
from penstock.contracts import COMMIT_TIME, SourceOptions
from penstock.errors import UnavailableError
from penstock.testing import MemoryLog
from penstock.testing.memory_database import Delete, MemoryDatabase, Upsert
from tests.capture.copy.copied import NAME, Capture

ROWS = 3000
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    database = MemoryDatabase(SourceOptions(chunk_rows=1000), idle_seconds=0.001)
    database.create_table("orders", "id long not null, note string, amount double, tags array<int>", key="id")
    rows = [
        {"id": number, "note": f"n{number}", "amount": float("nan"), "tags": [number, None]} for number in range(ROWS)
    ]
    database.commit(*[Upsert("orders", row) for row in rows])
    found = Capture(MemoryLog(), database.connect, {"orders": "orders"}, tmp_path)
    found.run()
    return found


@pytest.fixture
def database(capture: Capture) -> MemoryDatabase:
    found = capture.connect()
    assert isinstance(found, MemoryDatabase)
    return found


def compare(capture: Capture, *, is_running: bool = False) -> tuple[list[RowDifference], int]:
    comparison = Comparison(capture.connect(), capture.log, "shop", lambda: is_running)
    found = comparison.compare("orders", "orders")
    assert found.buckets_left == 0
    assert found.is_equal == (not found.differences)
    return sorted(found.differences, key=lambda row: str(row.key)), found.unsettled


PLANTED = [
    RowDifference({"id": 17}, "missing"),
    RowDifference({"id": 4711}, "extra"),
    RowDifference(
        {"id": 5}, "different", (CellDifference("note", "n5", "forged"), CellDifference("tags", [5, None], [5]))
    ),
]


def plant(capture: Capture) -> None:
    """Change the copy behind the back of its capture."""
    topic = capture.log.topic("orders")
    forged = {"note": "forged", "amount": float("nan"), "tags": [5], COMMIT_TIME: AT}
    topic.append([{"id": 5, **forged}, {"id": 4711, **forged}])
    topic.append([{"id": 17}], deleted=[True])


def test_a_copy_that_equals_its_source_has_no_differences(capture: Capture) -> None:
    assert compare(capture) == ([], 0)


def test_exactly_the_planted_differences_are_found(capture: Capture) -> None:
    plant(capture)
    assert compare(capture) == (PLANTED, 0)


def test_an_extra_row_in_a_table_without_rows_is_found(capture: Capture, database: MemoryDatabase) -> None:
    database.truncate("orders")
    capture.run()
    assert compare(capture) == ([], 0)
    capture.log.topic("orders").append([{"id": 1, COMMIT_TIME: AT}])
    assert compare(capture) == ([RowDifference({"id": 1}, "extra")], 0)


def test_it_says_if_nobody_captures_what_has_changed(capture: Capture, database: MemoryDatabase) -> None:
    database.commit(Delete("orders", {"id": 3}))
    found = Comparison(capture.connect(), capture.log, "shop", lambda: False).compare("orders", "orders")
    assert found.is_behind
    assert found.differences == (RowDifference({"id": 3}, "extra"),)


def test_it_does_not_wait_forever_for_a_capture_that_is_stuck(capture: Capture, database: MemoryDatabase) -> None:
    database.commit(Delete("orders", {"id": 3}))
    comparison = Comparison(capture.connect(), capture.log, "shop", lambda: True, patience=0.1)
    with pytest.raises(UnavailableError, match="its copy has not caught up with the database"):
        comparison.compare("orders", "orders")


def test_under_load_only_real_differences_are_found(capture: Capture, database: MemoryDatabase) -> None:
    plant(capture)
    with busy(capture, database):
        for _ in range(3):
            differences, unsettled = compare(capture, is_running=True)
            assert differences == PLANTED
            assert unsettled <= 1


@contextmanager
def busy(capture: Capture, database: MemoryDatabase) -> Iterator[None]:
    """Rows change all the time, and a capture follows them."""
    stop, done = threading.Event(), threading.Event()
    numbers = itertools.count()

    def change() -> None:
        for number in numbers:
            if stop.wait(0.005):
                break
            key = 100 + number % 50
            database.commit(Delete("orders", {"id": key}), Upsert("orders", {"id": key, "note": f"changed {number}"}))

    def follow() -> None:
        while not done.is_set():
            capture.run()

    threads = [threading.Thread(target=change), threading.Thread(target=follow)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        threads[0].join()
        done.set()
        threads[1].join()
    assert CopyPosition.parse(capture.log.position(NAME)).source is not None
