"""Partitioned tables, which are captured as one, and tables that inherit from others, which are not."""

from __future__ import annotations

import pytest

from penstock.errors import DeclarationError
from tests.capture.postgres.conftest import database_of
from tests.capture.postgres.reading import catch_up, fold_of
from tests.servers.postgres import PostgresServer


@pytest.fixture
def visits(server: PostgresServer) -> PostgresServer:
    server.execute("CREATE TABLE visits (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    server.execute("CREATE TABLE visits_1 PARTITION OF visits FOR VALUES FROM (0) TO (100)")
    server.execute("CREATE TABLE visits_2 PARTITION OF visits FOR VALUES FROM (100) TO (200)")
    server.execute("INSERT INTO visits SELECT n, 'old' FROM generate_series(50, 149) n")
    return server


def test_a_partitioned_table_is_captured_as_one(visits: PostgresServer) -> None:
    visits.execute("ANALYZE")
    database = database_of(visits, "visits")
    fold = fold_of(database)
    items = catch_up(database, fold)
    (estimated,) = {copy.estimated_rows for item in items[:1] for copy in database.copies(item.position)}
    assert estimated == 100
    visits.execute("UPDATE visits SET v = 'new', id = id + 100 WHERE id IN (90, 99)")  # from one partition to the other
    visits.execute("UPDATE visits SET id = 198 WHERE id = 60")
    catch_up(database, fold)
    rows = visits.execute("SELECT id, v FROM visits ORDER BY id")
    assert [tuple(row.values()) for row in fold.rows("visits")] == rows


def test_a_publication_of_the_owner_that_names_partitions_is_refused_with_the_statement(visits: PostgresServer) -> None:
    database = database_of(visits, "visits")
    catch_up(database, fold_of(database))
    ((name,),) = visits.execute("SELECT pubname FROM pg_publication")
    visits.execute(f'ALTER PUBLICATION "{name}" SET (publish_via_partition_root = false)')
    with pytest.raises(DeclarationError, match="under the names of these") as refused:
        next(iter(database.read(None)))
    assert refused.value.hint == f'ALTER PUBLICATION "{name}" SET (publish_via_partition_root = true)'
    visits.execute(refused.value.hint)
    fold = fold_of(database)
    catch_up(database, fold)
    assert len(fold.rows("visits")) == 100


def test_a_partition_of_a_captured_table_is_refused_and_can_be_captured_alone(visits: PostgresServer) -> None:
    with pytest.raises(DeclarationError, match="table visits_1: it is a partition"):
        next(iter(database_of(visits, "visits", "visits_1").read(None)))
    database = database_of(visits, "visits_1")
    fold = fold_of(database)
    catch_up(database, fold)
    visits.execute("DELETE FROM visits WHERE id = 50")
    catch_up(database, fold)
    assert [row["id"] for row in fold.rows("visits_1")] == list(range(51, 100))


def test_a_table_from_which_others_inherit_is_captured_without_their_rows(server: PostgresServer) -> None:
    server.execute("CREATE TABLE cities (id int PRIMARY KEY, v text)")
    server.execute("CREATE TABLE capitals (of text) INHERITS (cities)")  # it has no key of its own
    server.execute("INSERT INTO cities VALUES (1, 'a'); INSERT INTO capitals VALUES (1, 'b'), (2, 'c')")
    database = database_of(server, "cities")
    fold = fold_of(database)
    catch_up(database, fold)
    server.execute("UPDATE cities SET v = v || '!'")  # PostgreSQL would refuse it if both were published
    server.execute("DELETE FROM capitals")
    catch_up(database, fold)
    assert [(row["id"], row["v"]) for row in fold.rows("cities")] == [(1, "a!")]
    rows = [row for batch in database.snapshot("cities").batches for row in batch.to_pylist()]
    assert [(row["id"], row["v"]) for row in rows] == [(1, "a!")]
