"""Capturing a PostgreSQL database: copies, changes, and what happens around them."""

from __future__ import annotations

import pytest

from penstock.contracts import Captured
from tests.capture.database_fold import Fold, catch_up, follow, keys_of, names
from tests.capture.postgres.conftest import open_database
from tests.servers.postgres import PostgresServer


def begin(server: PostgresServer, *tables: str, **options: object) -> tuple[object, Fold]:
    database = open_database(server, *tables, **options)  # type: ignore[arg-type]
    fold = Fold(keys_of(database))
    catch_up(database, fold)
    return database, fold


def test_a_table_is_copied_and_then_followed(server: PostgresServer) -> None:
    server.execute("CREATE TABLE orders (id int PRIMARY KEY, country text)")
    server.execute("INSERT INTO orders SELECT n, 'DE' FROM generate_series(1, 450) n")
    database = open_database(server, "orders")
    fold = Fold(keys_of(database))
    catch_up(database, fold)
    assert names(fold.events) == ["copy begins", "copy ends"]
    assert fold.rows_of("orders") == [{"id": n, "country": "DE"} for n in sorted(range(1, 451), key=lambda n: f"({n},)")]
    server.execute("UPDATE orders SET country = 'FR' WHERE id = 7")
    server.execute("DELETE FROM orders WHERE id > 8")
    server.execute("UPDATE orders SET id = 1000 WHERE id = 8")
    server.execute("INSERT INTO orders VALUES (9, NULL)")
    catch_up(database, fold)
    assert fold.tables["orders"].keys() == {(n,) for n in (1, 2, 3, 4, 5, 6, 7, 9, 1000)}
    assert fold.tables["orders"][7,]["country"] == "FR"
    assert fold.tables["orders"][9,]["country"] is None
    assert database.copies(fold.position)[0].rows == 450
