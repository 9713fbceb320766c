"""The database in memory keeps the contract of databases."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.contracts import Captured, SourceOptions, SourceTable
from penstock.testing.capture import Delete, MemoryDatabase, Upsert
from tests.capture.database_contract import DatabaseContract, items_to_end
from tests.capture.database_fold import Fold
from tests.capture.database_world import TABLES, DatabaseWorld, Insert, Row, Statement, Update, key_of


class MemoryWorld(DatabaseWorld):
    def __init__(self) -> None:
        self.database = MemoryDatabase()
        self.database.create_table("accounts", "id bigint not null, name string, amount bigint", key="id")
        self.database.create_table("pairs", "a bigint not null, b string not null, note string", key=("a", "b"))

    def run(self, *statements: Statement) -> None:
        tables = {table: {key_of(table, row): row for row in self.rows(table)} for table in TABLES}
        changes: list[Upsert | Delete] = []
        for statement in statements:
            changes += _to_changes(statement, tables[statement.table])
        if changes:
            self.database.commit(*changes)

    def truncate(self, table: str) -> None:
        self.database.truncate(table)

    def rows(self, table: str) -> list[Row]:
        return self.database.rows(table)

    def open(self, options: SourceOptions | None = None, tables: Sequence[SourceTable] | None = None) -> MemoryDatabase:
        return self.database.connect(options)

    def lose_changes(self) -> bool:
        self.database.lose_changes()
        return True


def _to_changes(statement: Statement, rows: dict[tuple[object, ...], Row]) -> list[Upsert | Delete]:
    """What a statement changes in these rows; they are changed too."""
    table = statement.table
    if isinstance(statement, Insert):
        rows[key_of(table, statement.row)] = dict(statement.row)
        return [Upsert(table, statement.row)]
    before = rows.pop(key_of(table, statement.key), None)
    if before is None:
        return []
    if not isinstance(statement, Update):
        return [Delete(table, statement.key)]
    row = {**before, **statement.values}
    rows[key_of(table, row)] = row
    removed = [] if key_of(table, row) == key_of(table, before) else [Delete(table, statement.key)]
    return [*removed, Upsert(table, row)]


class TestMemoryDatabase(DatabaseContract):
    @pytest.fixture
    def world(self) -> MemoryWorld:
        return MemoryWorld()


@pytest.fixture
def database() -> MemoryDatabase:
    database = MemoryDatabase(SourceOptions(chunk_rows=1))
    database.create_table("orders", "id bigint not null, name string", key="id")
    return database


def test_unchanged_cells_are_marked_and_not_sent(database: MemoryDatabase) -> None:
    fold = Fold.of(database.tables())
    database.commit(Upsert("orders", {"id": 1, "name": "long"}))
    for item in items_to_end(database, None):
        fold.add(item)
    database.commit(Upsert("orders", {"id": 1, "name": "other"}, unchanged=frozenset({"name"})))
    (item, _) = items_to_end(database, fold.position)
    assert isinstance(item, Captured)
    assert item.unchanged["name"].to_pylist() == [True]
    fold.add(item)
    assert fold.rows("orders") == database.rows("orders") == [{"id": 1, "name": "long"}]


def test_a_change_before_a_chunk_is_given_before_it(database: MemoryDatabase) -> None:
    database.commit(Upsert("orders", {"id": 1}), Upsert("orders", {"id": 2, "name": "old"}))

    def rename_second_row(table: str) -> None:
        if database.rows("orders")[1]["name"] == "old":
            database.commit(Upsert("orders", {"id": 2, "name": "new"}, unchanged=frozenset()))

    database.before_chunk = rename_second_row
    fold = Fold.of(database.tables())
    for item in items_to_end(database, None):
        fold.add(item)
    assert fold.rows("orders") == [{"id": 1, "name": None}, {"id": 2, "name": "new"}]


def test_a_column_with_a_default_is_added_and_its_table_copied_again(database: MemoryDatabase) -> None:
    fold = Fold.of(database.tables())
    database.commit(Upsert("orders", {"id": 1}))
    items = items_to_end(database, None)
    database.add_column("orders", "note string", default="none yet")
    database.commit(Upsert("orders", {"id": 2, "note": "hello"}))
    for item in [*items, *items_to_end(database, items[-1].position)]:
        fold.add(item)
    assert fold.rows("orders") == database.rows("orders")
    assert [row["note"] for row in fold.rows("orders")] == ["none yet", "hello"]


def test_a_scripted_error_is_raised_once_at_its_place(database: MemoryDatabase) -> None:
    database.commit(Upsert("orders", {"id": 1}))
    items = items_to_end(database, None)
    database.fail(ConnectionError("scripted"))
    database.commit(Upsert("orders", {"id": 2}))
    with pytest.raises(ConnectionError, match="scripted"):
        items_to_end(database, items[-1].position)
    assert len(items_to_end(database, items[-1].position)) == 2


def test_a_closed_connection_ends_and_another_one_continues(database: MemoryDatabase) -> None:
    database.commit(Upsert("orders", {"id": 1}))
    items = database.read(None)
    first = next(items)
    database.close()
    assert list(items) == []
    fold = Fold.of(database.tables())
    for item in [first, *items_to_end(database.connect(), first.position)]:
        fold.add(item)
    assert fold.rows("orders") == database.rows("orders")
