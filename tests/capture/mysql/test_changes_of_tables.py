"""Definitions that change while they are captured: what is followed, what stops the capture, and with which hint."""

from __future__ import annotations

import pytest

from penstock.contracts import SourceOptions, SourceTable, TableEvent
from penstock.errors import DeclarationError
from tests.capture.database_contract import is_heartbeat, opened
from tests.capture.database_fold import Fold, Item
from tests.capture.mysql.world import MariaDBWorld

T = SourceTable("t")


def start(world: MariaDBWorld, definition: str, *statements: str) -> Fold:
    """Capture a table up to the present."""
    world.execute(f"CREATE TABLE t ({definition})", *statements)
    fold = Fold({"t": ("id",)})
    follow(world, fold)
    return fold


def follow(world: MariaDBWorld, fold: Fold, options: SourceOptions | None = None, table: SourceTable = T) -> list[Item]:
    """Apply what comes up to the present, or up to an error."""
    items = []
    try:
        with opened(world, options, [table]) as database:
            end = database.end()
            for item in database.read(fold.position):
                items.append(item)
                fold.add(item)
                if is_heartbeat(item) and database.has_reached(item.position, end):
                    break
    finally:
        fold.forget_open_items()
    return items


def events(items: list[Item]) -> list[str]:
    return [item.what for item in items if isinstance(item, TableEvent)]


def stops(world: MariaDBWorld, fold: Fold, match: str) -> DeclarationError:
    """The error with which the capture stops, twice: it does not get past what stopped it."""
    for _ in range(2):
        with pytest.raises(DeclarationError, match=match) as error:
            follow(world, fold)
    return error.value


def test_a_column_that_is_added_without_a_default_is_in_the_rows_from_then_on(world: MariaDBWorld) -> None:
    fold = start(world, "id int PRIMARY KEY, a int", "INSERT INTO t VALUES (1, 1)")
    world.execute("INSERT INTO t VALUES (2, 2)", "ALTER TABLE t ADD COLUMN b varchar(9) FIRST, ADD INDEX (a)")
    world.execute("INSERT INTO t VALUES ('x', 3, 3)")
    assert not events(follow(world, fold))
    assert fold.rows("t") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}, {"b": "x", "id": 3, "a": 3}]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t ADD COLUMN b int NOT NULL DEFAULT 7",
        "ALTER TABLE t ADD COLUMN (b int DEFAULT 7)",
        "ALTER TABLE t ADD b int AS (a * 7) STORED",
        "ALTER TABLE t MODIFY a bigint",
        "ALTER TABLE t CHANGE a a int NOT NULL",
        "ALTER TABLE t MODIFY a decimal(12,3)",
    ],
)
def test_a_change_that_may_give_values_to_rows_copies_the_table_again(world: MariaDBWorld, change: str) -> None:
    type_ = "decimal(10,2)" if "decimal" in change else "int"
    fold = start(world, f"id int PRIMARY KEY, a {type_}", "INSERT INTO t VALUES (1, 1), (2, 5)")
    world.execute("DELETE FROM t WHERE id = 2", change, "INSERT INTO t (id, a) VALUES (3, 3)")
    assert events(follow(world, fold)) == ["copy begins", "copy ends"]
    assert [tuple(row.values()) for row in fold.rows("t")] == world.fetch("SELECT * FROM t ORDER BY id")


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ("ALTER TABLE t DROP COLUMN b", [(2, None), (3, None)]),
        ("ALTER TABLE t RENAME COLUMN b TO c", [(2, None), (3, None)]),
        ("ALTER TABLE t CHANGE COLUMN b c varchar(20)", [(2, None), (3, None)]),
    ],
)
def test_a_column_that_goes_stops_the_capture_until_it_is_accepted(
    world: MariaDBWorld, change: str, rows: list[tuple[int, object]]
) -> None:
    fold = start(world, "id int PRIMARY KEY, b varchar(9)", "INSERT INTO t VALUES (1, 'x')")
    world.execute("INSERT INTO t VALUES (2, 'y')", "DELETE FROM t WHERE id = 1", change)
    world.execute("INSERT INTO t (id) VALUES (3)")
    error = stops(world, fold, "column 'b' of 't' was dropped or renamed")
    assert change in error.message
    assert "penstock capture accept NAME --dropped t.b" in (error.hint or "")
    follow(world, fold, SourceOptions(dropped=frozenset({"t.b"})))
    assert [row["id"] for row in fold.rows("t")] == [2, 3]
    assert "b" not in fold.rows("t")[1]
    if "DROP" not in change:
        assert [row["c"] for row in fold.rows("t")] == ["y", None]


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE t",
        "RENAME TABLE t TO u",
        "ALTER TABLE t RENAME TO u",
        "CREATE OR REPLACE TABLE t (id int PRIMARY KEY)",
    ],
)
def test_a_table_that_goes_stops_the_capture_until_it_is_copied_again(world: MariaDBWorld, change: str) -> None:
    fold = start(world, "id int PRIMARY KEY, a int", "INSERT INTO t VALUES (1, 1)")
    world.execute("INSERT INTO t VALUES (2, 2)", change)
    error = stops(world, fold, r"the table was (removed|renamed)")
    assert "penstock capture snapshot NAME t" in (error.hint or "")
    assert [row["id"] for row in fold.rows("t")] == [1, 2]
    world.execute(
        "DROP TABLE IF EXISTS t, u", "CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (9, 9)"
    )
    with opened(world, None, [T]) as database:
        fold.position = database.copy_again(fold.position, ["t"])
    follow(world, fold)
    assert fold.rows("t") == [{"id": 9, "a": 9}]


def test_a_type_that_a_topic_cannot_follow_stops_the_capture(world: MariaDBWorld) -> None:
    fold = start(world, "id int PRIMARY KEY, a varchar(9)", "INSERT INTO t VALUES (1, '1')")
    world.execute("ALTER TABLE t MODIFY a int")
    stops(world, fold, "type of column 'a' has changed from string to int32")


def test_another_key_stops_the_capture(world: MariaDBWorld) -> None:
    fold = start(world, "id int PRIMARY KEY, a int NOT NULL", "INSERT INTO t VALUES (1, 1)")
    world.execute("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a)")
    stops(world, fold, "key has changed from id to a")


def test_changes_of_other_tables_and_temporary_tables_are_passed_over(world: MariaDBWorld) -> None:
    fold = start(world, "id int PRIMARY KEY, a int", "INSERT INTO t VALUES (1, 1)")
    world.execute("CREATE TABLE u (id int)", "ALTER TABLE u DROP COLUMN id, ADD b int", "DROP TABLE u")
    world.execute("CREATE TEMPORARY TABLE t (id int)", "INSERT INTO t VALUES (5)", "DROP TEMPORARY TABLE t")
    world.execute("ANALYZE TABLE t", "ALTER TABLE t COMMENT 'x', ADD KEY k (a)", "DROP INDEX k ON t")
    world.execute("CREATE TABLE v AS SELECT * FROM t", "INSERT INTO t VALUES (2, 2)")
    assert not events(follow(world, fold))
    assert [row["id"] for row in fold.rows("t")] == [1, 2]


def test_a_statement_in_place_of_rows_stops_the_capture(world: MariaDBWorld) -> None:
    fold = start(world, "id int PRIMARY KEY, a int", "INSERT INTO t VALUES (1, 1)")
    world.execute("SET SESSION binlog_format = STATEMENT", "INSERT INTO t VALUES (2, 2)")
    error = stops(world, fold, "a statement in place of rows: INSERT INTO t VALUES")
    assert "binlog_format = ROW" in (error.hint or "")


def test_rows_with_only_some_columns_stop_the_capture(world: MariaDBWorld) -> None:
    fold = start(world, "id int PRIMARY KEY, a int, b int", "INSERT INTO t VALUES (1, 1, 1)")
    world.execute("SET SESSION binlog_row_image = MINIMAL", "UPDATE t SET a = 2")
    error = stops(world, fold, "only some columns")
    assert "binlog_row_image = FULL" in (error.hint or "")


def test_an_xa_transaction_stops_the_capture(world: MariaDBWorld) -> None:
    fold = start(world, "id int PRIMARY KEY, a int")
    world.execute("XA START 'x'", "INSERT INTO t VALUES (2, 2)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
    stops(world, fold, "XA transaction")


def test_a_foreign_key_that_changes_rows_without_logging_them_is_refused(world: MariaDBWorld) -> None:
    world.execute("CREATE TABLE p (id int PRIMARY KEY)")
    world.execute(
        "CREATE TABLE t (id int PRIMARY KEY, p int, CONSTRAINT tp FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)"
    )
    with opened(world, None, [T]) as database, pytest.raises(DeclarationError, match="foreign key `tp`") as error:
        database.tables()
    world.execute(*(error.value.hint or "").split("; ")[:2])  # the hint is the cure
    with opened(world, None, [T]) as database:
        assert database.tables()[0].key == ("id",)


def test_only_inserted_rows_of_an_outbox_are_given(world: MariaDBWorld) -> None:
    outbox = SourceTable("t", inserts_only=True)
    world.execute("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 1)")
    fold = Fold({"t": ("id",)})
    follow(world, fold, table=outbox)
    world.execute("INSERT INTO t VALUES (2, 2)", "UPDATE t SET a = 5", "DELETE FROM t", "TRUNCATE TABLE t")
    assert not events(follow(world, fold, table=outbox))
    assert fold.rows("t") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
