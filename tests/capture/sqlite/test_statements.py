"""Whatever statements change a table, the copy becomes the same: REPLACE, UPSERT, triggers, cascades."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.contracts import Captured, SourceTable
from tests.capture.database_contract import items_to_end
from tests.capture.sqlite.one_capture import Capture


@pytest.fixture
def captures(tmp_path: Path) -> Iterator[list[Capture]]:
    opened: list[Capture] = []
    yield opened
    for capture in opened:
        capture.database.close()


def capture(captures: list[Capture], path: Path, ddl: Sequence[str], *tables: SourceTable | str) -> Capture:
    captures.append(Capture(path / "shop.db", ddl, tables or ["t"]))
    return captures[-1]


USERS = "CREATE TABLE t (id INTEGER PRIMARY KEY, email TEXT UNIQUE, name TEXT)"


@pytest.mark.parametrize("recursive", ["OFF", "ON"])
@pytest.mark.parametrize(
    "ddl",
    [
        [USERS],
        [USERS + " STRICT"],
        ["CREATE TABLE t (id INTEGER PRIMARY KEY, email TEXT, name TEXT)", "CREATE UNIQUE INDEX e ON t (email DESC)"],
        [
            "CREATE TABLE t (id INTEGER PRIMARY KEY, email TEXT, name TEXT)",
            "CREATE UNIQUE INDEX e ON t (lower(\"email\" || ',)'), name COLLATE NOCASE DESC) WHERE id < 100",
        ],
        ["CREATE TABLE t (id TEXT, email TEXT, name TEXT, PRIMARY KEY (id, name), UNIQUE (email)) WITHOUT ROWID"],
        ["CREATE TABLE t (id TEXT COLLATE NOCASE PRIMARY KEY, email TEXT UNIQUE, name TEXT)"],
    ],
)
def test_rows_that_replace_deletes_are_deleted(
    captures: list[Capture], tmp_path: Path, ddl: list[str], recursive: str
) -> None:
    shop = capture(captures, tmp_path, ddl)
    statements = [
        "INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'x')",
        "INSERT OR REPLACE INTO t VALUES (4, 'a', 'x')",
        "REPLACE INTO t VALUES (2, 'c', 'X')",
        "UPDATE OR REPLACE t SET email = 'a' WHERE id = 2",
        "INSERT OR IGNORE INTO t VALUES (5, 'a', 'x')",
        "INSERT INTO t VALUES (6, 'd', 'x'), (7, 'e', 'x'), (8, 'f', 'x')",
        "INSERT OR REPLACE INTO t SELECT id + 1, email, name FROM t",
        "UPDATE OR REPLACE t SET id = 7 WHERE id = 8",
    ]
    with closing(shop.world.connect()) as connection:
        connection.execute(f"PRAGMA recursive_triggers = {recursive}")
        for statement in statements:
            connection.execute(statement)
            shop.assert_equal()


def test_replace_by_a_key_without_case(captures: list[Capture], tmp_path: Path) -> None:
    shop = capture(captures, tmp_path, ["CREATE TABLE t (id TEXT COLLATE NOCASE PRIMARY KEY, name TEXT)"])
    for statement in [
        "INSERT INTO t VALUES ('A', 'x'), ('b', 'x')",
        "REPLACE INTO t VALUES ('a', 'y')",
        "UPDATE t SET id = 'B' WHERE id = 'b'",
        "UPDATE OR REPLACE t SET id = 'A' WHERE id = 'B'",
    ]:
        shop.world.execute(statement)
        shop.assert_equal()


def test_replace_by_a_rowid(captures: list[Capture], tmp_path: Path) -> None:
    shop = capture(captures, tmp_path, ["CREATE TABLE t (id TEXT PRIMARY KEY, name TEXT)"])
    shop.world.execute("INSERT INTO t (rowid, id) VALUES (1, 'a'), (2, 'b')")
    shop.world.execute("REPLACE INTO t (rowid, id) VALUES (1, 'c')")
    shop.assert_equal()


def test_upserts_and_ignored_rows(captures: list[Capture], tmp_path: Path) -> None:
    shop = capture(captures, tmp_path, [USERS])
    for statement in [
        "INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'x')",
        "INSERT INTO t VALUES (3, 'a', 'y') ON CONFLICT (email) DO UPDATE SET name = excluded.name, id = 9",
        "INSERT INTO t VALUES (3, 'b', 'y') ON CONFLICT DO NOTHING",
        "INSERT OR IGNORE INTO t VALUES (4, 'b', 'y'), (5, 'z', 'y')",
        "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (2, 'b', 'again')",
    ]:
        shop.world.execute(statement)
        shop.assert_equal()


def test_triggers_of_the_user_that_change_the_same_row(captures: list[Capture], tmp_path: Path) -> None:
    ddl = [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, stamp INTEGER)",
        "CREATE TRIGGER a AFTER INSERT ON t BEGIN UPDATE t SET stamp = 1 WHERE id = NEW.id; END",
        "CREATE TRIGGER b AFTER UPDATE OF name ON t BEGIN UPDATE t SET stamp = stamp + 1 WHERE id = NEW.id; END",
        "CREATE TRIGGER c AFTER DELETE ON t WHEN OLD.id = 2 BEGIN INSERT INTO t VALUES (2, 'back', 0); END",
    ]
    shop = capture(captures, tmp_path, ddl)
    shop.world.execute(
        "CREATE TRIGGER aa AFTER INSERT ON t BEGIN UPDATE t SET stamp = stamp + 10 WHERE id = NEW.id; END",
    )
    for statement in [
        "INSERT INTO t (id, name) VALUES (1, 'x'), (2, 'y'), (3, 'z')",
        "UPDATE t SET name = name || '!'",
        "DELETE FROM t WHERE id >= 2",
    ]:
        shop.world.execute(statement)
        shop.assert_equal()


def test_cascades_generated_columns_and_attached_files(captures: list[Capture], tmp_path: Path) -> None:
    ddl = [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER AS (a * 2), c TEXT AS ('c' || a) STORED)",
        "CREATE TABLE child (id INTEGER PRIMARY KEY, t INTEGER REFERENCES t ON DELETE CASCADE ON UPDATE CASCADE)",
    ]
    shop = capture(captures, tmp_path, ddl, "t", "child")
    with closing(sqlite3.connect(tmp_path / "other.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (id)")
        connection.execute("ATTACH ? AS shop", (str(shop.world.path),))
        connection.execute("PRAGMA foreign_keys = ON")
        for statement in [
            "INSERT INTO shop.t (id, a) VALUES (1, 10), (2, 20)",
            "INSERT INTO shop.child VALUES (1, 1), (2, 2), (3, 2)",
            "UPDATE shop.t SET id = 5, a = 50 WHERE id = 2",
            "DELETE FROM shop.t WHERE id = 1",
        ]:
            connection.execute(statement)
            shop.assert_equal()
    assert shop.rows("child") == [(2, 5), (3, 5)]


def test_savepoints_that_are_rolled_back_leave_nothing(captures: list[Capture], tmp_path: Path) -> None:
    shop = capture(captures, tmp_path, [USERS])
    shop.world.execute(
        "INSERT INTO t VALUES (1, 'a', 'x')",
        "SAVEPOINT s",
        "UPDATE t SET name = 'y'",
        "INSERT INTO t VALUES (2, 'b', 'x')",
        "ROLLBACK TO s",
        "INSERT INTO t VALUES (3, 'c', 'x')",
        "RELEASE s",
    )
    assert shop.rows("t") == [(1, "a", "x"), (3, "c", "x")]


def test_names_that_need_quotes(captures: list[Capture], tmp_path: Path) -> None:
    ddl = ['CREATE TABLE "my ""own"" table" ("the key" INTEGER PRIMARY KEY, "order" TEXT UNIQUE, "v0" TEXT)']
    shop = capture(captures, tmp_path, ddl, 'my "own" table')
    for statement in [
        """INSERT INTO "my ""own"" table" VALUES (1, 'a', 'b')""",
        """REPLACE INTO "my ""own"" table" VALUES (2, 'a', 'c')""",
    ]:
        shop.world.execute(statement)
    assert shop.rows('my "own" table') == [(2, "a", "c")]


def test_every_version_of_a_row_is_given_in_its_order(captures: list[Capture], tmp_path: Path) -> None:
    shop = capture(captures, tmp_path, [USERS])
    shop.world.execute(*[f"REPLACE INTO t VALUES (1, 'a', '{number}')" for number in range(5)])
    items = items_to_end(shop.database, shop.fold.position)
    names = [
        row["name"] for item in items if isinstance(item, Captured) and len(item.rows) for row in item.rows.to_pylist()
    ]  # type: ignore[union-attr]
    assert names == ["0", "1", "2", "3", "4"]


def test_columns_are_narrowed_and_events_are_inserts_only(captures: list[Capture], tmp_path: Path) -> None:
    shop = capture(
        captures,
        tmp_path,
        [USERS, "CREATE TABLE outbox (id INTEGER PRIMARY KEY, event TEXT)"],
        SourceTable("t", columns=("id", "name")),
        SourceTable("outbox", inserts_only=True),
    )
    shop.world.execute(
        "INSERT INTO t VALUES (1, 'a', 'x')",
        "INSERT INTO outbox VALUES (1, 'placed'), (2, 'paid')",
        "UPDATE outbox SET event = 'changed' WHERE id = 2",
        "DELETE FROM outbox",
    )
    assert shop.rows("t") == [(1, "x")]
    assert shop.rows("outbox") == [(1, "placed"), (2, "paid")]


KEYS = st.integers(1, 4)
EMAILS = st.sampled_from(["'a'", "'b'", "'c'", "NULL"])
STATEMENTS = st.one_of(
    st.builds("INSERT OR REPLACE INTO t VALUES ({}, {}, 'i')".format, KEYS, EMAILS),
    st.builds("INSERT OR IGNORE INTO t VALUES ({}, {}, 'g')".format, KEYS, EMAILS),
    st.builds(
        "INSERT INTO t VALUES ({}, {}, 'u') ON CONFLICT DO UPDATE SET name = 'z', id = id + 1".format, KEYS, EMAILS
    ),
    st.builds("UPDATE OR REPLACE t SET id = {}, email = {} WHERE id = {}".format, KEYS, EMAILS, KEYS),
    st.builds("UPDATE OR IGNORE t SET id = id + {}".format, st.integers(-1, 1)),
    st.builds("DELETE FROM t WHERE id = {}".format, KEYS),
    st.sampled_from(["SAVEPOINT s", "ROLLBACK TO s", "RELEASE s", "BEGIN", "COMMIT", "ROLLBACK"]),
)


@settings(max_examples=60, deadline=None)
@given(statements=st.lists(STATEMENTS, max_size=25), recursive=st.booleans())
def test_after_any_statements_the_copy_equals_the_table(
    tmp_path_factory: pytest.TempPathFactory, statements: list[str], *, recursive: bool
) -> None:
    shop = Capture(tmp_path_factory.mktemp("any") / "shop.db", [USERS], ["t"])
    with closing(shop.world.connect()) as connection:
        connection.execute(f"PRAGMA recursive_triggers = {int(recursive)}")
        for statement in statements:
            try:
                connection.execute(statement)
            except sqlite3.Error:
                continue  # a conflict, or a savepoint that is not there
            if not connection.in_transaction:
                shop.assert_equal()
        if connection.in_transaction:
            connection.execute("COMMIT")
        shop.assert_equal()
    shop.database.close()
