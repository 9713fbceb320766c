"""What a copy of tables is, item by item, for a database in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.copy.position import CopyPosition
from penstock.contracts import COMMIT_TIME, SourceOptions
from penstock.errors import DamagedError, DeclarationError
from penstock.testing import MemoryLog
from penstock.testing.memory_database import Delete, MemoryDatabase, Truncate, Upsert
from tests.capture.copy.copied import Capture, crash, latest_rows


@pytest.fixture
def database() -> MemoryDatabase:
    database = MemoryDatabase(SourceOptions(chunk_rows=2), idle_seconds=0.0)
    database.create_table("orders", "id long not null, note string, body string", key="id")
    database.create_table("people", "name string not null, city string not null, age int", key=("name", "city"))
    return database


@pytest.fixture
def capture(database: MemoryDatabase, tmp_path: Path) -> Capture:
    return Capture(MemoryLog(), database.connect, {"orders": "shop_orders", "people": "people"}, tmp_path)


def put(database: MemoryDatabase, *rows: dict[str, Any], unchanged: frozenset[str] = frozenset()) -> None:
    database.commit(*[Upsert("orders", row, unchanged) for row in rows])


def test_rows_of_each_table_are_in_its_topic(database: MemoryDatabase, capture: Capture) -> None:
    put(database, {"id": 1, "note": "a"}, {"id": 2, "note": "b"}, {"id": 3})
    database.commit(Upsert("people", {"name": "Ada", "city": "London", "age": 36}))
    capture.run([lambda: database.commit(Delete("orders", {"id": 2}), Upsert("orders", {"id": 4}))])
    for table, topic in capture.topics.items():
        assert latest_rows(capture.log.topic(topic)) == database.rows(table)
    settings = capture.log.topic("people").settings
    assert (settings.key, settings.time) == (("name", "city"), COMMIT_TIME)


def test_a_new_column_is_added_to_the_topic(database: MemoryDatabase, capture: Capture) -> None:
    put(database, {"id": 1})
    capture.run(
        [
            lambda: database.add_column("orders", "price decimal(8,2)"),
            lambda: put(database, {"id": 2, "price": None}),
        ]
    )
    assert capture.log.topic("shop_orders").schema.names == ["id", "note", "body", COMMIT_TIME, "price"]
    assert latest_rows(capture.log.topic("shop_orders")) == [
        {"id": 1, "note": None, "body": None, "price": None},
        {"id": 2, "note": None, "body": None, "price": None},
    ]


def test_a_topic_with_another_key_or_type_is_refused_with_what_to_do(
    database: MemoryDatabase, capture: Capture
) -> None:
    capture.log.create_topic("shop_orders", "id long not null, note int")
    with pytest.raises(DeclarationError, match="has the key none; that of the table is id") as error:
        capture.run()
    assert error.value.hint == "capture it into another topic: --topic orders=shop_orders_2"


def test_a_truncated_table_loses_all_rows_of_its_open_transaction_too(
    database: MemoryDatabase, capture: Capture
) -> None:
    put(database, {"id": 1}, {"id": 2})
    capture.run()
    capture.run(
        [
            lambda: database.commit(
                Upsert("orders", {"id": 3}),
                Delete("orders", {"id": 1}),
                Truncate("orders"),
                Upsert("orders", {"id": 1}),
            )
        ]
    )
    assert latest_rows(capture.log.topic("shop_orders")) == [{"id": 1, "note": None, "body": None}]


def test_values_that_were_not_sent_are_those_of_the_copy(database: MemoryDatabase, capture: Capture) -> None:
    put(database, {"id": 1, "note": "a", "body": "x" * 3000}, {"id": 2, "note": "b", "body": "small"})

    def change() -> None:
        put(database, {"id": 1, "note": "c"}, {"id": 2, "note": "d"}, unchanged=frozenset({"body"}))
        database.commit(
            Upsert("orders", {"id": 1, "body": "y"}, frozenset({"note"})),
            Upsert("orders", {"id": 1, "note": "e"}, frozenset({"body"})),
            Upsert("orders", {"id": 5, "note": "f", "body": "z"}),
            Upsert("orders", {"id": 5, "note": "g"}, frozenset({"body"})),
        )

    capture.run([lambda: None, lambda: None, lambda: None, lambda: None, lambda: None, lambda: None, change])
    assert latest_rows(capture.log.topic("shop_orders")) == [
        {"id": 1, "note": "e", "body": "y"},
        {"id": 2, "note": "d", "body": "small"},
        {"id": 5, "note": "g", "body": "z"},
    ]


def test_what_the_copy_lacks_stops_it_with_the_command(database: MemoryDatabase, capture: Capture) -> None:
    put(database, {"id": 1, "note": "a", "body": "x"})
    capture.run()
    capture.log.topic("shop_orders").append([{"id": 1}], deleted=[True])  # type: ignore[list-item]
    with pytest.raises(DamagedError, match="did not send body of the row with id = 1") as error:
        capture.run([lambda: put(database, {"id": 1, "note": "c"}, unchanged=frozenset({"body"}))])
    assert error.value.hint == "copy the table again: penstock capture snapshot shop --table orders"


def test_the_file_of_earlier_values_can_be_deleted_at_any_time(database: MemoryDatabase, capture: Capture) -> None:
    put(database, {"id": 1, "note": "a", "body": "x" * 3000})
    change: Callable[[str], None] = lambda note: put(  # noqa: E731
        database, {"id": 1, "note": note}, unchanged=frozenset({"body"})
    )
    capture.run()
    capture.run([lambda: change("b")])
    assert (capture.folder / "shop_orders.sqlite").exists()
    (capture.folder / "shop_orders.sqlite").unlink()
    capture.run([lambda: change("c"), crash, lambda: change("d")])
    (capture.folder / "shop_orders.sqlite").write_bytes(b"this is no database at all" * 100)
    capture.run([lambda: change("e")])
    assert latest_rows(capture.log.topic("shop_orders")) == database.rows("orders")


def test_a_copy_taken_again_removes_rows_that_vanished_while_nobody_captured(
    database: MemoryDatabase, capture: Capture
) -> None:
    put(database, {"id": 1}, {"id": 2}, {"id": 3})
    capture.run()
    database.commit(Delete("orders", {"id": 2}), Upsert("orders", {"id": 3, "note": "new"}))
    database.lose_changes()
    capture.copy_again("orders", "people")
    capture.run([crash, lambda: None, crash, lambda: put(database, {"id": 4}), lambda: None, crash])
    assert latest_rows(capture.log.topic("shop_orders")) == database.rows("orders")
    assert CopyPosition.parse(capture.log.position("capture.shop")).copying == {}
    assert not (capture.folder / "shop_orders.sqlite").exists()


def test_a_copy_taken_again_gives_rows_that_are_the_same_as_they_were(
    database: MemoryDatabase, capture: Capture
) -> None:
    put(database, {"id": 1, "note": "copied"})
    capture.run([lambda: None] * 6 + [lambda: put(database, {"id": 2, "note": "followed"}, {"id": 3})])
    before = _with_times(capture)
    database.commit(Upsert("orders", {"id": 3, "note": "changed"}), Upsert("orders", {"id": 4}))
    database.lose_changes()
    capture.copy_again("orders", "people")
    capture.run()
    after = _with_times(capture)
    assert after[1] == before[1]
    assert after[2] == before[2]
    # Nobody knows when these changed: they are as new as their copy, and not older than what they replace.
    assert {after[3][COMMIT_TIME].timestamp(), after[4][COMMIT_TIME].timestamp()} == {capture.clock() / 1_000_000}


def _with_times(capture: Capture) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for batch in capture.log.topic("shop_orders").batches() for row in batch.rows.to_pylist()}
