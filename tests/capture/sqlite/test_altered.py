"""Tables that are altered while they are captured, or while nobody captures."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.contracts import SourceOptions, SourceTable, TableEvent
from penstock.errors import DeclarationError
from tests.capture.sqlite.one_capture import Capture

NOTES = "CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT, size INTEGER)"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Capture]:
    capture = Capture(tmp_path / "shop.db", [NOTES, "CREATE TABLE u (id INTEGER PRIMARY KEY)"], ["t", "u"])
    capture.world.execute("INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20)", "INSERT INTO u VALUES (1)")
    capture.assert_equal()
    yield capture
    capture.database.close()


def copied_tables(shop: Capture) -> list[str]:
    return [item.table for item in shop.catch_up() if isinstance(item, TableEvent) and item.what == "copy begins"]


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_column_is_added_without_a_copy_if_nobody_can_have_filled_it(shop: Capture, *, is_restarted: bool) -> None:
    shop.world.execute("ALTER TABLE t ADD COLUMN extra TEXT")
    if is_restarted:
        shop.restart()
    assert copied_tables(shop) == []
    shop.world.execute("UPDATE t SET extra = 'x' WHERE id = 1", "INSERT INTO t VALUES (3, 'c', 30, 'y')")
    assert copied_tables(shop) == []
    assert [row.get("extra") for row in shop.fold.rows("t")] == ["x", None, "y"]


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE t ADD COLUMN extra TEXT DEFAULT 'none'"],
        ["ALTER TABLE t ADD COLUMN extra INTEGER AS (size * 2)"],
        ["ALTER TABLE t ADD COLUMN extra TEXT", "UPDATE t SET extra = 'x' WHERE id = 1"],
        [
            "UPDATE t SET size = 11 WHERE id = 1",
            "ALTER TABLE t ADD COLUMN extra TEXT",
            "INSERT INTO t VALUES (3, 'c', 3, 'y')",
        ],
    ],
)
def test_a_table_is_copied_again_if_the_new_column_may_have_values(
    shop: Capture, statements: list[str], *, is_restarted: bool
) -> None:
    shop.world.execute(*statements)
    if is_restarted:
        shop.restart()
    assert copied_tables(shop) == ["t"]
    shop.assert_equal()
    shop.world.execute("UPDATE t SET note = 'later'")
    assert copied_tables(shop) == []
    shop.assert_equal()


@pytest.mark.parametrize("drop", ["insert", "update", "delete"])
def test_a_trigger_that_was_dropped_is_created_again_and_its_table_copied(shop: Capture, drop: str) -> None:
    shop.world.execute(
        f"DROP TRIGGER _penstock_t_{drop}", "INSERT INTO t VALUES (3, 'c', 1)", "DELETE FROM t WHERE id = 2"
    )
    assert copied_tables(shop) == ["t"]
    shop.assert_equal()
    shop.world.execute("UPDATE t SET size = 0", "INSERT INTO t VALUES (4, 'd', 1)", "DELETE FROM t WHERE id = 1")
    assert copied_tables(shop) == []
    shop.assert_equal()


def test_a_table_that_is_rebuilt_is_copied_again(shop: Capture) -> None:
    shop.world.execute(
        "CREATE TABLE t_new (id INTEGER PRIMARY KEY, note TEXT NOT NULL, size INTEGER, extra TEXT)",
        "INSERT INTO t_new SELECT id, note, size, 'e' FROM t WHERE id = 1",
        "DROP TABLE t",
        "ALTER TABLE t_new RENAME TO t",
    )
    assert copied_tables(shop) == ["t"]
    shop.assert_equal()


def test_a_table_that_is_dropped_stops_the_capture_and_may_come_back(shop: Capture) -> None:
    shop.world.execute("DROP TABLE t")
    with pytest.raises(DeclarationError, match="table 't': the database has no such table"):
        shop.catch_up()
    shop.restart()
    shop.world.execute(NOTES, "INSERT INTO t VALUES (5, 'new', 1)")
    assert copied_tables(shop) == ["t"]
    shop.assert_equal()


def test_a_table_that_is_renamed_and_created_anew_is_copied_again(shop: Capture) -> None:
    shop.world.execute("ALTER TABLE t RENAME TO old_t", NOTES, "INSERT INTO t VALUES (9, 'n', 1)")
    assert copied_tables(shop) == ["t"]
    shop.world.execute("INSERT INTO old_t VALUES (8, 'm', 1)", "DELETE FROM t", "INSERT INTO t VALUES (7, 'k', 1)")
    shop.assert_equal()


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_renamed_column_stops_the_capture_with_the_command(shop: Capture, *, is_restarted: bool) -> None:
    shop.world.execute("ALTER TABLE t RENAME COLUMN note TO remark", "UPDATE t SET remark = 'r' WHERE id = 1")
    if is_restarted:
        shop.restart()
    with pytest.raises(DeclarationError, match="table 't': column 'note' is gone: it was dropped or renamed") as error:
        shop.catch_up()
    assert "penstock capture accept capture --dropped t.note" in (error.value.hint or "")
    shop.restart(SourceOptions(dropped=frozenset({"t.note"})))
    assert copied_tables(shop) == ["t"]
    assert [row["remark"] for row in shop.fold.rows("t")] == ["r", "b"]
    assert [row.get("note") for row in shop.fold.rows("t")] == [None, None]


def test_a_column_is_dropped_after_its_triggers(shop: Capture) -> None:
    with pytest.raises(sqlite3.OperationalError, match="_penstock_t_insert"):
        shop.world.execute("ALTER TABLE t DROP COLUMN note")
    triggers = [f"DROP TRIGGER _penstock_t_{event}" for event in ("insert", "update", "delete")]
    shop.world.execute(*triggers, "ALTER TABLE t DROP COLUMN note", "INSERT INTO t VALUES (3, 30)")
    with pytest.raises(DeclarationError, match="column 'note' is gone"):
        shop.catch_up()
    shop.restart(SourceOptions(dropped=frozenset({"t.note"})))
    assert copied_tables(shop) == ["t"]
    shop.assert_equal()


def test_a_column_with_another_type_and_another_key_are_refused(shop: Capture) -> None:
    shop.world.execute("DROP TABLE t", "CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT, size TEXT)")
    with pytest.raises(DeclarationError, match="column 'size' was declared as 'INTEGER'"):
        shop.catch_up()
    shop.world.execute("DROP TABLE t", "CREATE TABLE t (id INTEGER, note TEXT, size INTEGER, PRIMARY KEY (id, size))")
    with pytest.raises(DeclarationError, match=r"its key was \(id\), and is now \(id, size\)"):
        shop.catch_up()


def test_a_unique_index_that_is_added_is_taken_into_account(shop: Capture) -> None:
    shop.world.execute("CREATE UNIQUE INDEX one_note ON t (note)", "REPLACE INTO t VALUES (3, 'a', 5)")
    shop.assert_equal()
    shop.world.execute("REPLACE INTO t VALUES (4, 'b', 5)")
    assert copied_tables(shop) == []
    shop.assert_equal()


def test_changes_after_vacuum_and_within_alterations_of_other_tables_are_right(shop: Capture) -> None:
    shop.world.execute("ALTER TABLE u ADD COLUMN x", "DELETE FROM t WHERE id = 1", "CREATE INDEX i ON t (size)")
    shop.world.fetch("VACUUM")
    shop.world.execute("INSERT INTO t VALUES (6, 'f', 1)")
    assert copied_tables(shop) == []
    assert [row[0] for row in shop.rows("t")] == [2, 6]


def test_a_table_that_is_added_to_a_capture_is_copied_and_the_others_are_not(shop: Capture) -> None:
    shop.world.execute("CREATE TABLE more (id INTEGER PRIMARY KEY)", "INSERT INTO more VALUES (1)")
    shop.tables.append(SourceTable("more"))
    shop.fold.keys = {**shop.fold.keys, "more": ("id",)}
    shop.restart()
    assert copied_tables(shop) == ["more"]
    shop.assert_equal()
    shop.tables.pop()
    shop.restart()
    shop.assert_equal()
    names = [name for (name,) in shop.world.fetch("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    assert not [name for name in names if "more" in name]


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("CREATE TABLE x (a TEXT, b TEXT)", "table 'x': it has no primary key"),
        ("CREATE TABLE x (a PRIMARY KEY)", "table 'x': its key column 'a' has no type"),
        ("CREATE VIEW x AS SELECT 1 AS id", "table 'x': only tables can have triggers; it is a view"),
        ("CREATE VIRTUAL TABLE x USING fts5 (a)", "table 'x': only tables can have triggers; it is a virtual table"),
        ("CREATE TABLE x (id INTEGER PRIMARY KEY, committed_at TEXT)", "table 'x': it has a column 'committed_at'"),
        ("CREATE TABLE y (id INTEGER PRIMARY KEY)", "table 'x': the database has no such table"),
    ],
)
def test_tables_that_cannot_be_captured_are_refused_with_a_reason(tmp_path: Path, ddl: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        Capture(tmp_path / "x.db", [ddl], ["x"])


def test_a_column_that_is_not_there_and_a_key_that_is_left_out_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="table 't': there is no column 'nott'"):
        Capture(tmp_path / "a.db", [NOTES], [SourceTable("t", columns=("id", "nott"))])
    with pytest.raises(DeclarationError, match="its key has the column 'id', which is not among those to capture"):
        Capture(tmp_path / "b.db", [NOTES], [SourceTable("t", columns=("note",))])
